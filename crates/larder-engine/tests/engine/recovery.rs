//! The effects of a restart, mapping for mapping, on each kind of mapping and on the replacement.
//! The kinds are whole chunks, duplicates, zeroes and fragments, clean and dirty, trimmed runs, and
//! fingerprints. The tests compare a clean end and a crash, and measure the hits after them.
//!
//! A live cache is compared through the checkpoint that it writes: that is its present state. The
//! log over an older checkpoint must give the same.
//!
//! If a design has its clean mappings in metadata slots on flash, the tests read them there. Such a
//! design drops mappings without a log entry: mappings dropped since the checkpoint may be back.
//! Its order of replacement is in its pages.

use crate::common::*;
use larder_core::{Decider, Fingerprint, Lba, Lookup, Place, SlotId, StreamClass, slots::SlotState};
use larder_device::{IoOp, ZeroFlags, rng::Rng, sim::Schedule};
use larder_engine::{
    Tuning,
    recover::{Recovered, recover, recover_by},
    walk::{Progress, Reader},
};
use larder_format::DesignId;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const CHUNK: usize = 8 << 10;
/// Chunks of the volume that the tests use.
const CHUNKS: u64 = 1200;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

/// The mapping of each chunk, and true for a dirty one.
type Mappings = BTreeMap<u64, (Lookup, bool)>;
/// The place of each content that is known by its fingerprint.
type Contents = BTreeMap<[u8; 16], Place>;

/// The state that a restart must bring back.
#[derive(Debug, PartialEq)]
struct Known {
    mappings: Mappings,
    dirty: BTreeSet<u64>,
    /// Trimmed chunks, and true for those that stay allocated.
    trimmed: BTreeMap<u64, bool>,
    fingerprints: Contents,
    /// Sealed slots with their generations.
    slots: BTreeSet<(u32, u32, bool)>,
}

impl Known {
    /// Returns the places of all mapped chunks.
    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.mappings.values().filter_map(|(lookup, _)| match lookup {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(*place),
            Lookup::Zero | Lookup::Miss => None,
        })
    }

    /// Drops the content whose chunk was overwritten before its mapping came into the log.
    ///
    /// Only the live cache knows it, and nothing names its record.
    fn forget_unmapped_content(&mut self) {
        let mapped: Vec<Place> = self.places().collect();
        self.fingerprints.retain(|_, place| mapped.contains(place));
    }

    /// Drops the slots of such content: if a slot is one record, it is free after a restart.
    fn forget_unmapped_slots(&mut self, replayed: &Known) {
        let mapped: BTreeSet<u32> = self.places().map(|place| place.slot.0).collect();
        self.slots.retain(|slot| replayed.slots.contains(slot) || mapped.contains(&slot.0));
    }
}

/// Returns true if clean mappings are in metadata slots on flash.
fn is_bucketed() -> bool {
    design::is_bucketed(design::chosen())
}

/// Returns the clean mappings and fingerprints in metadata slots.
fn in_metadata_slots(world: &World, design: &Decider) -> (Mappings, Contents) {
    let (mut mappings, mut contents) = (Mappings::new(), Contents::new());
    for Listed { place, fingerprint, lbas } in world.listed(design) {
        contents.insert(fingerprint.0, place);
        mappings.extend(lbas.iter().map(|lba| (lba.0, (Lookup::Chunk { place, duplicate: false }, false))));
    }
    (mappings, contents)
}

/// Returns the state that an opening would find on the unchanged flash of `recovered`.
fn known(world: &World, recovered: &Recovered) -> Known {
    let design = recovered.state.design();
    let mut mappings: BTreeMap<_, _> = (0..design.export_pieces())
        .flat_map(|piece| design.export_mappings(piece))
        .map(|mapping| (mapping.lba.0, (mapping.lookup, mapping.dirty)))
        .collect();
    let dirty: BTreeSet<u64> = design.dirty_from(Lba(0), usize::MAX).iter().map(|(lba, _)| lba.0).collect();
    let dirty_mappings = mappings.iter().filter(|(_, (_, dirty))| *dirty).map(|(lba, _)| *lba);
    assert_eq!(dirty, dirty_mappings.collect(), "the dirty list is the mappings' own");
    assert_eq!(design.dirty_counts().chunks, dirty.len() as u64);
    let in_slots: BTreeSet<u64> =
        slots_of(design).into_iter().flat_map(|slot| design.dirty_in(slot)).map(|lba| lba.0).collect();
    let with_places = mappings.iter().filter(|(_, (lookup, dirty))| *dirty && *lookup != Lookup::Zero);
    assert_eq!(in_slots, with_places.map(|(lba, _)| *lba).collect(), "an eviction finds what is dirty");
    let trimmed = design
        .export_runs()
        .iter()
        .flat_map(|run| (run.first.0..run.first.0 + run.count).map(|lba| (lba, run.no_hole)))
        .collect();
    let fingerprints = design.export_fingerprints().into_iter().map(|(Fingerprint(bytes), place)| (bytes, place));
    let mut fingerprints: BTreeMap<_, _> = fingerprints.collect();
    if is_bucketed() {
        assert!(
            mappings.values().all(|(_, dirty)| *dirty) && fingerprints.is_empty(),
            "what is clean is on flash alone"
        );
        let (clean, contents) = in_metadata_slots(world, design);
        mappings.extend(clean);
        fingerprints = contents;
    }
    let slots = design.export_slots().into_iter().filter(|(_, _, state, _)| *state != SlotState::Free);
    Known {
        dirty,
        trimmed,
        fingerprints,
        slots: slots.map(|(slot, generation, _, class)| (slot.0, generation, class == StreamClass::Dirty)).collect(),
        mappings,
    }
}

/// Returns the slots that a design may evict.
fn slots_of(design: &Decider) -> Vec<SlotId> {
    let listed = design.export_slots().into_iter().map(|(slot, ..)| slot);
    listed.chain(design.stored_runs().into_iter().map(|(slot, _)| slot)).collect()
}

/// Returns the design's own pages, which a checkpoint copies.
fn pages(recovered: &Recovered) -> Vec<Vec<u8>> {
    let design = recovered.state.design();
    (0..design.page_count()).map(|page| design.export_page(page)).collect()
}

/// Compares, and tells the first few differences.
#[track_caller]
fn assert_known(found: &Known, expected: &Known, what: &str) {
    fn differences<K: Ord + Copy + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
        (name, found, expected): (&str, &BTreeMap<K, V>, &BTreeMap<K, V>),
        told: &mut Vec<String>,
    ) {
        let keys: BTreeSet<K> = found.keys().chain(expected.keys()).copied().collect();
        for key in keys.into_iter().filter(|key| found.get(key) != expected.get(key)) {
            told.push(format!("{name} {key:?} was {:?} and is {:?}", expected.get(&key), found.get(&key)));
        }
    }
    let mut told = Vec::new();
    differences(("chunk", &found.mappings, &expected.mappings), &mut told);
    differences(("trimmed chunk", &found.trimmed, &expected.trimmed), &mut told);
    differences(("fingerprint", &found.fingerprints, &expected.fingerprints), &mut told);
    if found.slots != expected.slots {
        let (lost, gained) = (expected.slots.difference(&found.slots), found.slots.difference(&expected.slots));
        told.push(format!("slots lost {:?}, slots gained {:?}", lost.collect::<Vec<_>>(), gained.collect::<Vec<_>>()));
    }
    let count = told.len();
    told.truncate(6);
    assert!(told.is_empty(), "{what}: {count} differences:\n{}", told.join("\n"));
    assert!(found == expected, "{what}");
}

/// Returns the sealed slots, least recent first.
fn order(recovered: &Recovered) -> Vec<u32> {
    let slots = recovered.state.design().export_slots();
    slots.iter().filter(|(_, _, state, _)| *state == SlotState::Sealed).map(|(slot, ..)| slot.0).collect()
}

/// Recovers the present flash, as an opening would.
fn found(world: &World) -> Recovered {
    world.run(recover(&*world.flash, None, &Tuning::default())).unwrap_or_else(|error| panic!("recover: {error}"))
}

fn setup() -> Setup {
    let mut setup = Setup { flash_bytes: 32 * MIB, schedule: Schedule::Timed, ..Setup::default() };
    setup.tuning.prefetch_bytes_max = 0;
    setup.tuning.commit_interval_ms = 50;
    setup
}

/// Performs `count` random operations of all kinds.
fn use_it(world: &World, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let lba = rng.below(CHUNKS);
        // Few contents, so that many chunks are duplicates, of clean and of dirty ones.
        let content = if rng.chance(1, 3) { rng.below(40) } else { 1000 + rng.below(1 << 30) };
        match rng.below(12) {
            0..3 => {
                world.read(at(lba), CHUNK);
            }
            3..6 => world.write(at(lba), &noise(content, CHUNK)),
            6 => world.write(at(lba), &vec![0; CHUNK]),
            7 => {
                // In most cases of a chunk that is not cached.
                let sector = rng.below(12);
                world.write(at(lba) + sector * 512, &noise(content, 1024));
            }
            8 => {
                let flags = ZeroFlags { no_hole: rng.chance(1, 2), ..ZeroFlags::default() };
                world.zero(at(lba), at(1 + rng.below(12).min(CHUNKS - lba - 1)), flags);
            }
            9 => world.flush(),
            10 if rng.chance(1, 12) => {
                world.destage_all();
            }
            _ if rng.chance(1, 20) => {
                world.run(world.cache().checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}"));
            }
            _ => {}
        }
    }
    world.flush();
    world.wait_for_insertions();
    // Clean mappings become durable in their own time.
    world.runtime.run_for(Duration::from_secs(2));
    world.runtime.run_until_idle();
}

/// Returns the kinds of mappings in this state.
fn kinds(known: &Known) -> BTreeSet<&'static str> {
    let of_mapping = |(lookup, dirty): &(Lookup, bool)| match (lookup, dirty) {
        (Lookup::Chunk { duplicate: false, .. }, true) => "unique, dirty",
        (Lookup::Chunk { duplicate: false, .. }, false) => "unique, clean",
        (Lookup::Chunk { duplicate: true, .. }, true) => "duplicate, dirty",
        (Lookup::Chunk { duplicate: true, .. }, false) => "duplicate, clean",
        (Lookup::Zero, true) => "zero, dirty",
        (Lookup::Zero, false) => "zero, clean",
        (Lookup::Fragment { .. }, _) => "fragment",
        (Lookup::Miss, _) => "nothing",
    };
    let trimmed = known.trimmed.values().map(|no_hole| if *no_hole { "trimmed, kept allocated" } else { "trimmed" });
    known.mappings.values().map(of_mapping).chain(trimmed).collect()
}

/// Returns the kinds of mappings in a cache of this design.
fn kinds_of(design: DesignId) -> BTreeSet<&'static str> {
    let mut kinds =
        BTreeSet::from(["unique, dirty", "unique, clean", "fragment", "trimmed", "trimmed, kept allocated"]);
    if design::fills_weus(design) {
        // Elsewhere zeroes are stored as any other content.
        kinds.extend(["zero, dirty", "zero, clean"]);
    }
    // Chunks that share a record are told apart if a mapping says so.
    if design::shares_content(design) && !is_bucketed() {
        kinds.extend(["duplicate, dirty", "duplicate, clean"]);
    }
    kinds
}

#[test]
fn the_log_brings_back_what_a_live_cache_knows() {
    each_seed(12, |seed| {
        let mut world = World::new(seed, setup());
        world.fill_with_repeats(CHUNKS, CHUNK);
        let mut rng = Rng::new(seed);
        let mut met = BTreeSet::new();
        for life in 0..3 {
            use_it(&world, &mut rng, 500);
            let recovered = found(&world);
            let (entries, mut replayed) = (recovered.report.log_entries, known(&world, &recovered));
            world.run(world.cache().checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}"));
            let recovered = found(&world);
            assert!(entries > recovered.report.log_entries, "something was replayed");
            let mut live = known(&world, &recovered);
            met.extend(kinds(&live));
            let mapped: BTreeSet<u32> = replayed.places().map(|place| place.slot.0).collect();
            for (fingerprint, place) in &replayed.fingerprints {
                // The content of a slot of one chunk is known until the slot is freed, though the
                // live cache dropped it.
                let is_let_go = design::is_slotted(design::chosen()) && !mapped.contains(&place.slot.0);
                let live = live.fingerprints.get(fingerprint);
                assert!(live == Some(place) || is_let_go, "content that the live cache knows at {live:?}: {place:?}");
            }
            replayed.forget_unmapped_content();
            live.forget_unmapped_content();
            if design::is_slotted(design::chosen()) || !design::logs_each_mapping(design::chosen()) {
                live.forget_unmapped_slots(&replayed);
            }
            assert_known(&replayed, &live, &format!("life {life}"));
            // The next life begins with the state after a crash.
            if rng.chance(1, 2) {
                world.crash()
            } else {
                world.kill()
            }
            world.open();
        }
        assert_eq!(met, kinds_of(design::chosen()), "there was some of everything, and of nothing else");
    });
}

#[test]
fn a_clean_end_changes_nothing_and_neither_does_a_second_one() {
    each_seed(6, |seed| {
        let mut world = World::new(seed, setup());
        world.fill_with_repeats(CHUNKS, CHUNK);
        let mut rng = Rng::new(seed ^ 77);
        use_it(&world, &mut rng, 900);
        if !design::logs_each_mapping(design::chosen()) {
            // An ordinary checkpoint lacks mappings that a clean end has.
            world.close();
            world.open();
        }
        world.run(world.cache().checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}"));
        let live = known(&world, &found(&world));
        if !is_bucketed() {
            let superblock = world.superblock();
            let pointer = superblock.checkpoint.as_ref().expect("a checkpoint");
            let reader = Reader::alone(&*world.flash);
            let listed = world.run(reader.checkpoint_header(&superblock, pointer)).expect("its header");
            let listed = listed.counts.fingerprints;
            let known = live.fingerprints.len() as u64;
            // Its history has others.
            let has_more = design::chosen() == DesignId::Larder && known > listed;
            assert!(has_more || known == listed, "all content that the checkpoint names is known");
            let mapped: Vec<Place> = live.places().collect();
            let unmapped = live.fingerprints.values().filter(|place| !mapped.contains(place)).count();
            assert_eq!(unmapped > 0, design::shares_content(design::chosen()), "content that no chunk has any more");
        }
        world.close();
        let first = found(&world);
        assert!(first.report.clean_shutdown && first.report.log_entries == 0, "{:?}", first.report);
        assert_known(&known(&world, &first), &live, "a clean end");
        let mut fingerprints = first.state.design().export_fingerprints();
        world.open();
        world.close();
        let second = found(&world);
        assert_known(&known(&world, &second), &live, "a second one");
        assert_eq!(order(&second), order(&first), "the order of replacement");
        assert_eq!(pages(&second), pages(&first), "the order of replacement, of a design with pages");
        let keeps_history =
            design::is_slotted(design::chosen()) || matches!(design::chosen(), DesignId::CdArc | DesignId::Larder);
        assert_eq!(order(&first).is_empty(), is_bucketed());
        assert_eq!(pages(&first).is_empty(), !is_bucketed());
        let mut again = second.state.design().export_fingerprints();
        if design::chosen() == DesignId::Larder {
            // Their order has no meaning there.
            for all in [&mut fingerprints, &mut again] {
                all.sort_by_key(|(fingerprint, _)| fingerprint.0);
            }
        }
        assert_eq!(again, fingerprints, "the fingerprints' order");
        let (mut first, mut second) = (first.state.into_design(), second.state.into_design());
        assert_eq!(second.whole_history(), first.whole_history(), "what is remembered");
        assert_eq!(first.whole_history().is_empty(), !keeps_history);
    });
}

/// Overwritten content is found by its fingerprint until it is evicted, before an end and after it.
#[test]
fn content_that_no_chunk_has_is_found_after_an_end() {
    if !design::shares_content(design::chosen()) {
        return println!("skipped: {} shares no content", name());
    }
    each_seed(3, |seed| {
        for is_clean in [true, false] {
            let mut world = World::new(seed, setup());
            const COUNT: u64 = 200;
            (0..COUNT).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
            world.flush();
            (0..COUNT).for_each(|lba| world.write(at(lba), &noise(1000 + lba, CHUNK)));
            world.flush();
            match is_clean {
                true => world.close(),
                false => world.crash(),
            }
            world.open();
            let before = world.status().counts.duplicate_chunks;
            (0..COUNT).for_each(|lba| world.write(at(400 + lba), &noise(lba, CHUNK)));
            let found = world.status().counts.duplicate_chunks - before;
            assert_eq!(found, COUNT, "{found} of {COUNT} contents were found; a clean end: {is_clean}");
            world.flush();
            for lba in 0..COUNT {
                assert_same(&world.read(at(400 + lba), CHUNK), &noise(lba, CHUNK), "a duplicate");
                assert_same(&world.read(at(lba), CHUNK), &noise(1000 + lba, CHUNK), "what replaced it");
            }
        }
    });
}

/// Returns the filled slots, each with one of its chunks.
fn fill_slots(world: &World, slots: u64) -> Vec<(u32, u64)> {
    let per_slot = (512 << 10) / CHUNK as u64;
    for lba in 0..slots * per_slot {
        world.write(at(2 * lba), &noise(1 << 41 | lba, CHUNK));
    }
    world.flush();
    let mut in_slots = BTreeMap::new();
    for lba in 0..slots * per_slot {
        in_slots.entry(world.slot_of(2 * lba).expect("it is cached").0).or_insert(2 * lba);
    }
    in_slots.into_iter().collect()
}

#[test]
fn slots_are_replaced_in_the_order_of_the_last_checkpoint() {
    if is_bucketed() {
        return println!("skipped: the order of slots ({} has one in each bucket)", name());
    }
    if design::chosen() == DesignId::Larder {
        return println!("skipped: the order of slots ({} compares the contents of a few)", name());
    }
    each_seed(6, |seed| {
        for is_clean in [true, false] {
            let mut world = World::new(seed, setup());
            let mut slots = fill_slots(&world, 12);
            // The last one is open, and has no place in the order yet.
            let last = slots.iter().map(|(_, lba)| *lba).max();
            slots.retain(|(_, lba)| Some(*lba) != last);
            let mut rng = Rng::new(seed ^ u64::from(is_clean));
            let mut touch_all = |world: &World| {
                rng.shuffle(&mut slots);
                slots.iter().for_each(|(_, lba)| {
                    world.read(at(*lba), CHUNK);
                });
                slots.iter().map(|(slot, _)| *slot).collect::<Vec<_>>()
            };
            let mut touched = touch_all(&world);
            if is_clean {
                world.close();
            } else {
                world.run(world.cache().checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}"));
                // Touches leave no trace in the log, and neither do duplicates.
                touch_all(&world);
                world.write(at(8100), &noise(1 << 41 | 5, CHUNK));
                world.flush();
                world.crash();
            }
            let order = order(&found(&world));
            touched.retain(|slot| order.contains(slot));
            assert!(touched.len() >= 11, "nearly all slots are sealed: {touched:?} of {order:?}");
            let among: Vec<u32> = order.iter().copied().filter(|slot| touched.contains(slot)).collect();
            assert_eq!(among, touched, "clean end: {is_clean}");
        }
    });
}

/// Reads chunks, the lower ones far more often, and returns the share of hits.
fn hit_ratio(world: &World, seed: u64, reads: usize) -> f64 {
    let mut rng = Rng::new(seed);
    let before = world.origin_reads();
    for _ in 0..reads {
        // In no sequence that the cache would take for a stream.
        let rank = (rng.unit() * rng.unit() * rng.unit() * READ_CHUNKS as f64) as u64;
        world.read(at(rank * 2), CHUNK);
    }
    world.wait_for_insertions();
    1.0 - (world.origin_reads() - before) as f64 / reads as f64
}

const READ_CHUNKS: u64 = 12_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    None,
    Clean,
    /// Just after a checkpoint, which has the order of replacement.
    CrashWithOrder,
    /// With no checkpoint at all.
    Crash,
}

/// Returns the allowed difference of the hit ratios.
///
/// The cached chunks are the same in any case. Without a checkpoint, the log says in which order
/// slots were written, and no more. A WEU is used as long as any of its chunks is, so that its
/// order is much the same. A chunk that is often read may have been written first, and goes first
/// then, once.
fn ratio_difference_max(end: End) -> f64 {
    match end {
        End::Crash if design::is_slotted(design::chosen()) => 0.015,
        _ => 0.01,
    }
}

#[test]
fn the_hit_ratio_is_what_it_was() {
    each_seed(2, |seed| {
        // Chunks that are cached after the end, and hits.
        let run = |end: End| {
            // A part of the read chunks fits.
            let mut setup = setup();
            // If content is shared, checkpoints have room for many addresses, at the cost of data.
            let shares_slots = design::is_slotted(design::chosen()) && design::shares_content(design::chosen());
            setup.flash_bytes = if shares_slots { 43 } else { 40 } * MIB;
            setup.origin_bytes = at(2 * READ_CHUNKS);
            let mut world = World::new(seed, setup);
            for lba in 0..READ_CHUNKS {
                world.fill_origin(at(2 * lba), &noise(1 << 42 | lba, CHUNK));
            }
            hit_ratio(&world, seed, 12_000);
            world.runtime.run_for(Duration::from_secs(1));
            world.runtime.run_until_idle();
            match end {
                End::None => {}
                End::Clean => world.close(),
                End::CrashWithOrder => {
                    world.run(world.cache().checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}"));
                    world.crash();
                }
                End::Crash => {
                    // A cache with a small log makes some by itself.
                    assert!(is_bucketed() || world.status().counts.checkpoints == 0, "no order is kept");
                    world.crash();
                }
            }
            if end != End::None {
                world.open();
            }
            let cached = world.status().logical_bytes_cached;
            let layout = world.layout();
            let buckets = layout.slot_count.div_ceil(layout.bucket_slots.max(1));
            (cached, hit_ratio(&world, seed + 1000, 5000), u64::from(buckets))
        };
        let (cached, without_an_end, buckets) = run(End::None);
        assert!((0.3..0.9).contains(&without_an_end), "a workload that hits and misses: {without_an_end}");
        for end in [End::Clean, End::CrashWithOrder, End::Crash] {
            let (cached_after, after, _) = run(end);
            println!("{}, seed {seed}, {end:?}: {without_an_end:.4} without, {after:.4} with", name());
            // Each bucket frees its next victim ahead of need, and after a crash it is gone.
            let freed_ahead = if is_bucketed() && end != End::Clean { buckets * CHUNK as u64 } else { 0 };
            let expected = cached.saturating_sub(freed_ahead)..=cached;
            assert!(expected.contains(&cached_after), "{end:?}: {cached_after} bytes are cached, not {expected:?}");
            let difference = (after - without_an_end).abs();
            let most = ratio_difference_max(end);
            assert!(difference <= most, "{end:?}: {without_an_end:.4} without, {after:.4} with");
        }
    });
}

fn name() -> &'static str {
    design::name(design::chosen())
}

#[test]
fn what_was_flushed_comes_back_and_what_follows_is_old_or_new() {
    each_seed(12, |seed| {
        let mut world = World::new(seed, Setup { schedule: Schedule::Chaos, ..setup() });
        world.fill_with_repeats(CHUNKS, CHUNK);
        let mut rng = Rng::new(seed ^ 99);
        use_it(&world, &mut rng, 300);
        let flushed = known(&world, &found(&world));
        let mut changed = BTreeSet::new();
        for number in 0..rng.below(40) {
            let lba = rng.below(CHUNKS);
            changed.insert(lba);
            world.write(at(lba), &noise(1 << 43 | number, CHUNK));
        }
        world.crash();
        let recovered = known(&world, &found(&world));
        for lba in (0..CHUNKS).filter(|lba| !changed.contains(lba)) {
            let (before, after) = (flushed.mappings.get(&lba), recovered.mappings.get(&lba));
            let is_dirty = before.is_some_and(|(_, dirty)| *dirty);
            assert!(!is_dirty || before == after, "chunk {lba} was {before:?} and is {after:?}");
            assert_eq!(flushed.trimmed.get(&lba), recovered.trimmed.get(&lba), "chunk {lba}");
        }
    });
}

#[test]
fn recovery_reads_what_it_needs_once_with_several_reads_in_flight() {
    let mut world = World::new(1, Setup { flash_bytes: 2 << 30, origin_bytes: 8 << 30, ..setup() });
    // A checkpoint of some pieces: trimmed chunks with something between them.
    for lba in 0..20_000 {
        world.write(at(4 * lba), &vec![0; CHUNK]);
    }
    let layout = world.layout();
    // Metadata slots of buckets, if there are any, lie between the log and the slots of chunks.
    let log_end = if layout.region_offset > 0 { layout.region_offset } else { layout.slots_offset };
    for is_clean in [false, true] {
        if is_clean {
            world.open();
            world.close();
        } else {
            world.run(world.cache().checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}"));
            world.write_fua(at(1), &noise(1, CHUNK));
            world.crash();
        }
        world.flash.take_events();
        let progress = Progress::default();
        let reader = Reader { flash: &*world.flash, workers: Some(&*world.runtime), progress: Some(&progress) };
        let report = world.run(recover_by(reader, None, &Tuning::default())).map(|found| found.report);
        let report = report.unwrap_or_else(|error| panic!("recover: {error}"));
        let (mut in_flight, mut in_flight_max, mut read, mut log_read, mut slots_read) = (0, 0, 0, 0, 0);
        for event in world.flash.take_events() {
            assert_eq!(event.op, IoOp::Read, "recovery writes nothing");
            if event.over {
                in_flight -= 1;
                continue;
            }
            in_flight += 1;
            in_flight_max = in_flight_max.max(in_flight);
            read += event.len;
            if (layout.log_offset..log_end).contains(&event.offset) {
                log_read += event.len;
            }
            if event.offset >= log_end {
                slots_read += event.len;
            }
        }
        let superblocks = 2 * 4096;
        assert_eq!(read, progress.bytes_read() + superblocks);
        assert_eq!(progress.bytes_to_read(), progress.bytes_read(), "nothing is left");
        assert_eq!(read - log_read - slots_read, report.checkpoint_bytes + superblocks, "the checkpoint is read once");
        if is_clean {
            // The history of such a design names records, and here is one: a header and a table.
            let recalled = if layout.short_checkpoints { 2 * 4096 } else { 0 };
            assert!(slots_read <= recalled, "nobody asks whether the log went further: {slots_read}");
            assert!(log_read <= MIB + 4096, "{log_read} bytes of a log behind which there is nothing");
        } else {
            assert!(report.log_frames > 0, "{report:?}");
            // An opening reads the starts of slots, and the rest of those that the log names: a
            // lost frame's name may be there. Slots of one chunk name no frame.
            let read_of_slots = match design::chosen() {
                of if design::fills_weus(of) => 1..=4096 * (u64::from(layout.slot_count) + 64),
                of if design::is_bucketed(of) => 1..=layout.slots_offset - log_end,
                _ => 0..=0,
            };
            assert!(read_of_slots.contains(&slots_read), "{slots_read} bytes of slots");
            // All of it once, because lost frames may be anywhere.
            assert!(
                layout.log_bytes > 12 * MIB && log_read <= layout.log_bytes + MIB,
                "{log_read} of {} bytes",
                layout.log_bytes
            );
            assert!((2..=8).contains(&in_flight_max), "{in_flight_max} reads in flight");
        }
    }
}
