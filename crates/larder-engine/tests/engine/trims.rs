//! TRIM and write-zeroes in every mode: zeroes at once, after a flush and a crash, and on the
//! origin.

use crate::{common::*, fence::MemoryFence};
use larder_device::{
    IoErrorKind, IoOp, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::SimDeviceOptions,
};
use larder_engine::WriteMode;
use std::time::{Duration, Instant};

const CHUNK: usize = 8 << 10;
const VOLUME: u64 = 4 << 20;
const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];

/// A volume whose last chunk is short, over an origin whose discards leave garbage.
fn setup(mode: WriteMode) -> Setup {
    let mut setup = Setup { origin_bytes: VOLUME - 2560, ..Setup::default() };
    setup.options.mode = mode;
    setup.origin = SimDeviceOptions { discard_zeroes: false, ..SimDeviceOptions::default() };
    setup
}

fn volume() -> usize {
    VOLUME as usize - 2560
}

#[test]
fn trimmed_ranges_read_as_zeroes_and_stay_so() {
    each_seed(12, |seed| {
        for mode in MODES {
            let mut world = World::new(seed, setup(mode));
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            world.fill_origin(0, &noise(99, volume()));
            twin.write(0, &noise(99, volume()));
            for number in 0..100 {
                let longest = [3, 40, 400][rng.index(3)];
                let (offset, len) = random_run(&mut rng, volume() as u64, longest);
                match rng.below(4) {
                    0 => {
                        world.write(offset, &noise(number, len));
                        twin.write(offset, &noise(number, len));
                    }
                    1 => assert_same(&world.read(offset, len), &twin.bytes(offset, len), "a read"),
                    _ => {
                        let flags = ZeroFlags { no_hole: rng.chance(1, 2), ..ZeroFlags::default() };
                        world.zero(offset, len as u64, flags);
                        twin.zero(offset, len as u64);
                        assert!(world.read(offset, len).iter().all(|&b| b == 0), "right after the trim");
                    }
                }
            }
            let expected = twin.bytes(0, volume());
            world.flush();
            world.crash();
            world.open();
            assert_same(&world.read(0, volume()), &expected, "after a crash");
            assert!(world.destage_all());
            assert_same(&world.origin.sim.peek_durable(0, volume()), &expected, "the origin");
            assert_eq!(world.origin.asked(IoOp::Discard).len(), 0, "a plain discard promises no zeroes");
            world.crash();
            world.open();
            assert_same(&world.read(0, volume()), &expected, "after destaging and another crash");
        }
    });
}

#[test]
fn a_fua_trim_survives_a_crash_without_a_flush() {
    each_seed(12, |seed| {
        for mode in MODES {
            let mut world = World::new(seed, setup(mode));
            world.write(0, &noise(1, 8 * CHUNK));
            world.flush();
            let flags = ZeroFlags { fua: true, ..ZeroFlags::default() };
            world.zero(1024, 5 * CHUNK as u64, flags);
            world.crash();
            world.open();
            let mut expected = noise(1, 8 * CHUNK);
            expected[1024..1024 + 5 * CHUNK].fill(0);
            assert_same(&world.read(0, 8 * CHUNK), &expected, "after the crash");
        }
    });
}

#[test]
fn no_hole_is_passed_to_the_origin() {
    each_seed(6, |seed| {
        for mode in MODES {
            let world = World::new(seed, setup(mode));
            world.fill_origin(0, &noise(1, 64 * CHUNK));
            world.origin.take_events();
            let no_hole = ZeroFlags { no_hole: true, ..ZeroFlags::default() };
            world.zero(0, 8 * CHUNK as u64, no_hole);
            world.zero(32 * CHUNK as u64, 8 * CHUNK as u64, ZeroFlags::default());
            assert!(world.destage_all());
            world.flush();
            let zeroed = world.origin.asked(IoOp::WriteZeroes);
            assert!(zeroed.iter().any(|z| z.no_hole) && zeroed.iter().any(|z| !z.no_hole));
            for request in zeroed {
                assert_eq!(request.no_hole, request.offset < 32 * CHUNK as u64, "{mode:?}: {request:?}");
            }
            assert!(world.origin.sim.peek_durable(0, 8 * CHUNK).iter().all(|&b| b == 0));
            assert!(world.origin.sim.peek_durable(32 * CHUNK as u64, 8 * CHUNK).iter().all(|&b| b == 0));
        }
    });
}

#[test]
fn parts_of_chunks_are_trimmed_without_reading_the_origin() {
    each_seed(10, |seed| {
        let world = World::new(seed, setup(WriteMode::Back));
        world.fill_origin(0, &noise(1, 16 * CHUNK));
        let mut expected = noise(1, 16 * CHUNK);
        for (from, len) in [(512, 512), (CHUNK + 4096, 2 * CHUNK), (6 * CHUNK - 512, 1024), (9 * CHUNK, 1024)] {
            world.trim(from as u64, len as u64);
            expected[from..from + len].fill(0);
        }
        assert_eq!(world.origin_reads(), 0);
        assert_same(&world.read(0, 16 * CHUNK), &expected, "the chunks");
        assert!(world.destage_all());
        assert_same(&world.origin.sim.peek_durable(0, 16 * CHUNK), &expected, "the origin");
    });
}

#[test]
fn a_write_into_a_trimmed_run_survives_the_runs_destage() {
    each_seed(20, |seed| {
        let mut world = World::new(seed, setup(WriteMode::Back));
        world.fill_origin(0, &noise(1, 64 * CHUNK));
        world.trim(0, 64 * CHUNK as u64);
        let cache = world.cache().clone();
        world.run(all(vec![
            Box::pin(async { assert!(cache.destage_all().await) }),
            Box::pin(async {
                for lba in [3, 10, 40, 41, 63_u64] {
                    let data = larder_device::IoBuf::copy_of(&noise(lba, CHUNK)).freeze();
                    cache.write(lba * CHUNK as u64, data, Default::default()).await.expect("a write");
                    let part = larder_device::IoBuf::copy_of(&noise(lba, 512)).freeze();
                    cache.write((lba - 1) * CHUNK as u64 + 1024, part, Default::default()).await.expect("a part");
                }
            }),
        ]));
        drop(cache);
        let mut twin = Twin::new();
        for lba in [3, 10, 40, 41, 63_u64] {
            twin.write(lba * CHUNK as u64, &noise(lba, CHUNK));
            twin.write((lba - 1) * CHUNK as u64 + 1024, &noise(lba, 512));
        }
        let expected = twin.bytes(0, 64 * CHUNK);
        assert_same(&world.read(0, 64 * CHUNK), &expected, "at once");
        world.flush();
        world.crash();
        world.open();
        assert_same(&world.read(0, 64 * CHUNK), &expected, "after a crash");
        assert!(world.destage_all());
        assert_same(&world.origin.sim.peek_durable(0, 64 * CHUNK), &expected, "the origin");
    });
}

/// Returns the processor time of this thread: a simulation waits for nothing, but others may run.
fn processor_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the times of this thread");
    let ran = times.split_whitespace().next().and_then(|field| field.parse().ok());
    Duration::from_nanos(ran.expect("nanoseconds"))
}

#[test]
fn trimming_the_whole_of_a_large_device_is_quick_and_small() {
    // 256 GiB have 33 million chunks: nothing may cost time, memory or log for each of them.
    let origin_bytes = 1 << 38;
    let mut world = World::new(1, Setup { origin_bytes, flash_bytes: 32 * MIB, ..Setup::default() });
    for number in 0..50_u64 {
        world.write(number << 32, &noise(number, 3 * CHUNK));
    }
    let before = world.status();
    let began = processor_time();
    let steps = world.runtime.steps();
    world.trim(0, origin_bytes);
    world.flush();
    let took = processor_time() - began;
    let status = world.status();
    assert!(took < Duration::from_secs(5), "the trim took {took:?}");
    assert!(world.runtime.steps() - steps < 500_000, "{} steps", world.runtime.steps() - steps);
    let log = status.counts.flash_log_bytes_written - before.counts.flash_log_bytes_written;
    assert!(log < 4 * MIB, "{log} bytes of log");
    let ram = status.index_ram_bytes.saturating_sub(before.index_ram_bytes);
    assert!(ram < MIB, "{ram} bytes of index");
    assert!(world.read(49 << 32, 3 * CHUNK).iter().all(|&b| b == 0));
    let began = processor_time();
    world.crash();
    world.open();
    assert!(world.read(3 << 32, 3 * CHUNK).iter().all(|&b| b == 0), "after a crash");
    let took = processor_time() - began;
    assert!(took < Duration::from_secs(5), "opening after the crash took {took:?}");
}

/// Checks that the cost of a trim follows its mappings, without dirty data and past a failed flash.
/// A walk over its chunks would not end.
#[test]
fn a_trim_of_a_huge_device_looks_at_mapped_chunks_alone() {
    let origin_bytes = 1 << 52;
    for mode in MODES {
        let mut setup = Setup { origin_bytes, ..Setup::default() };
        setup.options.mode = mode;
        setup.tuning.fence = MemoryFence::new().keeper();
        let world = World::new(1, setup);
        for number in 0..20_u64 {
            world.fill_origin(number << 40, &noise(number, 3 * CHUNK));
            assert_same(&world.read(number << 40, 3 * CHUNK), &noise(number, 3 * CHUNK), "a read");
        }
        world.wait_for_insertions();
        if mode == WriteMode::Back {
            world.write(7 << 40, &noise(77, CHUNK));
            world.flash.sim.plan().add(Fault { op: None, range: None, kind: IoErrorKind::Gone, times: FOR_EVER });
            assert!(world.try_write(9 << 40, &noise(99, CHUNK), true).is_ok(), "past the flash");
        }
        world.trim(0, origin_bytes);
        for number in 0..20_u64 {
            assert!(world.read(number << 40, 3 * CHUNK).iter().all(|&byte| byte == 0), "{mode:?}");
        }
        assert_eq!(world.status().dirty_bytes, 0);
    }
}

#[test]
fn a_checkpoint_of_a_trimmed_large_device_opens_quickly() {
    let origin_bytes = 1 << 38;
    let mut world = World::new(1, Setup { origin_bytes, flash_bytes: 32 * MIB, ..Setup::default() });
    world.trim(0, origin_bytes);
    world.write(5 << 32, &noise(5, CHUNK));
    world.close();
    let began = Instant::now();
    world.open();
    let took = began.elapsed();
    assert_same(&world.read(5 << 32, CHUNK), &noise(5, CHUNK), "a write into the trimmed run");
    assert!(took < Duration::from_secs(5), "opening took {took:?}");
}
