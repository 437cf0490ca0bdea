//! Eviction: Nitro's WEUs go in LRU order. In every design, stale duplicates never read as the new
//! content of their place, and dirty and clean chunks lie in slots of their own. WEUs are trimmed
//! before they are written again. A slot of one record is not, but its end is durable by then.

use crate::common::*;
use larder_core::decisions::{Answer, Event as Decided};
use larder_device::{IoOp, rng::Rng, sim::Schedule};
use larder_engine::{Tuning, WriteMode, decision_log::DecisionLog, designs::ENGINE_DESIGNS, recover::recover};
use larder_format::DesignId;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const CHUNK: usize = 8 << 10;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

/// Makes a small cache that inserts all its misses, clean.
fn small(seed: u64, design: DesignId) -> World {
    let mut setup = Setup { flash_bytes: 6 * MIB, ..Setup::default() };
    setup.options.design = design;
    setup.options.mode = WriteMode::Around;
    setup.tuning.prefetch_bytes_max = 0;
    let world = World::new(seed, setup);
    for lba in 0..2048 {
        world.fill_origin(at(lba), &noise(lba, CHUNK));
    }
    world
}

/// Reads chunk `lba`, waits for its insertion after a miss, and returns true if it hit.
fn touch(world: &World, lba: u64) -> bool {
    touch_content(world, lba, lba)
}

/// Touches a chunk of other content in the same way.
fn touch_content(world: &World, lba: u64, content: u64) -> bool {
    let before = world.origin_reads();
    assert_same(&world.read(at(lba), CHUNK), &noise(content, CHUNK), "a chunk");
    world.wait_for_insertions();
    world.origin_reads() == before
}

/// Lets evictions under way end, so that the next chunk's fate does not depend on chance.
fn quiet(world: &World) {
    world.runtime.run_until_idle();
}

/// Returns true over buckets.
///
/// A full bucket evicts the content that the fewest recently used addresses share.
fn is_bucketed() -> bool {
    let design = design::chosen();
    !design::fills_weus(design) && !design::is_slotted(design)
}

/// A full index drops clean zeroes, and the log forgets them, too. The origin then gets data past
/// the cache, and a crash brings no zero back over it.
#[test]
fn zeroes_that_a_full_index_dropped_stay_dropped_after_a_crash() {
    const READS: u64 = 96;
    let mut setup = Setup { flash_bytes: 6 * MIB, origin_bytes: READS * MIB, ..Setup::default() };
    setup.options.mode = WriteMode::Around;
    setup.tuning.prefetch_bytes_max = 0;
    let mut world = World::new(21, setup);
    let chunks = READS * MIB / CHUNK as u64;
    assert!(world.layout().mappings_max < chunks / 4, "the index has room for most zeroes");
    for read in 0..READS {
        assert!(world.read(read * MIB, MIB as usize).iter().all(|&byte| byte == 0), "the origin has zeroes alone");
        world.wait_for_insertions();
        world.flush();
    }
    let content = |read: u64| noise(read, MIB as usize);
    for read in 0..READS {
        world.write(read * MIB, &content(read));
    }
    world.flush();
    world.crash();
    world.open();
    for read in 0..READS {
        assert_same(&world.read(read * MIB, MIB as usize), &content(read), "chunks that were zero before");
    }
}

#[test]
fn what_was_used_last_stays() {
    each_seed(4, |seed| {
        let world = small(seed, design::chosen());
        let hot = 5;
        // Other chunks share its content: that counts in a bucket.
        let shared: Vec<u64> = if is_bucketed() { vec![3001, 3003, 3005, 3007] } else { Vec::new() };
        shared.iter().for_each(|&lba| world.fill_origin(at(lba), &noise(hot, CHUNK)));
        let touch_shared = || shared.iter().filter(|&&lba| touch_content(&world, lba, hot)).count();
        assert!(!touch(&world, hot) && touch_shared() == 0);
        let slot = world.slot_of(hot);
        assert!(slot.is_some());
        for lba in 100..2000 {
            assert!(!touch(&world, lba));
            quiet(&world);
            if lba % 8 == 0 {
                assert!(touch(&world, hot), "the hot chunk left when chunk {lba} came");
                assert_eq!(touch_shared(), shared.len(), "another address of it left when chunk {lba} came");
            }
        }
        assert!(world.status().counts.evicted_slots > 10);
        let stays_in = world.slot_of(hot);
        match world.status().counts.chunks_stored_again {
            0 => assert_eq!(stays_in, slot, "it never moved"),
            moved => assert_eq!(design::chosen(), DesignId::Larder, "only larder moves chunks: {moved}"),
        }
        assert_eq!(world.slot_of(101).filter(|&s| Some(s) != stays_in), None, "its cold contemporaries are gone");
    });
}

#[test]
fn weus_of_nitro_leave_in_the_order_of_their_last_use() {
    each_seed(4, |seed| {
        let world = small(seed, DesignId::Nitro);
        // The chunks of each WEU.
        let mut weus: Vec<(u32, Vec<u64>)> = Vec::new();
        let mut next = 0;
        while world.status().counts.evicted_slots == 0 && world.status().slots_free > 3 {
            touch(&world, next);
            quiet(&world);
            let slot = world.slot_of(next).expect("cached").0;
            match weus.last_mut() {
                Some((last, chunks)) if *last == slot => chunks.push(next),
                _ => weus.push((slot, vec![next])),
            }
            next += 1;
        }
        weus.pop();
        // One use of each but the open one, in an order of their own.
        let mut order: Vec<usize> = (0..weus.len()).collect();
        Rng::new(seed).shuffle(&mut order);
        for &weu in &order {
            assert!(touch(&world, weus[weu].1[0]));
        }
        // Chunks that leave while new ones come must follow that order.
        let mut left = Vec::new();
        let mut lba = 1000;
        while left.len() < order.len() - 2 {
            touch(&world, lba);
            quiet(&world);
            lba += 1;
            for &weu in &order {
                let gone = weus[weu].1.iter().filter(|&&lba| world.slot_of(lba).is_none()).count();
                assert!(gone == 0 || gone == weus[weu].1.len(), "a WEU leaves whole");
                if gone > 0 && !left.contains(&weu) {
                    left.push(weu);
                }
            }
        }
        assert_eq!(left, order[..left.len()]);
    });
}

/// Checks every write to a WEU slot among the flash's requests.
///
/// It is appended within a generation. Between a write that begins the slot anew and all earlier
/// ones, a discard of the whole slot was over.
fn check_slot_discipline(world: &World) -> (usize, u64) {
    let layout = world.layout();
    let weu = u64::from(layout.slot_bytes);
    let mut written_to: BTreeMap<u64, u64> = BTreeMap::new();
    let mut discarded: BTreeSet<u64> = BTreeSet::new();
    let (mut discards, mut slots_begun) = (0, 0);
    for event in world.flash.take_events() {
        if event.offset < layout.slots_offset {
            continue;
        }
        match (event.op, event.over) {
            (IoOp::Discard, false) => {
                discards += 1;
                let first = (event.offset - layout.slots_offset) / weu;
                assert!((event.offset - layout.slots_offset).is_multiple_of(weu), "{event:?}");
                for slot in first..(event.end() - layout.slots_offset) / weu {
                    written_to.insert(slot, u64::MAX);
                }
            }
            (IoOp::Discard, true) => {
                let first = (event.offset - layout.slots_offset) / weu;
                for slot in first..(event.end() - layout.slots_offset) / weu {
                    written_to.insert(slot, 0);
                    discarded.insert(slot);
                }
            }
            (IoOp::Write, false) => {
                let (slot, from) =
                    ((event.offset - layout.slots_offset) / weu, (event.offset - layout.slots_offset) % weu);
                assert!(from + event.len <= weu, "a segment crosses a slot: {event:?}");
                if from == 0 {
                    slots_begun += 1;
                    assert!(discarded.remove(&slot), "slot {slot} is written anew without a discard");
                }
                let end = written_to.entry(slot).or_insert(u64::MAX);
                assert!(from >= *end && *end != u64::MAX, "slot {slot} is written twice at {from}, or while discarded");
                *end = from + event.len;
            }
            _ => {}
        }
    }
    (discards, slots_begun)
}

/// Evicted slots, each with the number of the flash's events before that.
type Evictions = Arc<Mutex<Vec<(u64, usize)>>>;

/// Sets a listener for the evictions of the next opened cache.
fn note_evictions(world: &mut World) -> Evictions {
    let evictions = Evictions::default();
    let (sink, flash) = (evictions.clone(), world.flash.clone());
    world.setup.tuning.decisions = DecisionLog::to(move |event, answer| {
        // Slots freed ahead have another event, and their end is in the log long before.
        if let (Decided::Evict, Answer::Slot(slot)) = (event, answer) {
            sink.lock().push((slot.0.into(), flash.event_count()));
        }
    });
    evictions
}

/// Checks the flash's requests since its events were last taken, and takes them.
///
/// Between the eviction of a slot for one record and its next write, a frame of the log began, with
/// FUA, and was over. No slot that is written again soon is trimmed. Returns the number of slots
/// written again.
fn check_slot_reuse(world: &World, evictions: &Evictions) -> u64 {
    let layout = world.layout();
    let slot_bytes = u64::from(layout.slot_bytes);
    let log = layout.log_offset..layout.log_offset + layout.log_bytes;
    let events = world.flash.take_events();
    let mut evicted = std::mem::take(&mut *evictions.lock()).into_iter().peekable();
    // Slots that were evicted and not written since, each with its moment; the start of the last
    // frame that is over.
    let mut free: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut begun, mut logged) = (BTreeMap::new(), None);
    let (mut written, mut again) = (false, 0);
    for (now, event) in events.into_iter().enumerate() {
        while let Some((slot, at)) = evicted.next_if(|&(_, at)| at <= now) {
            free.insert(slot, at);
        }
        // All of them at once, when the cache is made.
        let is_unused = event.end() <= layout.slots_offset || !written;
        assert!(event.op != IoOp::Discard || is_unused, "{event:?}: a slot that is written again soon gains nothing");
        if event.op != IoOp::Write {
            continue;
        }
        if log.contains(&event.offset) && event.fua {
            match event.over {
                false => drop(begun.insert(event.offset, now)),
                true => logged = begun.remove(&event.offset).max(logged),
            }
        }
        if event.offset < layout.slots_offset || event.over {
            continue;
        }
        written = true;
        assert!((event.offset - layout.slots_offset).is_multiple_of(slot_bytes), "{event:?}");
        let first = (event.offset - layout.slots_offset) / slot_bytes;
        for slot in first..(event.end() - layout.slots_offset).div_ceil(slot_bytes) {
            if let Some(at) = free.remove(&slot) {
                again += 1;
                assert!(logged >= Some(at), "slot {slot} is written again, and its end is in no log");
            }
        }
    }
    again
}

#[test]
fn slots_are_discarded_before_reuse_and_never_rewritten() {
    let fills_weus = design::fills_weus(design::chosen());
    each_seed(8, |seed| {
        let mut setup = Setup { flash_bytes: 5 * MIB, origin_bytes: 16 * MIB, ..Setup::default() };
        setup.tuning.dirty_low_percent = 10;
        setup.tuning.dirty_max_percent = 40;
        let mut world = World::made(seed, setup);
        let evictions = note_evictions(&mut world);
        world.open();
        let mut rng = Rng::new(seed);
        let mut twin = Twin::new();
        let (mut evicted, mut reused) = (0, 0);
        for life in 0..3 {
            for number in 0..1000 {
                let lba = rng.below(2000);
                if rng.chance(1, 3) {
                    assert_same(&world.read(at(lba), CHUNK), &twin.bytes(at(lba), CHUNK), "a read");
                } else {
                    let data = noise(life * 10_000 + number, CHUNK);
                    world.write(at(lba), &data);
                    twin.write(at(lba), &data);
                }
                if rng.chance(1, 30) {
                    world.flush();
                }
            }
            let status = world.status();
            evicted += status.counts.evicted_slots;
            assert_eq!(status.counts.slots_trimmed, if fills_weus { status.counts.evicted_slots } else { 0 });
            assert_eq!(status.counts.corrupt_records, 0);
            if life == 1 {
                world.flush();
                if !fills_weus {
                    // A slot that no durable entry names yet, because its chunk is clean, is free
                    // after a kill.
                    reused = check_slot_reuse(&world, &evictions);
                }
                world.kill();
            } else {
                world.close();
            }
            world.open();
        }
        assert!(evicted > 8, "{evicted} evictions");
        if !fills_weus {
            for again in [reused, check_slot_reuse(&world, &evictions)] {
                assert!(again > 20, "slots were written again {again} times");
            }
            return;
        }
        let (discards, begun) = check_slot_discipline(&world);
        assert!(discards as u64 > 10 && begun > 20, "{discards} discards, {begun} slots begun");
    });
}

#[test]
fn a_stale_duplicate_reads_from_the_origin() {
    each_seed(6, |seed| {
        let world = small(seed, design::chosen());
        // Chunk 3000 shares chunk 0's record.
        world.fill_origin(at(3000), &noise(0, CHUNK));
        assert!(!touch(&world, 0));
        let before = world.origin_reads();
        assert_same(&world.read(at(3000), CHUNK), &noise(0, CHUNK), "the duplicate");
        world.wait_for_insertions();
        assert_eq!(world.origin_reads(), before + 1);
        let slot = world.slot_of(0).expect("cached");
        if !design::shares_content(design::chosen()) {
            assert_eq!(world.status().counts.duplicate_chunks, 0);
            assert!(world.slot_of(3000).is_some_and(|own| own != slot), "each has a record of its own");
            return;
        }
        assert_eq!(world.status().counts.duplicate_chunks, 1);
        assert_eq!(world.slot_of(3000), Some(slot));
        // Until the slot was written anew; a WEU is sealed then.
        let others_least = if design::fills_weus(design::chosen()) { 40 } else { 1 };
        let mut lba = 100;
        while world.slot_of(0) == Some(slot)
            || (100..lba).filter(|&lba| world.slot_of(lba) == Some(slot)).count() < others_least
        {
            touch(&world, lba);
            lba += 1;
        }
        let before = world.origin_reads();
        assert_same(&world.read(at(3000), CHUNK), &noise(0, CHUNK), "the stale duplicate");
        assert_eq!(world.origin_reads(), before + 1, "its record is gone: the origin has it");
        assert_eq!(world.status().counts.corrupt_records, 0, "a stale entry is known by its generation");
        world.wait_for_insertions();
        let cached = if is_bucketed() {
            // Its status also counts addresses of content that may have gone; the metadata slots
            // list only present content.
            world.flush();
            let found = world.run(recover(&*world.flash, None, &Tuning::default())).expect("a sound flash");
            let clean: usize = world.listed(found.state.design()).iter().map(|listed| listed.lbas.len()).sum();
            (found.state.design().dirty_counts().chunks + clean as u64) * CHUNK as u64
        } else {
            world.status().logical_bytes_cached
        };
        // At least six WEUs are sealed, besides those that are open, free or on their way there at
        // this moment. Each has 63 of these chunks, except for one or two whose address has another
        // record now.
        let least = 6 * 62 * CHUNK as u64;
        assert!(cached >= least && cached <= 6 * MIB, "{cached} bytes are cached");
    });
}

#[test]
fn many_stale_duplicates_never_read_as_what_took_their_place() {
    // Few contents at many addresses: evictions leave stale entries everywhere, and their slots are
    // reused.
    each_seed(6, |seed| {
        let mut world = small(seed, design::chosen());
        let content = |lba: u64| if lba.is_multiple_of(3) { 5000 + lba % 40 } else { lba };
        for lba in 0..2048 {
            world.fill_origin(at(lba), &noise(content(lba), CHUNK));
        }
        let mut rng = Rng::new(seed);
        for i in 0..4000 {
            let lba = rng.below(2048);
            assert_same(&world.read(at(lba), CHUNK), &noise(content(lba), CHUNK), "a chunk");
            if i % 32 == 0 {
                world.wait_for_insertions();
            }
        }
        let status = world.status();
        assert!(status.counts.evicted_slots > 10);
        assert_eq!(status.counts.duplicate_chunks > 100, design::shares_content(design::chosen()));
        assert_eq!(status.counts.corrupt_records, 0);
        world.crash();
        world.open();
        for lba in 0..2048 {
            assert_same(&world.read(at(lba), CHUNK), &noise(content(lba), CHUNK), "a chunk after a crash");
        }
        assert_eq!(world.status().counts.corrupt_records, 0);
    });
}

#[test]
fn dirty_and_clean_chunks_lie_in_weus_of_their_own() {
    each_seed(6, |seed| {
        let world = World::new(seed, Setup { flash_bytes: 32 * MIB, ..Setup::default() });
        let mut rng = Rng::new(seed);
        let (mut dirty, mut clean) = (BTreeSet::new(), BTreeSet::new());
        let (mut dirty_lbas, mut clean_lbas) = (Vec::new(), Vec::new());
        for lba in 0..800 {
            // Every other address is left out: no sequential streams.
            let lba = lba * 2;
            if rng.chance(1, 2) {
                world.write(at(lba), &noise(lba, CHUNK));
                dirty_lbas.push(lba);
            } else {
                world.fill_origin(at(lba), &noise(lba, CHUNK));
                world.read(at(lba), CHUNK);
                clean_lbas.push(lba);
            }
            if rng.chance(1, 50) {
                world.flush();
            }
        }
        world.wait_for_insertions();
        dirty.extend(dirty_lbas.iter().map(|&lba| world.slot_of(lba).expect("a dirty chunk is cached")));
        clean.extend(clean_lbas.iter().filter_map(|&lba| world.slot_of(lba)));
        assert!(dirty.len() > 3 && clean.len() > 3);
        assert!(dirty.is_disjoint(&clean), "dirty {dirty:?}, clean {clean:?}");
        assert_eq!(world.status().dirty_bytes, (dirty_lbas.len() * CHUNK) as u64);
    });
}

#[test]
fn a_slot_with_dirty_duplicates_is_destaged_before_it_goes() {
    // A dirty mapping onto a clean WEU's record gates that WEU's eviction.
    each_seed(6, |seed| {
        let mut setup = Setup { flash_bytes: 6 * MIB, ..Setup::default() };
        setup.tuning.prefetch_bytes_max = 0;
        let mut world = World::new(seed, setup);
        for lba in 0..2048 {
            world.fill_origin(at(lba), &noise(lba, CHUNK));
        }
        touch(&world, 0);
        // Dirty at 4000, stored as the clean chunk 0.
        world.write(at(4000), &noise(0, CHUNK));
        assert_eq!(world.slot_of(4000) == world.slot_of(0), design::shares_content(design::chosen()));
        let slot = world.slot_of(0);
        for lba in 100..1800 {
            touch(&world, lba);
            quiet(&world);
        }
        assert_ne!(world.slot_of(0), slot, "the WEU was evicted");
        assert_same(&world.origin.sim.peek_durable(at(4000), CHUNK), &noise(0, CHUNK), "the dirty duplicate's origin");
        assert_same(&world.read(at(4000), CHUNK), &noise(0, CHUNK), "the dirty duplicate");
        world.crash();
        world.open();
        assert_same(&world.read(at(4000), CHUNK), &noise(0, CHUNK), "the dirty duplicate after a crash");
    });
}

#[test]
fn weus_that_flushes_closed_are_evicted_too() {
    // A FLUSH often closes a WEU's last segment with a little room behind it: the next record seals
    // an empty one.
    each_seed(6, |seed| {
        let mut setup = Setup { flash_bytes: 5 * MIB, ..Setup::default() };
        setup.tuning.dirty_low_percent = 10;
        setup.tuning.dirty_max_percent = 40;
        let mut world = World::new(seed, setup);
        let mut rng = Rng::new(seed);
        let mut twin = Twin::new();
        for number in 0..700 {
            let (offset, len) = random_run(&mut rng, 4 * MIB, 80);
            let data = if rng.chance(1, 3) { text(number, len) } else { noise(number, len) };
            world.write(offset, &data);
            twin.write(offset, &data);
            world.flush();
        }
        assert!(world.status().counts.evicted_slots > 15, "{} WEUs evicted", world.status().counts.evicted_slots);
        assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "the volume");
        world.crash();
        world.open();
        assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "the volume after a crash");
    });
}

/// Thousands of addresses that share one record leave the index when other chunks need their
/// places.
///
/// Each must be logged, and the log keeps room for the checkpoint that frees it.
#[test]
fn what_leaves_the_index_at_once_does_not_fill_the_log() {
    const SMALL: usize = 4 << 10;
    const SAME: u64 = 8801;
    const OTHERS: u64 = 8000;
    let at = |lba: u64| lba * SMALL as u64;
    for design in ENGINE_DESIGNS {
        for mode in [WriteMode::Back, WriteMode::Through] {
            let mut setup = Setup { flash_bytes: 32 * MIB, origin_bytes: 256 * MIB, ..Setup::default() };
            setup.schedule = Schedule::Timed;
            setup.options.design = design.id;
            setup.options.chunk_bytes = SMALL as u32;
            setup.options.mode = mode;
            setup.tuning.prefetch_bytes_max = 0;
            let mut world = World::new(1, setup);
            (0..SAME).for_each(|lba| world.fill_origin(at(lba), &noise(77, SMALL)));
            (0..OTHERS).for_each(|other| world.fill_origin(at(SAME + other), &noise(1000 + other, SMALL)));
            // In no order of a stream.
            for number in 0..SAME {
                world.read(at(number * 2731 % SAME), SMALL);
                if number % 64 == 0 {
                    world.wait_for_insertions();
                }
            }
            // A chunk that finds the index full is not stored, and comes again.
            for number in 0..4 * OTHERS {
                if number >= OTHERS && world.status().counts.evicted_slots > 0 {
                    break;
                }
                world.read(at(SAME + number * 2731 % OTHERS), SMALL);
                if number % 16 == 0 {
                    world.wait_for_insertions();
                }
            }
            world.wait_for_insertions();
            let counts = world.status().counts;
            assert!(counts.evicted_slots > 0, "{} in {mode:?}: {counts:?}", design.name);
            // If the log were full for good, none of this would return.
            world.write(at(SAME), &noise(5, SMALL));
            world.flush();
            let conditions = world.status().conditions;
            assert!(!conditions.iter().any(|condition| condition.name == "checkpoint_failing"), "{conditions:?}");
            world.close();
        }
    }
}

/// A chunk whose copy was evicted is written to the origin, which is in no log.
///
/// The log's older content of it does not count after the next restart, though another chunk stores
/// that content again.
#[test]
fn what_an_evicted_chunk_once_held_is_not_taken_for_what_it_holds() {
    for design in ENGINE_DESIGNS {
        each_seed(2, |seed| {
            // Small enough that all of it goes before a checkpoint comes.
            let flash_bytes = if design::fills_weus(design.id) { 6 * MIB } else { MIB };
            // A timer that jumps ahead would commit after each write, and fill the log.
            let mut setup = Setup { flash_bytes, schedule: Schedule::Timed, ..Setup::default() };
            setup.options.design = design.id;
            setup.options.mode = WriteMode::Through;
            setup.tuning.prefetch_bytes_max = 0;
            let mut world = World::new(seed, setup);
            let (old, new) = (noise(1, CHUNK), noise(2, CHUNK));
            world.write(at(0), &old);
            world.flush();
            for lba in (100..1500).take_while(|_| world.slot_of(0).is_some()) {
                world.write(at(lba), &noise(lba, CHUNK));
                world.wait_for_insertions();
            }
            assert!(world.slot_of(0).is_none(), "{}: it is evicted", design.name);
            world.flush();
            assert_eq!(world.status().counts.checkpoints, 0, "{}: the log tells it all", design.name);
            world.crash();
            world.open();
            // A part of it, so that it is not cached, and in no log.
            world.write(at(0), &new[..512]);
            world.flush();
            world.crash();
            world.open();
            world.write(at(1), &old);
            world.wait_for_insertions();
            assert_same(&world.read(at(0), CHUNK), &[&new[..512], &old[512..]].concat(), design.name);
        });
    }
}

/// The flash bounds the cached amount of content that neither repeats nor shrinks, in each design.
#[test]
fn no_more_is_said_to_be_cached_than_fits() {
    for design in ENGINE_DESIGNS {
        let world = small(1, design.id);
        for lba in 0..2048 {
            touch(&world, lba);
        }
        let (cached, room) = (world.status().logical_bytes_cached, world.setup.flash_bytes);
        assert!(cached <= room, "{}: {cached} bytes are said to be cached on a flash of {room}", design.name);
    }
}

/// A full bucket frees the next chunk's victim ahead, so that no write waits for the log.
#[test]
fn room_in_a_bucket_is_made_before_it_is_needed() {
    if !is_bucketed() {
        return;
    }
    each_seed(4, |seed| {
        let mut world = World::new(seed, Setup { flash_bytes: 6 * MIB, ..Setup::default() });
        world.close();
        let gone = Arc::new(Mutex::new((0u64, 0u64)));
        let sink = gone.clone();
        world.setup.tuning.decisions = DecisionLog::to(move |event, answer| match (event, answer) {
            (Decided::Release, _) => sink.lock().0 += 1,
            (Decided::Reuse { .. }, Answer::Count(slots)) => sink.lock().1 += slots,
            _ => {}
        });
        world.open();
        let writes = |first: u64, count: u64| {
            for lba in first..first + count {
                world.write(at(lba), &noise(lba, CHUNK));
                quiet(&world);
            }
        };
        // It fills up, and each bucket has been looked at once.
        writes(0, 1000);
        let (waits_before, (waited_before, _)) = (world.status().counts.slot_waits, *gone.lock());
        writes(1000, 500);
        let (waited, at_once) = *gone.lock();
        let (waited, waits) = (waited - waited_before, world.status().counts.slot_waits - waits_before);
        println!("{at_once} slots went at once, {waited} after a wait, {waits} waits");
        assert!(at_once > 750, "{at_once} slots went at once");
        // Some buckets have to wait to be looked at before that is worth a commit.
        assert!(waits < 60, "{waits} of 500 chunks waited for room");
        for lba in 0..1500 {
            assert_same(&world.read(at(lba), CHUNK), &noise(lba, CHUNK), "a chunk");
        }
    });
}
