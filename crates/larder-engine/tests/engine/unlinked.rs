//! Durable requests on a flash whose file has lost its name. The content goes with the process, so
//! the origin durably has each request when it is answered.
//!
//! It leaves FLUSH, and a flash that fails besides, to `degraded.rs`.

use crate::common::*;
use crate::fence::MemoryFence;
use larder_device::{
    IoErrorKind, IoOp, Runtime, Standing, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::Schedule,
};
use larder_engine::{EngineError, WriteMode, config::TrimPolicy, fence::Keeper};
use std::{cell::Cell, time::Duration};

const CHUNK: usize = 8 << 10;
const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

fn setup(mode: WriteMode) -> Setup {
    let mut setup = Setup { origin_bytes: 8 * MIB, ..Setup::default() };
    setup.options.mode = mode;
    setup.tuning.prefetch_bytes_max = 0;
    setup
}

#[track_caller]
fn on_origin(world: &World, offset: u64, expected: &[u8], what: &str) {
    assert_same(&world.origin.sim.peek_durable(offset, expected.len()), expected, what);
}

#[test]
fn a_durable_request_is_on_the_origin_when_it_is_answered() {
    each_seed(10, |seed| {
        for mode in MODES {
            for durable_writes in [false, true] {
                let mut setup = setup(mode);
                setup.tuning.durable_writes = durable_writes;
                let world = World::new(seed, setup);
                let mut rng = Rng::new(seed);
                let mut twin = Twin::new();
                (0..128).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
                twin.write(0, &world.read(0, 128 * CHUNK));
                world.flush();
                world.flash.stand(Standing::Unlinked);
                for number in 0..12 {
                    let (offset, len) = random_run(&mut rng, 128 * CHUNK as u64, 60);
                    let data = noise(1000 + number, len);
                    let what = format!("{mode:?}, durable writes: {durable_writes}, request {number}");
                    if rng.chance(1, 3) {
                        world.zero(offset, len as u64, ZeroFlags { fua: !durable_writes, ..ZeroFlags::default() });
                        on_origin(&world, offset, &vec![0; len], &what);
                        twin.zero(offset, len as u64);
                    } else {
                        let written = world.try_write(offset, &data, !durable_writes);
                        written.unwrap_or_else(|error| panic!("{what}: {error}"));
                        on_origin(&world, offset, &data, &what);
                        twin.write(offset, &data);
                    }
                }
                assert_same(&world.read(0, 128 * CHUNK), &twin.bytes(0, 128 * CHUNK), "the volume");
                world.flush();
                on_origin(&world, 0, &twin.bytes(0, 128 * CHUNK), "the origin after a FLUSH");
            }
        }
    });
}

/// A request waits for its own chunks, not for all that is dirty.
#[test]
fn a_durable_write_takes_its_own_chunks_to_the_origin_first() {
    each_seed(4, |seed| {
        // Otherwise the order of timers and requests is any.
        let setup = Setup { schedule: Schedule::Timed, ..setup(WriteMode::Back) };
        let world = World::new(seed, setup);
        (0..512).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
        world.flush();
        world.flash.stand(Standing::Unlinked);
        world.origin.slow_down(&world.runtime, Duration::from_millis(20));
        let began = world.runtime.now();
        world.write_fua(at(300), &noise(1, CHUNK));
        let took = world.runtime.now() - began;
        on_origin(&world, at(300), &noise(1, CHUNK), "the write");
        assert!(took < Duration::from_millis(200), "it waited {took:?} for others");
    });
}

#[test]
fn durable_writes_side_by_side_share_flushes_of_the_origin() {
    each_seed(4, |seed| {
        let world = World::new(seed, setup(WriteMode::Back));
        world.flash.stand(Standing::Unlinked);
        world.origin.slow_down(&world.runtime, Duration::from_millis(20));
        world.origin.take_events();
        let (world, cache) = (&world, world.cache());
        let write = |lba: u64| {
            let data = larder_device::IoBuf::copy_of(&noise(lba, CHUNK)).freeze();
            let written = cache.write(at(lba), data, larder_device::WriteFlags { fua: true });
            let write = async move {
                written.await.expect("written");
                on_origin(world, at(lba), &noise(lba, CHUNK), "a write when it is answered");
            };
            Box::pin(write) as std::pin::Pin<Box<dyn Future<Output = ()> + '_>>
        };
        world.run(all((0..64).map(|lba| write(2 * lba)).collect()));
        let flushes = world.origin.asked(IoOp::Flush).len();
        assert!(flushes <= 16, "{flushes} flushes for 64 writes");
    });
}

/// Without a fence, a FLUSH saves the data that was committed when the cut was noticed.
#[test]
fn a_flush_of_a_cut_flash_without_a_fence_fails_for_newer_data_alone() {
    each_seed(4, |seed| {
        for is_newer in [false, true] {
            let world = World::new(seed, setup(WriteMode::Back));
            world.write(at(3), &noise(1, CHUNK));
            world.flush();
            if is_newer {
                world.write(at(9), &noise(2, CHUNK));
            }
            world.flash.stand(Standing::Truncated(4096));
            assert!(world.status().degraded, "the cut is noticed");
            let flushed = world.run(world.cache().flush());
            assert_eq!(flushed.is_err(), is_newer, "{flushed:?}");
            on_origin(&world, at(3), &noise(1, CHUNK), "durable data");
            world.try_write(at(12), &noise(3, CHUNK), false).expect_err("there is no fence");
        }
    });
}

/// Requests that end side by side share a look at the file.
#[test]
fn durable_writes_of_one_commit_share_a_look_at_the_file() {
    each_seed(4, |seed| {
        let world = World::new(seed, setup(WriteMode::Back));
        world.flash.slow_down(&world.runtime, Duration::from_millis(1));
        let (cache, looks, commits) = (world.cache(), world.flash.looks(), world.status().counts.commits);
        let began = world.runtime.now();
        let write = |lba: u64| {
            let data = larder_device::IoBuf::copy_of(&noise(lba, CHUNK)).freeze();
            let written = cache.write(at(lba), data, larder_device::WriteFlags { fua: true });
            Box::pin(async { written.await.expect("written") }) as std::pin::Pin<Box<dyn Future<Output = ()>>>
        };
        world.run(all((0..64).map(write).collect()));
        let looks = world.flash.looks() - looks;
        let commits = world.status().counts.commits - commits;
        let seconds = (world.runtime.now() - began).as_secs();
        // The timer looks once a second, and a status does.
        assert!(commits < 16 && looks <= 2 * commits + seconds + 4, "{looks} looks, {commits} commits");
        world.flash.at_full_speed();
        // A request that a commit before it has covered looks by itself.
        world.zero(at(100), CHUNK as u64, ZeroFlags { fua: true, ..ZeroFlags::default() });
        world.flash.stand(Standing::Unlinked);
        world.zero(at(100), SECTOR as u64, ZeroFlags { fua: true, ..ZeroFlags::default() });
        on_origin(&world, at(100), &vec![0; CHUNK], "zeroes that were zeroes before");
    });
}

/// The file loses its name, or its end, while a request is under way.
#[test]
fn a_request_under_way_when_the_flash_loses_its_name_is_on_the_origin_too() {
    each_seed(8, |seed| {
        for moment in 0..16 {
            let world = World::new(seed, setup(WriteMode::Back));
            world.write(0, &noise(1, CHUNK));
            world.flush();
            world.flash.slow_down(&world.runtime, Duration::from_millis(10));
            let answered = Cell::new(false);
            let was_answered = Cell::new(false);
            let write = async {
                let data = larder_device::IoBuf::copy_of(&noise(2, 3 * CHUNK)).freeze();
                let flags = larder_device::WriteFlags { fua: true };
                world.cache().write(at(4), data, flags).await.expect("written");
                answered.set(true);
            };
            let lose = async {
                world.runtime.delay(Duration::from_millis(3 * moment)).await.expect("a pause");
                was_answered.set(answered.get());
                world.flash.stand(Standing::Unlinked);
            };
            world.run(all(vec![Box::pin(write), Box::pin(lose)]));
            if !was_answered.get() {
                on_origin(&world, at(4), &noise(2, 3 * CHUNK), &format!("at {} ms", 3 * moment));
            }
        }
    });
}

#[test]
fn a_trim_under_durable_writes_is_on_the_origin_by_each_policy() {
    each_seed(6, |seed| {
        for policy in [TrimPolicy::Zero, TrimPolicy::Pass, TrimPolicy::Keep] {
            let mut setup = setup(WriteMode::Back);
            setup.tuning.durable_writes = true;
            setup.tuning.trim = policy;
            let world = World::new(seed, setup);
            (0..64).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
            world.flush();
            assert!(world.destage_all());
            world.trim(at(2), 2 * CHUNK as u64);
            world.flash.stand(Standing::Unlinked);
            world.trim(at(8), 40 * CHUNK as u64);
            on_origin(&world, at(8), &vec![0; 40 * CHUNK], &format!("{policy:?}"));
            on_origin(&world, at(50), &noise(50, CHUNK), &format!("{policy:?}: its neighbour"));
        }
    });
}

/// The zeroes are more than one batch of a destage takes.
#[test]
fn durable_zeroes_over_the_whole_volume_are_on_the_origin() {
    each_seed(2, |seed| {
        let world = World::new(seed, Setup { origin_bytes: 40 * MIB, ..setup(WriteMode::Back) });
        let volume = world.setup.origin_bytes;
        world.fill_origin(0, &noise(7, volume as usize));
        (0..40).for_each(|n| world.write(at(20 * n), &noise(n, CHUNK)));
        world.flash.stand(Standing::Unlinked);
        world.origin.slow_down(&world.runtime, Duration::from_millis(600));
        world.zero(0, volume, ZeroFlags { fua: true, ..ZeroFlags::default() });
        on_origin(&world, 0, &vec![0; volume as usize], "all of it");
    });
}

/// A durable write is refused while the origin takes none. The cache goes on, and later ones
/// succeed.
#[test]
fn a_durable_write_fails_while_the_origin_takes_none() {
    each_seed(6, |seed| {
        for (op, kind) in [(IoOp::Write, IoErrorKind::NoSpace), (IoOp::Flush, IoErrorKind::Io)] {
            let world = World::new(seed, setup(WriteMode::Back));
            world.write(0, &noise(1, CHUNK));
            world.flush();
            world.flash.stand(Standing::Unlinked);
            world.origin.sim.plan().add(Fault { op: Some(op), range: None, kind, times: FOR_EVER });
            for number in 2..5 {
                let error = world.try_write(at(number), &noise(number, 2 * CHUNK), true).expect_err("not durable");
                assert!(!error.to_string().contains("fence"), "{error}");
            }
            assert_same(&world.read(0, CHUNK), &noise(1, CHUNK), "a read");
            assert!(!world.status().degraded, "the flash works");
            world.origin.sim.plan().clear();
            world.write_fua(at(3), &noise(9, CHUNK));
            on_origin(&world, at(3), &noise(9, CHUNK), "a later write");
        }
    });
}

/// The name of the flash leads to another file at the next opening, perhaps to an older copy. The
/// fence keeps it away, and tells whether data was lost with the flash.
#[test]
fn a_copy_in_the_place_of_a_flash_without_a_name_is_not_believed() {
    each_seed(6, |seed| {
        for mode in MODES {
            for is_destaged in [true, false] {
                let fence = MemoryFence::new();
                let mut setup = setup(mode);
                setup.tuning.fence = fence.keeper();
                setup.tuning.commit_interval_ms = 1000;
                // Otherwise the look at the name may be late.
                setup.schedule = Schedule::Timed;
                let mut world = World::new(seed, setup);
                world.write(0, &noise(1, 8 * CHUNK));
                assert!(world.destage_all());
                world.read(0, 8 * CHUNK);
                world.wait_for_insertions();
                world.flush();
                let copy = world.flash.sim.peek_durable(0, world.setup.flash_bytes as usize);
                world.write(0, &noise(2, 8 * CHUNK));
                world.flush();
                world.flash.stand(Standing::Unlinked);
                if !is_destaged {
                    let fault = Fault { op: Some(IoOp::Write), range: None, kind: IoErrorKind::Io, times: FOR_EVER };
                    world.origin.sim.plan().add(fault);
                }
                world.runtime.run_for(Duration::from_secs(5));
                assert!(fence.is_up(), "{mode:?}");
                world.kill();
                world.origin.sim.plan().clear();
                world.flash.stand(Standing::Sound);
                world.flash.sim.poke(0, &copy);
                let expected = match (mode, is_destaged) {
                    (WriteMode::Back, false) => {
                        match world.try_open() {
                            Err(EngineError::Fenced { noted_bytes, .. }) => assert_eq!(noted_bytes, 8 * CHUNK as u64),
                            other => panic!("seed {seed}: {other:?}"),
                        }
                        world.setup.tuning.discard_fenced = true;
                        // A write that failed may have changed a part.
                        world.origin.sim.peek_durable(0, 8 * CHUNK)
                    }
                    _ => noise(2, 8 * CHUNK),
                };
                world.open();
                assert_same(&world.read(0, 8 * CHUNK), &expected, &format!("{mode:?}, destaged: {is_destaged}"));
                assert!(!fence.is_up(), "{mode:?}");
            }
        }
    });
}

/// The keeper refuses the fence at first, and then its note. Each look at the flash tries again,
/// and the condition tells the fence that is missing.
#[test]
fn a_fence_that_the_keeper_refused_is_tried_again() {
    each_seed(4, |seed| {
        for standing in [Standing::Unlinked, Standing::Truncated(4096)] {
            let fence = MemoryFence::new();
            let mut setup = Setup { schedule: Schedule::Timed, ..setup(WriteMode::Back) };
            setup.tuning.fence = fence.keeper();
            let world = World::new(seed, setup);
            world.write(0, &noise(1, 8 * CHUNK));
            world.flush();
            fence.break_down(true);
            world.flash.stand(standing);
            world.runtime.run_for(Duration::from_secs(3));
            assert!(!fence.is_up());
            let conditions = world.status().conditions;
            assert!(conditions.iter().any(|it| it.name == "fence_refused"), "{standing:?}: {conditions:?}");
            fence.break_down(false);
            world.runtime.run_for(Duration::from_secs(5));
            assert!(fence.is_up() && fence.is_destaged(), "{standing:?}");
            assert!(!world.status().conditions.iter().any(|it| it.name == "fence_refused"), "{standing:?}");
        }
    });
}

/// Checks that a cut flash has failed: a durable write passes it behind the fence, or is refused.
#[test]
fn a_durable_request_on_a_flash_that_was_cut_goes_behind_the_fence() {
    each_seed(6, |seed| {
        for has_fence in [true, false] {
            for is_zero in [true, false] {
                let fence = MemoryFence::new();
                let mut setup = setup(WriteMode::Back);
                setup.tuning.fence = if has_fence { fence.keeper() } else { Keeper(None) };
                let world = World::new(seed, setup);
                world.write(0, &noise(1, 4 * CHUNK));
                world.flush();
                world.flash.stand(Standing::Truncated(4096));
                let flags = ZeroFlags { fua: true, ..ZeroFlags::default() };
                let (expected, done) = match is_zero {
                    true => (vec![0; CHUNK], world.run(world.cache().zero(at(1), CHUNK as u64, flags)).is_ok()),
                    false => (noise(2, CHUNK), world.try_write(at(1), &noise(2, CHUNK), true).is_ok()),
                };
                assert_eq!((done, fence.is_up()), (has_fence, has_fence), "zeroes: {is_zero}");
                if has_fence {
                    on_origin(&world, at(1), &expected, &format!("zeroes: {is_zero}"));
                }
            }
        }
    });
}
