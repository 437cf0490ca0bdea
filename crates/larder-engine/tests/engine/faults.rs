//! Devices that fail: requests served from elsewhere, refusals, retries, and no further damage.

use crate::common::*;
use larder_device::{
    IoBuf, IoErrorKind, IoOp, Runtime,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::Schedule,
};
use larder_engine::WriteMode;
use std::time::Duration;

const CHUNK: usize = 8 << 10;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

fn always(op: IoOp) -> Fault {
    Fault { op: Some(op), range: None, kind: IoErrorKind::Io, times: FOR_EVER }
}

/// Makes a cache of 20 clean chunks, on flash and not in memory.
fn clean_chunks(seed: u64) -> World {
    let mut setup = Setup::default();
    setup.tuning.prefetch_bytes_max = 0;
    let mut world = World::new(seed, setup);
    for lba in 0..20 {
        world.fill_origin(at(lba), &noise(lba, CHUNK));
        world.read(at(lba), CHUNK);
    }
    world.wait_for_insertions();
    // In memory no more.
    world.close();
    world.open();
    world
}

/// Makes a cache of 20 dirty chunks and a fragment, flushed.
fn dirty_chunks(seed: u64) -> World {
    let world = World::new(seed, Setup::default());
    for lba in 0..20 {
        world.write(at(lba), &if lba.is_multiple_of(2) { noise(lba, CHUNK) } else { text(lba, CHUNK) });
    }
    world.write(at(30) + 1024, &noise(30, 1024));
    world.flush();
    world
}

fn dirty_content(lba: u64) -> Vec<u8> {
    if lba.is_multiple_of(2) { noise(lba, CHUNK) } else { text(lba, CHUNK) }
}

fn corrupt(world: &World, record: &Record, rng: &mut Rng) {
    let Record { range, .. } = record;
    world.flash.sim.corrupt(range.start, range.end - range.start, rng);
}

#[test]
fn clean_data_that_flash_cannot_read_comes_from_the_origin() {
    each_seed(8, |seed| {
        let world = clean_chunks(seed);
        let record = world.record_of(7);
        // It fails with its neighbours, and when it is tried by itself.
        world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, 2);
        let before = world.origin_reads();
        assert_same(&world.read(0, 20 * CHUNK), &(0..20).flat_map(|i| noise(i, CHUNK)).collect::<Vec<_>>(), "a read");
        assert_eq!(world.origin_reads(), before + 1, "one chunk came from the origin");
        let counts = world.status().counts;
        assert!(counts.flash_read_errors + counts.corrupt_records >= 1, "it is counted");
        assert_eq!(world.status().health, "ok", "nothing was lost");
        // The fast path of one raw chunk, too.
        let record = world.record_of(9);
        world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, 1);
        assert_same(&world.read(at(9), CHUNK), &noise(9, CHUNK), "a read of one chunk");
    });
}

#[test]
fn every_failed_read_of_flash_is_counted() {
    each_seed(4, |seed| {
        for sectors in [1, 16] {
            let world = clean_chunks(seed);
            world.flash.sim.fail_next(IoOp::Read, IoErrorKind::Io);
            let len = sectors * SECTOR;
            assert_same(&world.read(at(3), len), &noise(3, CHUNK)[..len], "a read");
            assert!(world.status().counts.flash_read_errors >= 1, "a read of {len} bytes counted no error");
        }
    });
}

#[test]
fn a_damaged_clean_record_is_detected_and_read_from_the_origin() {
    each_seed(20, |seed| {
        let world = clean_chunks(seed);
        let mut rng = Rng::new(seed);
        let record = world.record_of(4);
        assert!(!record.is_fragment);
        corrupt(&world, &record, &mut rng);
        // A misdirected write over another one.
        let stranger = world.flash.sim.peek(world.record_of(12).range.start, CHUNK);
        world.flash.sim.poke(world.record_of(11).range.start, &stranger);
        let before = world.origin_reads();
        for lba in [4, 11, 5, 12] {
            assert_same(&world.read(at(lba), CHUNK), &noise(lba, CHUNK), "a chunk");
        }
        assert_eq!(world.origin_reads(), before + 2);
        assert_eq!(world.status().counts.corrupt_records, 2);
        assert_eq!((world.status().lost_chunks, world.status().health.as_str()), (0, "ok"));
        world.wait_for_insertions();
    });
}

#[test]
fn a_damaged_dirty_record_is_an_error_for_that_chunk_only() {
    each_seed(20, |seed| {
        for lba in [4, 5] {
            let world = dirty_chunks(seed);
            let record = world.record_of(lba);
            corrupt(&world, &record, &mut Rng::new(seed));
            let error = world.try_read(at(lba), CHUNK).expect_err("never wrong bytes");
            assert_eq!(error.kind, IoErrorKind::Corrupt);
            assert!(world.try_read(at(lba) + 4096, 512).is_err());
            assert!(world.try_read(0, 20 * CHUNK).is_err(), "a read over it fails");
            for other in (0..20).filter(|&other| other != lba) {
                assert_same(&world.read(at(other), CHUNK), &dirty_content(other), "another chunk");
            }
            let status = world.status();
            assert_eq!(status.lost_chunks, 1);
            assert_ne!(status.health, "ok");
            assert!(status.health.contains(&at(lba).to_string()), "{}", status.health);
            // A write of a part cannot bring the rest back, and must not pretend to.
            assert!(world.try_write(at(lba) + 512, &noise(1, 512), false).is_err());
            // The others are destaged; this one stays dirty, and the origin keeps its old content.
            assert!(!world.destage_all());
            assert_eq!(world.status().dirty_bytes, CHUNK as u64);
            assert!(world.origin.sim.peek(at(lba), CHUNK).iter().all(|&b| b == 0));
            assert_same(&world.origin.sim.peek_durable(at(7), CHUNK), &dirty_content(7), "another on the origin");
            // A write of the whole heals it.
            world.write(at(lba), &noise(500, CHUNK));
            assert_same(&world.read(at(lba), CHUNK), &noise(500, CHUNK), "the chunk, written anew");
            assert_eq!((world.status().lost_chunks, world.status().health.as_str()), (0, "ok"));
            assert!(world.destage_all());
        }
    });
}

#[test]
fn a_damaged_fragment_is_an_error_and_a_trim_heals_it() {
    each_seed(10, |seed| {
        let world = dirty_chunks(seed);
        let record = world.record_of(30);
        assert!(record.is_fragment);
        corrupt(&world, &record, &mut Rng::new(seed));
        assert!(world.try_read(at(30) + 1024, 512).is_err());
        assert!(world.try_write(at(30), &noise(1, 512), false).is_err(), "there is nothing to merge with");
        assert_eq!(world.status().lost_chunks, 1);
        world.trim(at(30), CHUNK as u64);
        assert!(world.read(at(30), CHUNK).iter().all(|&b| b == 0));
        assert_eq!(world.status().lost_chunks, 0);
        assert!(world.destage_all());
    });
}

#[test]
fn a_read_error_that_passes_loses_no_dirty_data() {
    each_seed(10, |seed| {
        let world = dirty_chunks(seed);
        let record = world.record_of(6);
        world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, 3);
        let mut failed = 0;
        loop {
            match world.try_read(at(6), CHUNK) {
                Ok(bytes) => break assert_same(&bytes, &dirty_content(6), "never other bytes"),
                Err(_) => failed += 1,
            }
            assert!(failed <= 3, "the flash reads again, the cache does not");
        }
        assert!(world.destage_all(), "what can be read can be destaged");
        assert_same(&world.origin.sim.peek_durable(at(6), CHUNK), &dirty_content(6), "the origin");
        assert_eq!((world.status().lost_chunks, world.status().dirty_bytes), (0, 0));
    });
}

#[test]
fn a_partial_write_over_what_cannot_be_read_now_fails_and_loses_nothing() {
    each_seed(10, |seed| {
        for (lba, from) in [(6, 512), (30, 0)] {
            let world = dirty_chunks(seed);
            let record = world.record_of(lba);
            world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, 20);
            let error = world.try_write(at(lba) + from, &noise(1, 512), false).expect_err("nothing to merge with");
            assert_eq!(error.kind, IoErrorKind::Io, "what cannot be read is not damaged");
            assert_eq!((world.status().lost_chunks, world.status().counts.corrupt_records), (0, 0));
            assert!(world.status().counts.flash_read_errors >= 1, "it is counted");
            world.flash.sim.plan().clear();
            world.write(at(lba) + from, &noise(1, 512));
            let (inside, old) = match lba {
                30 => (1024..2048, noise(30, 1024)),
                _ => (1024..CHUNK, dirty_content(lba)[1024..].to_vec()),
            };
            assert_same(&world.read(at(lba) + inside.start as u64, inside.len()), &old, "what was there before");
            assert_same(&world.read(at(lba) + from, 512), &noise(1, 512), "what was written");
        }
    });
}

#[test]
fn a_partial_write_over_a_read_error_that_passes_succeeds() {
    each_seed(10, |seed| {
        let world = dirty_chunks(seed);
        let record = world.record_of(6);
        world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, 1);
        world.write(at(6) + 512, &noise(1, 512));
        let expected = [&dirty_content(6)[..512], &noise(1, 512), &dirty_content(6)[1024..]].concat();
        assert_same(&world.read(at(6), CHUNK), &expected, "the chunk");
    });
}

#[test]
fn a_partial_write_over_damaged_clean_data_needs_none_of_it() {
    each_seed(10, |seed| {
        let lba = 6;
        for damage in [false, true] {
            let world = dirty_chunks(seed);
            assert!(world.destage_all());
            let record = world.record_of(lba);
            match damage {
                true => corrupt(&world, &record, &mut Rng::new(seed)),
                false => world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, 20),
            };
            world.write(at(lba) + 512, &noise(1, 512));
            world.flash.sim.plan().clear();
            let mut expected = world.origin.sim.peek(at(lba), CHUNK);
            expected[512..1024].copy_from_slice(&noise(1, 512));
            assert_same(&world.read(at(lba), CHUNK), &expected, "the chunk");
            assert_eq!((world.status().lost_chunks, world.status().health.as_str()), (0, "ok"));
            assert!(world.destage_all());
            assert_same(&world.origin.sim.peek_durable(at(lba), CHUNK), &expected, "the origin");
        }
    });
}

#[test]
fn what_keeps_data_dirty_is_named() {
    each_seed(4, |seed| {
        let world = dirty_chunks(seed);
        let before = world.status().counts;
        // First a damaged one, alone; then also one that cannot be read; then an origin that takes
        // nothing.
        let record = world.record_of(4);
        corrupt(&world, &record, &mut Rng::new(seed));
        assert!(!world.destage_all());
        let why = world.cache().why_dirty(&before);
        let damage = format!(
            "1 dirty chunk is damaged on the flash, and the origin lacks it (of the volume {CHUNK} bytes at {})",
            at(4)
        );
        assert!(why.starts_with(&damage) && why.contains("verify --repair"), "{why}");
        assert!(!why.contains("origin fail") && !why.contains("fails to read"), "{why}");
        world.write(at(30), &noise(1, CHUNK));
        world.flush();
        let record = world.record_of(30);
        world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, FOR_EVER);
        world.origin.sim.fail_range(IoOp::Write, 0..1 << 40, IoErrorKind::Io, FOR_EVER);
        world.write(at(31), &noise(2, CHUNK));
        let before = world.status().counts;
        assert!(!world.destage_all());
        let why = world.cache().why_dirty(&before);
        for words in ["the origin fails (", "bring it back", &damage, "the flash fails to read some of it"] {
            assert!(why.contains(words), "{words}: {why}");
        }
        world.origin.sim.plan().clear();
        // Another attempt may be under way still.
        assert!(!world.destage_all());
        let before = world.status().counts;
        assert!(!world.destage_all());
        let why = world.cache().why_dirty(&before);
        assert!(!why.contains("origin fail") && why.contains("fails to read"), "{why}");
        world.flash.sim.plan().clear();
        world.write(at(4), &noise(3, CHUNK));
        assert!(world.destage_all());
    });
}

#[test]
fn a_partial_write_tells_of_the_damage_that_it_meets() {
    each_seed(4, |seed| {
        for lba in [4, 30] {
            let world = dirty_chunks(seed);
            let record = world.record_of(lba);
            corrupt(&world, &record, &mut Rng::new(seed));
            let error = world.try_write(at(lba) + 512, &noise(1, 512), false).expect_err("nothing to merge with");
            assert_eq!(error.kind, IoErrorKind::Corrupt);
            let status = world.status();
            assert_eq!((status.lost_chunks, status.counts.corrupt_records), (1, 1));
            assert!(status.health.contains(&at(lba).to_string()), "{}", status.health);
        }
        for mode in [WriteMode::Back, WriteMode::Through] {
            let world = clean_chunks(seed);
            world.run(world.cache().set_mode(mode)).expect("a switch");
            // A write may forget the neighbours on flash.
            let [record, other] = [4, 7].map(|lba| world.record_of(lba));
            corrupt(&world, &record, &mut Rng::new(seed));
            world.write(at(4) + 512, &noise(1, 512));
            assert_eq!(world.status().counts.corrupt_records, 1, "{mode:?}");
            world.flash.sim.fail_range(IoOp::Read, other.range, IoErrorKind::Io, FOR_EVER);
            world.write(at(7) + 512, &noise(1, 512));
            assert!(world.status().counts.flash_read_errors >= 1, "{mode:?}");
            for lba in [4, 7] {
                let expected = [&noise(lba, CHUNK)[..512], &noise(1, 512), &noise(lba, CHUNK)[1024..]].concat();
                assert_same(&world.read(at(lba), CHUNK), &expected, "a chunk");
            }
        }
    });
}

/// Content must not be taken for a duplicate of lost content.
///
/// Its write would be acknowledged, and gone.
#[test]
fn nothing_is_stored_as_a_duplicate_of_what_cannot_be_read() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Met {
        Read,
        PartialWrite,
        Destage,
    }
    each_seed(4, |seed| {
        for met in [Met::Read, Met::PartialWrite, Met::Destage] {
            for (damage, restart) in [(true, false), (true, true), (false, false), (false, true)] {
                let mut world = dirty_chunks(seed);
                let record = world.record_of(4);
                match damage {
                    true => corrupt(&world, &record, &mut Rng::new(seed)),
                    false => world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, FOR_EVER),
                };
                match met {
                    Met::Read => assert!(world.try_read(at(4), CHUNK).is_err()),
                    Met::PartialWrite => assert!(world.try_write(at(4) + 512, &noise(1, 512), false).is_err()),
                    Met::Destage => assert!(!world.destage_all()),
                }
                if restart {
                    world.close();
                    world.open();
                }
                for lba in [100, 4] {
                    let what = format!("{met:?}, damage {damage}, restart {restart}");
                    let written = world.try_write(at(lba), &noise(4, CHUNK), true);
                    if design::is_bucketed(design::chosen()) && !damage && written.is_err() {
                        // Its bucket is full of unreadable records, and that is a failed flash.
                        let health = world.status().health;
                        assert!(health.contains("no dirty data could be read"), "{what}: {health}");
                        break;
                    }
                    written.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_same(&world.read(at(lba), CHUNK), &noise(4, CHUNK), &what);
                }
            }
        }
    });
}

#[test]
fn clean_data_that_cannot_be_read_is_filled_into_another_place() {
    each_seed(4, |seed| {
        let world = clean_chunks(seed);
        let record = world.record_of(4);
        world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, FOR_EVER);
        // The first read finds that out, the second misses.
        for _ in 0..2 {
            assert_same(&world.read(at(4), CHUNK), &noise(4, CHUNK), "from the origin");
            world.wait_for_insertions();
        }
        let before = (world.origin_reads(), world.status().counts.flash_read_errors);
        for _ in 0..3 {
            assert_same(&world.read(at(4), CHUNK), &noise(4, CHUNK), "from the flash");
            world.wait_for_insertions();
        }
        if design::is_bucketed(design::chosen()) {
            // Its bucket has no other place until others have been used: the origin goes on to
            // serve it.
            return assert_eq!(world.status().lost_chunks, 0);
        }
        assert_eq!((world.origin_reads(), world.status().counts.flash_read_errors), before, "it was stored anew, once");
        world.run(world.cache().set_mode(WriteMode::Back)).expect("a switch");
        world.write_durably(at(200), &noise(4, CHUNK));
        assert_same(&world.read(at(200), CHUNK), &noise(4, CHUNK), "a duplicate");
    });
}

#[test]
fn a_read_error_in_a_destage_that_passes_loses_no_dirty_data() {
    each_seed(10, |seed| {
        let world = dirty_chunks(seed);
        let record = world.record_of(6);
        world.flash.sim.fail_range(IoOp::Read, record.range, IoErrorKind::Io, 1);
        world.destage_all();
        assert_same(&world.read(at(6), CHUNK), &dirty_content(6), "the chunk");
        assert!(world.destage_all(), "what can be read can be destaged");
        assert_same(&world.origin.sim.peek_durable(at(6), CHUNK), &dirty_content(6), "the origin");
        assert_eq!((world.status().lost_chunks, world.status().dirty_bytes), (0, 0));
    });
}

#[test]
fn an_origin_that_fails_a_read_fails_that_read_only() {
    each_seed(10, |seed| {
        let world = clean_chunks(seed);
        // The cache asks a failing origin again by itself, so each read fails.
        world.origin.sim.fail_range(IoOp::Read, at(100)..at(101), IoErrorKind::Io, FOR_EVER);
        assert_eq!(world.try_read(at(100), CHUNK).expect_err("planned").kind, IoErrorKind::Io);
        assert_same(&world.read(at(5), CHUNK), &noise(5, CHUNK), "a hit");
        assert!(world.read(at(200), CHUNK).iter().all(|&b| b == 0), "another miss");
        assert!(world.try_read(at(99), 3 * CHUNK).is_err(), "a read over it");
        world.origin.sim.plan().clear();
        assert!(world.read(at(99), 3 * CHUNK).iter().all(|&b| b == 0), "the origin is well again");
        assert_eq!(world.status().health, "ok");
        // The rest of a fragment is unreadable: the valid sectors are still readable.
        world.write(at(300), &noise(1, 512));
        world.origin.sim.fail_range(IoOp::Read, at(300)..at(301), IoErrorKind::Io, 1);
        assert!(world.try_read(at(300), CHUNK).is_err());
        assert_same(&world.read(at(300), 512), &noise(1, 512), "the fragment");
        assert_same(&world.read(at(300), CHUNK)[..512], &noise(1, 512), "the completed chunk");
    });
}

#[test]
fn an_origin_that_fails_in_a_prefetch_fails_one_read_at_most() {
    each_seed(10, |seed| {
        let world = World::new(seed, Setup::default());
        for lba in 0..64 {
            world.fill_origin(at(lba), &noise(lba, CHUNK));
        }
        for lba in 0..10 {
            assert_same(&world.read(at(lba), CHUNK), &noise(lba, CHUNK), "the stream");
        }
        world.wait_for_insertions();
        world.origin.sim.fail_range(IoOp::Read, at(20)..at(40), IoErrorKind::Io, 1);
        let mut failed = 0;
        for lba in 10..64 {
            match world.try_read(at(lba), CHUNK) {
                Ok(bytes) => assert_same(&bytes, &noise(lba, CHUNK), "the stream"),
                Err(_) => failed += 1,
            }
        }
        assert!(failed <= 1, "one failure was planned, {failed} reads failed");
    });
}

#[test]
fn an_origin_that_fails_a_write_leaves_the_data_dirty_and_gets_it_later() {
    each_seed(10, |seed| {
        let world = dirty_chunks(seed);
        world.origin.sim.plan().add(always(IoOp::Write));
        assert!(!world.destage_all());
        assert_eq!(world.status().dirty_bytes, 21 * CHUNK as u64, "all of it is dirty still");
        assert!(world.status().counts.origin_errors > 0);
        assert_same(&world.read(at(3), CHUNK), &dirty_content(3), "a dirty chunk");
        world.write(at(3), &noise(77, CHUNK));
        world.origin.sim.plan().clear();
        assert!(world.destage_all());
        assert_eq!(world.status().dirty_bytes, 0);
        assert_same(&world.origin.sim.peek_durable(at(3), CHUNK), &noise(77, CHUNK), "the origin");
        assert_same(&world.origin.sim.peek_durable(at(4), CHUNK), &dirty_content(4), "the origin");
    });
}

#[test]
fn an_origin_that_fails_a_flush_leaves_the_data_dirty() {
    each_seed(10, |seed| {
        let mut world = dirty_chunks(seed);
        world.origin.sim.plan().add(always(IoOp::Flush));
        assert!(!world.destage_all());
        assert_eq!(world.status().dirty_bytes, 21 * CHUNK as u64);
        world.flush();
        world.origin.sim.plan().clear();
        world.crash();
        world.open();
        assert_same(&world.read(at(5), CHUNK), &dirty_content(5), "a dirty chunk after a crash");
        assert!(world.destage_all());
        assert_same(&world.origin.sim.peek_durable(at(5), CHUNK), &dirty_content(5), "the origin");
    });
}

#[test]
fn the_destager_tries_again_by_itself() {
    each_seed(6, |seed| {
        let mut setup = Setup { schedule: Schedule::Timed, ..Setup::default() };
        setup.tuning.dirty_low_percent = 1;
        let world = World::new(seed, setup);
        world.origin.sim.plan().add(always(IoOp::Write));
        for lba in 0..60 {
            world.write(at(lba), &noise(lba, CHUNK));
        }
        // Something wakes it: a flash an eighth full of dirty data is over the mark.
        world.runtime.run_for(Duration::from_secs(2));
        world.origin.sim.plan().clear();
        world.write(at(100), &noise(100, CHUNK));
        world.runtime.run_for(Duration::from_secs(40));
        let status = world.status();
        assert!(status.dirty_bytes <= 16 * MIB / 100, "{} bytes are dirty", status.dirty_bytes);
    });
}

#[test]
fn a_flash_that_takes_no_writes_fails_writes_and_nothing_else() {
    each_seed(10, |seed| {
        let mut setup = Setup { origin_bytes: 32 * MIB, ..Setup::default() };
        setup.tuning.prefetch_bytes_max = 0;
        let world = World::new(seed, setup);
        for lba in 2000..2020 {
            world.fill_origin(at(lba), &noise(lba, CHUNK));
        }
        for lba in 0..10 {
            world.write(at(lba), &noise(lba, CHUNK));
        }
        world.flash.sim.plan().add(always(IoOp::Write));
        let mut accepted = 10;
        for lba in 10..1000 {
            match world.try_write(at(lba), &noise(lba, CHUNK), false) {
                Ok(()) => accepted = lba + 1,
                Err(_) => break,
            }
            // The flash is asked again for a few seconds.
            world.runtime.run_for(Duration::from_millis(20));
        }
        assert!(accepted < 1000, "writes to a dead flash must fail before long");
        assert!(world.try_write(at(1), &noise(7000, CHUNK), false).is_err(), "and go on failing");
        assert!(world.run(world.cache().flush()).is_err(), "a flush must not lie");
        assert!(world.try_write(at(1), &noise(7001, CHUNK), true).is_err());
        assert_ne!(world.status().health, "ok");
        // Data in memory is right, and data of the origin is readable.
        for lba in 0..accepted {
            let bytes = world.read(at(lba), CHUNK);
            assert_same(&bytes, &noise(lba, CHUNK), "a chunk in memory");
        }
        for lba in 2000..2020 {
            assert_same(&world.read(at(lba), CHUNK), &noise(lba, CHUNK), "a miss");
        }
        assert!(world.run(world.cache().close()).is_err(), "nor must a clean end lie");
    });
}

/// A flush that failed may have lost earlier writes, even if the next one succeeds.
#[test]
fn after_a_failed_flush_the_flash_is_not_trusted_again() {
    each_seed(20, |seed| {
        let mut world = World::new(seed, Setup::default());
        world.write(0, &noise(1, CHUNK));
        world.flash.sim.fail_next(IoOp::Flush, IoErrorKind::Io);
        assert!(world.run(world.cache().flush()).is_err(), "the first flush");
        assert!(world.run(world.cache().flush()).is_err(), "the second flush");
        assert!(world.try_write(at(1), &noise(2, CHUNK), false).is_err(), "a write without a fence");
        assert_same(&world.read(0, CHUNK), &noise(1, CHUNK), "what is in memory");
        world.crash();
        world.open();
        let bytes = world.read(0, CHUNK);
        assert!(bytes == noise(1, CHUNK) || bytes == [0; CHUNK], "old or new");
    });
}

#[test]
fn a_log_frame_that_fails_once_is_written_again() {
    each_seed(20, |seed| {
        let mut world = World::new(seed, Setup::default());
        let layout = world.layout();
        world.write(0, &noise(1, CHUNK));
        let log = layout.log_offset..layout.log_offset + layout.log_bytes;
        world.flash.sim.fail_range(IoOp::Write, log, IoErrorKind::Io, 1);
        let _ = world.run(world.cache().flush());
        world.write(at(1), &noise(2, CHUNK));
        world.flush();
        world.crash();
        world.open();
        assert_same(&world.read(0, CHUNK), &noise(1, CHUNK), "the first chunk");
        assert_same(&world.read(at(1), CHUNK), &noise(2, CHUNK), "the second chunk");
    });
}

#[test]
fn write_through_and_around_go_on_without_the_flash() {
    // For any fault of the flash, acknowledged data is on the origin, and reads are right.
    each_seed(10, |seed| {
        for mode in [WriteMode::Through, WriteMode::Around] {
            let mut setup = Setup { origin_bytes: 8 * MIB, ..Setup::default() };
            setup.options.mode = mode;
            let world = World::new(seed, setup);
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            for number in 0..150 {
                if number == 50 {
                    world.flash.sim.plan().add(always(IoOp::Write));
                }
                let (offset, len) = random_run(&mut rng, 4 * MIB, 48);
                // A write may be refused if the old mapping's end cannot be made durable; then it
                // did not happen.
                if world.try_write(offset, &noise(number, len), false).is_ok() {
                    twin.write(offset, &noise(number, len));
                }
                let (offset, len) = random_run(&mut rng, 4 * MIB, 48);
                assert_same(&world.read(offset, len), &twin.bytes(offset, len), "a read");
            }
            world.flush();
            let expected = twin.bytes(0, 4 << 20);
            assert_same(&world.origin.sim.peek_durable(0, 4 << 20), &expected, "the origin");
        }
    });
}

#[test]
fn a_cache_full_of_dirty_data_slows_writers_to_the_origins_speed() {
    each_seed(4, |seed| {
        let mut setup =
            Setup { flash_bytes: 6 * MIB, origin_bytes: 64 * MIB, schedule: Schedule::Timed, ..Setup::default() };
        setup.tuning.dirty_low_percent = 20;
        setup.tuning.dirty_high_percent = 40;
        setup.tuning.dirty_max_percent = 60;
        setup.tuning.destage_depth = 1;
        let mut world = World::new(seed, setup);
        world.origin.slow_down(&world.runtime, Duration::from_millis(5));
        let began = world.runtime.now();
        let chunks = 1500_u64;
        let cache = world.cache().clone();
        // Four writers, their chunks far apart, so that destages do not join them.
        world.run(all((0..4_u64)
            .map(|writer| {
                let cache = &cache;
                let write: std::pin::Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
                    for lba in (writer..chunks).step_by(4) {
                        let data = IoBuf::copy_of(&noise(lba, CHUNK)).freeze();
                        cache.write(at(lba * 5), data, Default::default()).await.expect("a write");
                        let status = cache.status();
                        assert!(status.dirty_bytes <= 6 * MIB * 65 / 100, "{} dirty", status.dirty_bytes);
                    }
                });
                write
            })
            .collect()));
        drop(cache);
        let took = world.runtime.now() - began;
        let status = world.status();
        assert!(status.counts.write_waits > 0, "writers had to wait");
        // Data beyond the room had to be destaged, at 5 ms a write.
        let destaged = chunks - 6 * MIB * 60 / 100 / CHUNK as u64;
        assert!(took >= Duration::from_millis(5) * (destaged as u32 / 2), "{took:?} for {destaged} destages");
        world.flush();
        for lba in 0..chunks {
            assert_same(&world.read(at(lba * 5), CHUNK), &noise(lba, CHUNK), "a write");
        }
        world.crash();
        world.open();
        for lba in 0..chunks {
            assert_same(&world.read(at(lba * 5), CHUNK), &noise(lba, CHUNK), "a write, after a crash");
        }
        assert!(world.destage_all());
        for lba in 0..chunks {
            assert_same(&world.origin.sim.peek_durable(at(lba * 5), CHUNK), &noise(lba, CHUNK), "the origin");
        }
    });
}

#[test]
fn a_cache_full_of_dirty_data_waits_for_an_origin_that_failed() {
    each_seed(4, |seed| {
        let mut setup =
            Setup { flash_bytes: 5 * MIB, origin_bytes: 64 * MIB, schedule: Schedule::Timed, ..Setup::default() };
        setup.tuning.dirty_low_percent = 20;
        setup.tuning.dirty_max_percent = 60;
        let world = World::new(seed, setup);
        world.origin.sim.plan().add(always(IoOp::Write));
        let cache = world.cache().clone();
        let origin = world.origin.clone();
        let runtime = world.runtime.clone();
        world.run(all(vec![
            Box::pin(async {
                for lba in 0..1000_u64 {
                    let data = IoBuf::copy_of(&noise(lba, CHUNK)).freeze();
                    cache.write(at(lba * 5), data, Default::default()).await.expect("a write waits, it does not fail");
                }
            }),
            Box::pin(async {
                runtime.delay(Duration::from_secs(60)).await.expect("time passes");
                assert!(cache.status().counts.write_waits > 0, "the writer waits");
                origin.sim.plan().clear();
            }),
        ]));
        drop(cache);
        for lba in 0..1000 {
            assert_same(&world.read(at(lba * 5), CHUNK), &noise(lba, CHUNK), "a write");
        }
    });
}

/// Batches that are destaged side by side share the flushes of the origin.
///
/// Data that one of these lost stays dirty, for each batch that asked for it, and is written again.
#[test]
fn a_flush_that_fails_beside_a_destage_leaves_it_dirty() {
    each_seed(60, |seed| {
        let mut setup = Setup::default();
        // The destager has a batch of its own under way all the time.
        setup.tuning.dirty_low_percent = 1;
        let mut world = World::new(seed, setup);
        // Not neighbours, so that a batch is many writes.
        let chunks = 600;
        (0..chunks).for_each(|lba| world.write(at(2 * lba), &noise(lba, CHUNK)));
        world.flush();
        for round in 0..4 {
            (0..chunks).for_each(|lba| world.write(at(2 * lba), &noise(lba + round * chunks, CHUNK)));
            world.origin.sim.plan().add(Fault { times: 2, ..always(IoOp::Flush) });
            world.destage_all();
        }
        world.origin.sim.plan().clear();
        while !world.destage_all() {}
        assert_eq!(world.status().dirty_bytes, 0);
        world.crash();
        for lba in 0..chunks {
            assert_same(
                &world.origin.sim.peek_durable(at(2 * lba), CHUNK),
                &noise(lba + 3 * chunks, CHUNK),
                "what is clean",
            );
        }
    });
}
