//! Sequential streams: found among interleaved requests, and read ahead in growing requests. They
//! are kept off the flash unless they are read twice. Also insertion under overload: the cache
//! drops insertions that reads must not wait for.

use crate::common::*;
use larder_device::{IoOp, rng::Rng, sim::Schedule};
use larder_engine::WriteMode;

const CHUNK: usize = 8 << 10;
const READ: usize = 4 << 10;

fn setup() -> Setup {
    Setup { origin_bytes: 256 * MIB, flash_bytes: 32 * MIB, schedule: Schedule::Timed, ..Setup::default() }
}

/// Runs a test over each design by default, with a few seeds of it.
fn each_design(test: impl Fn(u64, Setup)) {
    for design in design::all() {
        let mut setup = setup();
        setup.options.design = design;
        println!("{}", design::name(design));
        each_seed(2, |seed| test(seed, setup.clone()));
    }
}

/// Reads four streams, 2 MiB each, 4 KiB of each in turn.
fn scan(world: &World) {
    for step in 0..2 * MIB / READ as u64 {
        for lane in 0..4 {
            let offset = lane * 48 * MIB + step * READ as u64;
            let expected = &noise(offset / CHUNK as u64, CHUNK)[(offset as usize % CHUNK)..][..READ];
            assert_same(&world.read(offset, READ), expected, "a read of a stream");
        }
    }
    world.wait_for_insertions();
}

fn filled(seed: u64, setup: Setup) -> World {
    let world = World::new(seed, setup);
    for lane in 0..4 {
        for i in 0..2 * MIB / CHUNK as u64 {
            let offset = lane * 48 * MIB + i * CHUNK as u64;
            world.fill_origin(offset, &noise(offset / CHUNK as u64, CHUNK));
        }
    }
    world
}

#[test]
fn interleaved_scans_are_read_ahead_in_growing_requests() {
    each_design(|seed, setup| {
        let world = filled(seed, setup);
        world.origin.take_events();
        scan(&world);
        let reads = world.origin.asked(IoOp::Read);
        for lane in 0..4 {
            let of_lane: Vec<u64> = reads.iter().filter(|r| r.offset / (48 * MIB) == lane).map(|r| r.len).collect();
            assert!(of_lane.iter().all(|&len| len <= 128 * KIB), "no request is longer than 128 KiB");
            assert!(of_lane[..3].iter().all(|&len| len < 64 * KIB), "it begins small: {of_lane:?}");
            let later = &of_lane[of_lane.len() / 2..];
            assert!(later.iter().max() >= Some(&(64 * KIB)), "it grows: {of_lane:?}");
            assert!(of_lane.len() < 80, "2 MiB took {} requests", of_lane.len());
        }
        let status = world.status();
        assert!(status.counts.prefetch_hits > 4 * 200, "{} prefetch hits", status.counts.prefetch_hits);
        // Each byte was read from the origin once, except for those ahead of the ends.
        assert!(status.counts.origin_bytes_read <= 8 * MIB + 4 * 192 * KIB, "{}", status.counts.origin_bytes_read);
    });
}

#[test]
fn what_is_scanned_once_is_not_put_on_flash() {
    each_design(|seed, setup| {
        let world = filled(seed, setup);
        scan(&world);
        let status = world.status();
        // The first reads of each stream, before its detection.
        assert!(status.counts.inserted_chunks <= 4 * 8, "{} chunks were inserted", status.counts.inserted_chunks);
    });
}

#[test]
fn what_is_read_twice_while_it_is_there_is_inserted() {
    each_seed(3, |seed| {
        let world = filled(seed, setup());
        for step in 0..64 {
            let offset = step * CHUNK as u64;
            assert_same(&world.read(offset, CHUNK), &noise(step, CHUNK), "a scan");
        }
        let counts = world.status().counts;
        assert!(
            counts.scan_bypassed_chunks > 0,
            "the read that makes it a stream is missed, and is no reason to insert"
        );
        let before = counts.inserted_chunks;
        for step in (20..60).rev() {
            let offset = step * CHUNK as u64;
            assert_same(&world.read(offset, CHUNK), &noise(step, CHUNK), "a second read");
        }
        world.wait_for_insertions();
        let inserted = world.status().counts.inserted_chunks - before;
        assert!(inserted >= 38, "{inserted} of 40 chunks that were read twice were inserted");
        let reads = world.origin_reads();
        for step in 22..58 {
            assert_same(&world.read(step * CHUNK as u64, CHUNK), &noise(step, CHUNK), "a third read");
        }
        assert_eq!(world.origin_reads(), reads, "they hit");
    });
}

#[test]
fn random_reads_are_inserted_and_read_nothing_ahead() {
    each_seed(3, |seed| {
        let mut setup = setup();
        setup.options.mode = [WriteMode::Back, WriteMode::Around][(seed % 2) as usize];
        let world = filled(seed, setup);
        let mut order: Vec<u64> = (0..1000).map(|i| i * 3).collect();
        Rng::new(seed).shuffle(&mut order);
        for lba in order {
            world.read(lba * CHUNK as u64, CHUNK);
        }
        world.wait_for_insertions();
        let counts = world.status().counts;
        assert_eq!((counts.inserted_chunks, counts.prefetched_chunks), (1000, 0));
        assert_eq!(counts.origin_bytes_read, 1000 * CHUNK as u64);
    });
}

#[test]
fn a_write_into_what_was_read_ahead_is_seen() {
    each_seed(10, |seed| {
        for mode in [WriteMode::Back, WriteMode::Through, WriteMode::Around] {
            let mut setup = Setup { schedule: Schedule::Chaos, ..setup() };
            setup.options.mode = mode;
            let world = filled(seed, setup);
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            (0..256).for_each(|lba| twin.write(lba * CHUNK as u64, &noise(lba, CHUNK)));
            for step in 0..128_u64 {
                let offset = step * CHUNK as u64;
                assert_same(&world.read(offset, CHUNK), &twin.bytes(offset, CHUNK), "a scan");
                // Ahead of the scan, in prefetches that are under way or done.
                let (from, len) = random_run(&mut rng, 20 * CHUNK as u64, 20);
                let ahead = offset + CHUNK as u64 + from;
                if rng.chance(1, 3) {
                    world.trim(ahead, len as u64);
                    twin.zero(ahead, len as u64);
                } else {
                    world.write(ahead, &noise(1000 + step, len));
                    twin.write(ahead, &noise(1000 + step, len));
                }
            }
        }
    });
}

#[test]
fn under_overload_insertions_are_dropped_and_reads_go_on() {
    each_seed(6, |seed| {
        let mut setup = Setup { schedule: Schedule::Chaos, ..setup() };
        setup.tuning.insert_queue_bytes_max = 2 * CHUNK;
        setup.tuning.insert_depth = 1;
        setup.tuning.prefetch_bytes_max = 0;
        let world = filled(seed, setup);
        let cache = world.cache().clone();
        // Sixteen at a time.
        for round in 0..20_u64 {
            let reads = (0..16_u64).map(|i| (round * 16 + i) * 3 % 1000);
            world.run(all(reads
                .map(|lba| {
                    let cache = &cache;
                    let read: std::pin::Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
                        let buf = larder_device::IoBuf::new(CHUNK);
                        let bytes = cache.read(lba * CHUNK as u64, buf).await.expect("a read");
                        let expected = if lba < 256 { noise(lba, CHUNK) } else { vec![0; CHUNK] };
                        assert_same(&bytes, &expected, "a read under overload");
                    });
                    read
                })
                .collect()));
        }
        drop(cache);
        world.wait_for_insertions();
        let counts = world.status().counts;
        assert!(counts.insertions_dropped > 0);
        assert_eq!(counts.insertions_dropped + counts.inserted_chunks + counts.insertions_stale, 320);
    });
}

#[test]
fn reads_do_not_wait_for_a_flash_that_takes_no_writes() {
    each_seed(4, |seed| {
        // Flash writes never end within these reads: only the insertions wait.
        let mut setup = setup();
        setup.tuning.insert_queue_bytes_max = 64 << 10;
        setup.tuning.prefetch_bytes_max = 0;
        let world = filled(seed, setup);
        world.flash.slow_down(&world.runtime, std::time::Duration::from_secs(1000));
        let cache = world.cache().clone();
        let runtime = world.runtime.clone();
        let slowest = world.run(async {
            let mut slowest = std::time::Duration::ZERO;
            for lba in 0..6000_u64 {
                use larder_device::Runtime;
                let began = runtime.now();
                let offset = lba * 3 * CHUNK as u64 % (256 * MIB);
                cache.read(offset, larder_device::IoBuf::new(CHUNK)).await.expect("a read");
                slowest = slowest.max(runtime.now() - began);
            }
            slowest
        });
        drop(cache);
        assert!(slowest < std::time::Duration::from_millis(10), "a read took {slowest:?}");
    });
}
