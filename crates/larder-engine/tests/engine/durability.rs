//! The survivors: flushed and FUA writes after any crash, the cache's warmth after every end. Also
//! the refusals, repairs and marks of an opening.

use crate::common::*;
use larder_device::{BlockDevice, IoErrorKind, IoOp, faulty::Fault, rng::Rng, sim::SimDevice};
use larder_engine::{Cache, EngineError, Status, WriteMode};
use larder_format::{Superblock, layout::SUPERBLOCK_OFFSETS, superblock::SUPERBLOCK_BYTES};
use std::{cell::Cell, time::Duration};

const CHUNK: usize = 8 << 10;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

#[test]
fn flushed_writes_survive_any_crash_and_others_are_old_or_new() {
    each_seed(60, |seed| {
        let mut setup = Setup { flash_bytes: 6 * MIB, ..Setup::default() };
        setup.options.mode = [WriteMode::Back, WriteMode::Back, WriteMode::Through][(seed % 3) as usize];
        setup.tuning.dirty_low_percent = 20;
        let mut world = World::new(seed, setup);
        let mut rng = Rng::new(seed);
        let mut flushed = Twin::new();
        let volume = 2 * MIB;
        for life in 0..3_u64 {
            for number in 0..40 {
                let (offset, len) = random_run(&mut rng, volume, 40);
                let data = noise(life * 1000 + number, len);
                world.write(offset, &data);
                flushed.write(offset, &data);
            }
            world.flush();
            // Not flushed: each sector keeps its flushed value or takes one of these.
            let mut later: Vec<(u64, Vec<u8>)> = Vec::new();
            for number in 40..40 + rng.below(20) {
                let (offset, len) = random_run(&mut rng, volume, 40);
                let data = noise(life * 1000 + number, len);
                world.write(offset, &data);
                later.push((offset, data));
            }
            if rng.chance(1, 2) {
                world.crash()
            } else {
                world.kill()
            }
            world.open();
            let found = world.read(0, volume as usize);
            for (i, sector) in found.chunks(SECTOR).enumerate() {
                let offset = (i * SECTOR) as u64;
                let new = later.iter().any(|(start, data)| {
                    offset >= *start && offset < start + data.len() as u64 && {
                        let from = (offset - start) as usize;
                        data[from..from + SECTOR] == *sector
                    }
                });
                assert!(new || flushed.bytes(offset, SECTOR) == sector, "sector {i} is neither old nor new");
            }
            // The value of this read stays.
            flushed.write(0, &found);
            world.crash();
            world.open();
            assert_same(&world.read(0, volume as usize), &found, "what was read after the crash, after another");
        }
    });
}

#[test]
fn a_fua_write_survives_a_crash_without_a_flush() {
    each_seed(40, |seed| {
        for mode in [WriteMode::Back, WriteMode::Through, WriteMode::Around] {
            let mut setup = Setup::default();
            setup.options.mode = mode;
            let mut world = World::new(seed, setup);
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            for number in 0..10 {
                let (offset, len) = random_run(&mut rng, MIB, 40);
                world.write_fua(offset, &noise(number, len));
                twin.write(offset, &noise(number, len));
                // A duplicate's FUA depends on the record that it shares.
                world.write_fua(at(1000 + number), &noise(7, CHUNK));
            }
            world.crash();
            world.open();
            assert_same(&world.read(0, 1 << 20), &twin.bytes(0, 1 << 20), "FUA writes");
            for number in 0..10 {
                assert_same(&world.read(at(1000 + number), CHUNK), &noise(7, CHUNK), "a FUA duplicate");
            }
        }
    });
}

/// CacheDedup's commit of each dirty block (section 3.3): durable writes need no request for it.
#[test]
fn with_durable_writes_each_one_survives_a_crash_by_itself() {
    each_seed(40, |seed| {
        for mode in [WriteMode::Back, WriteMode::Through, WriteMode::Around] {
            let mut setup = Setup::default();
            setup.options.mode = mode;
            setup.tuning.durable_writes = true;
            let mut world = World::new(seed, setup);
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            for number in 0..20 {
                let (offset, len) = random_run(&mut rng, MIB, 40);
                if rng.chance(1, 4) {
                    world.trim(offset, len as u64);
                    twin.write(offset, &vec![0; len]);
                } else {
                    // Some of them with the contents of others: a duplicate depends on the record
                    // that it shares.
                    let data = noise(number % 7, len);
                    world.write(offset, &data);
                    twin.write(offset, &data);
                }
                if rng.chance(1, 6) {
                    world.crash();
                    world.open();
                }
            }
            world.crash();
            world.open();
            assert_same(&world.read(0, 1 << 20), &twin.bytes(0, 1 << 20), "writes and trims that were over");
        }
    });
}

/// Makes 600 chunks: clean ones from reads, their duplicates, zeroes, dirty ones, and a fragment.
///
/// Returns their content.
fn warm_up(world: &World) -> Vec<(u64, Vec<u8>)> {
    let mut content = Vec::new();
    for i in 0..200 {
        // Every other address, so that nothing is a stream.
        for (lba, number) in [(2 * i, i), (2000 + 2 * i, i), (4000 + 2 * i, 10_000 + i)] {
            let data = if i % 20 == 7 { vec![0; CHUNK] } else { noise(number, CHUNK) };
            if lba < 4000 {
                world.fill_origin(at(lba), &data);
                assert_same(&world.read(at(lba), CHUNK), &data, "a miss");
            } else {
                world.write(at(lba), &data);
            }
            content.push((lba, data));
        }
        if i % 8 == 0 {
            world.wait_for_insertions();
        }
    }
    world.wait_for_insertions();
    content
}

fn without_prefetch() -> Setup {
    let mut setup = Setup { flash_bytes: 32 * MIB, ..Setup::default() };
    setup.tuning.prefetch_bytes_max = 0;
    setup.tuning.commit_interval_ms = 50;
    setup
}

/// Reads everything, and returns the number of chunks that came from the origin.
fn misses(world: &World, content: &[(u64, Vec<u8>)]) -> u64 {
    let before = world.origin_reads();
    for (lba, data) in content {
        assert_same(&world.read(at(*lba), CHUNK), data, "a chunk");
    }
    world.origin_reads() - before
}

/// Writes known content of clean and dirty chunks to others, and returns the number of duplicates.
fn known_again(world: &World) -> u64 {
    let before = world.status().counts.duplicate_chunks;
    for (lba, number) in [(7000, 3), (7001, 10_003)] {
        world.write(at(lba), &noise(number, CHUNK));
        assert_same(&world.read(at(lba), CHUNK), &noise(number, CHUNK), "the same content again");
    }
    world.status().counts.duplicate_chunks - before
}

/// Returns the expected number: it depends on the design's sharing of equal content.
fn known_again_wanted() -> u64 {
    if design::shares_content(design::chosen()) { 2 } else { 0 }
}

fn cached(status: &Status) -> (u64, u64, u64) {
    (status.logical_bytes_cached, status.zero_bytes_cached, status.dirty_bytes)
}

#[test]
fn a_clean_end_restarts_as_warm_as_it_was() {
    each_seed(8, |seed| {
        let mut world = World::new(seed, without_prefetch());
        let content = warm_up(&world);
        assert_eq!(misses(&world, &content), 0);
        let before = world.status();
        world.close();
        world.open();
        let after = world.status();
        assert!(after.warm_restart && after.recovery.clean_shutdown);
        assert_eq!(cached(&after), cached(&before));
        assert_eq!(after.fp_index_entries, before.fp_index_entries);
        assert_eq!(misses(&world, &content), 0, "everything hits, duplicates too");
        assert_eq!(world.status().read_hit_ratio, 1.0);
        // Content that was known is known.
        assert_eq!(known_again(&world), known_again_wanted());
        // The slots' order of use survives, too, and a second round changes nothing.
        world.close();
        world.open();
        assert_eq!(misses(&world, &content), 0);
    });
}

#[test]
fn a_crash_restarts_warm() {
    each_seed(8, |seed| {
        let mut world = World::new(seed, without_prefetch());
        let content = warm_up(&world);
        let before = world.status();
        world.runtime.run_for(Duration::from_millis(500));
        world.flush();
        if seed % 2 == 0 {
            world.crash()
        } else {
            world.kill()
        }
        world.open();
        let after = world.status();
        assert!(after.warm_restart && !after.recovery.clean_shutdown);
        assert_eq!(after.dirty_bytes, before.dirty_bytes, "all that was dirty is");
        // Only data in the open WEU of clean data may be forgotten.
        let open_weu = (512 << 10) / CHUNK as u64;
        let missed = misses(&world, &content);
        assert!(missed <= 2 * open_weu, "{missed} of {} chunks were forgotten", content.len());
        // Forgotten chunks are inserted again, and some are duplicates.
        world.wait_for_insertions();
        // Content that was known is known, whether clean or dirty.
        assert_eq!(known_again(&world), known_again_wanted());
    });
}

#[test]
fn a_frame_of_the_log_that_is_not_where_the_flash_said_is_written_again() {
    each_seed(8, |seed| {
        let mut world = World::new(seed, Setup { flash_bytes: 8 * MIB, ..Setup::default() });
        world.write(0, &noise(1, CHUNK));
        world.flush();
        // A trim needs no record: the next write of the flash is the frame with the trim, the last
        // one before the crash.
        world.trim(0, CHUNK as u64);
        match seed % 2 {
            0 => world.flash.sim.lose_next_write(),
            _ => world.flash.sim.misdirect_next_write(7 * MIB + 64 * 1024),
        }
        world.flush();
        assert_eq!(world.status().counts.flash_write_errors, 1);
        world.crash();
        world.open();
        assert_same(&world.read(0, CHUNK), &[0; CHUNK], "flushed");
    });
}

#[test]
fn a_mapping_that_an_opening_cannot_read_is_forgotten_for_good() {
    const CHUNKS: u64 = 64;
    let (forgotten, is_told_by_tables) = (Cell::new(0), Cell::new(false));
    each_seed(12, |seed| {
        let mut setup = without_prefetch();
        setup.options.mode = WriteMode::Through;
        let mut world = World::new(seed, setup);
        (0..CHUNKS).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
        world.wait_for_insertions();
        let mapped = world.status().logical_bytes_cached;
        world.close();
        let layout = world.layout();
        is_told_by_tables.set(layout.short_checkpoints);
        let slots = layout.slots_offset..layout.end();
        let fault = Fault { op: Some(IoOp::Read), range: Some(slots), kind: IoErrorKind::Io, times: 1 + seed % 3 };
        world.flash.sim.plan().add(fault);
        world.open();
        world.flash.sim.plan().clear();
        forgotten.set(forgotten.get() + mapped - world.status().logical_bytes_cached);
        let lba = seed * 5 % CHUNKS;
        world.write(at(lba), &noise(1000 + lba, CHUNK));
        world.kill();
        world.open();
        for other in 0..CHUNKS {
            let expected = noise(if other == lba { 1000 + lba } else { other }, CHUNK);
            assert_same(&world.read(at(other), CHUNK), &expected, "the origin's");
        }
    });
    assert!(forgotten.get() > 0 || !is_told_by_tables.get() || asked_seed().is_some());
}

#[test]
fn a_crash_forgets_no_clean_mapping_older_than_the_commit_interval() {
    each_seed(8, |seed| {
        let mut world = World::new(seed, without_prefetch());
        let content = warm_up(&world);
        // Many intervals pass.
        for _ in 0..10 {
            world.runtime.run_for(Duration::from_millis(200));
            world.runtime.run_until_idle();
        }
        world.crash();
        world.open();
        assert_eq!(misses(&world, &content), 0);
    });
}

fn twins(flash: &SimDevice) -> Vec<Option<Superblock>> {
    SUPERBLOCK_OFFSETS
        .iter()
        .map(|&offset| {
            let bytes = flash.peek_durable(offset, SUPERBLOCK_BYTES);
            larder_format::superblock::choose(&bytes, &bytes).ok().map(|chosen| chosen.superblock)
        })
        .collect()
}

#[test]
fn the_mark_of_a_clean_end_is_gone_once_the_cache_is_open() {
    each_seed(20, |seed| {
        let mut world = World::new(seed, Setup::default());
        world.write(0, &noise(1, CHUNK));
        world.close();
        let marked =
            |world: &World| twins(&world.flash.sim).iter().flatten().map(|s| s.clean_shutdown).collect::<Vec<_>>();
        assert_eq!(marked(&world), [true, true]);
        world.flash.take_events();
        world.open();
        assert_eq!(marked(&world), [false, false], "durably, before anything is written");
        let layout = world.layout();
        let writes = world.flash.asked(IoOp::Write);
        assert!(writes.iter().all(|write| write.end() <= layout.checkpoint_offset[0]), "{writes:?}");
        world.crash();
        world.open();
        assert!(!world.status().recovery.clean_shutdown);
        assert_same(&world.read(0, CHUNK), &noise(1, CHUNK), "the chunk");
    });
}

#[test]
fn a_torn_superblock_twin_is_repaired_from_the_other() {
    each_seed(10, |seed| {
        for offset in SUPERBLOCK_OFFSETS {
            let mut world = World::new(seed, Setup::default());
            world.write(0, &noise(1, CHUNK));
            if seed % 2 == 0 {
                world.close();
            } else {
                world.flush();
                world.crash();
            }
            world.flash.sim.corrupt(offset, 256, &mut Rng::new(seed));
            assert_eq!(twins(&world.flash.sim).iter().flatten().count(), 1, "one is torn");
            world.open();
            assert_same(&world.read(0, CHUNK), &noise(1, CHUNK), "the chunk");
            let both = twins(&world.flash.sim);
            assert!(both.iter().all(Option::is_some) && both[0] == both[1], "both are whole and equal again");
        }
    });
}

#[test]
fn without_a_superblock_nothing_is_opened_or_written() {
    each_seed(4, |seed| {
        let mut world = World::made(seed, Setup::default());
        for offset in SUPERBLOCK_OFFSETS {
            world.flash.sim.poke(offset, &[0; 4096]);
        }
        let before = (world.flash.sim.counters(), world.origin.sim.counters());
        let error = world.try_open().expect_err("no superblock");
        assert!(!error.to_string().is_empty());
        let after = (world.flash.sim.counters(), world.origin.sim.counters());
        assert_eq!((before.0.writes, before.1.writes), (after.0.writes, after.1.writes));
        assert_eq!((before.0.discards, before.0.zeroes), (after.0.discards, after.0.zeroes));
    });
}

#[test]
fn an_origin_that_shrank_is_refused_with_nothing_written() {
    each_seed(4, |seed| {
        let mut world = World::new(seed, Setup::default());
        world.write(0, &noise(1, CHUNK));
        world.close();
        let wrong = SimDevice::new(&world.runtime, "the wrong one", world.setup.origin_bytes - MIB, 512);
        let before = world.flash.sim.counters();
        let open = Cache::open(world.flash.clone(), wrong.clone(), world.runtime.clone(), world.setup.tuning.clone());
        match world.run(open) {
            Err(EngineError::WrongOrigin(sentence)) => {
                assert!(sentence.contains("the wrong one") && sentence.contains(&wrong.info().size_bytes.to_string()));
            }
            Err(other) => panic!("refused with {other}"),
            Ok(_) => panic!("opened over an origin that is too small"),
        }
        let after = world.flash.sim.counters();
        assert_eq!((before.writes, before.discards, before.flushes), (after.writes, after.discards, after.flushes));
        assert_eq!(wrong.counters().writes, 0);
        // The mark of the clean end is still there.
        world.open();
        assert!(world.status().recovery.clean_shutdown);
        assert_same(&world.read(0, CHUNK), &noise(1, CHUNK), "the chunk");
    });
}

#[test]
fn opening_flushes_both_devices_before_the_first_read() {
    each_seed(10, |seed| {
        let mut world = World::new(seed, Setup::default());
        world.write(0, &noise(1, CHUNK));
        world.kill();
        world.flash.take_events();
        world.origin.take_events();
        world.open();
        for device in [&world.flash, &world.origin] {
            let events = device.take_events();
            let flushed = events.iter().position(|e| e.op == IoOp::Flush && e.over).expect("a flush");
            let changed = events.iter().position(|e| e.op == IoOp::Write).unwrap_or(usize::MAX);
            assert!(flushed < changed, "the flush comes before anything is written");
        }
        assert_eq!(world.flash.sim.unflushed_bytes(), 0);
    });
}
