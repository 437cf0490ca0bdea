//! Devices that are short of space, quota or descriptors, or that fail for a while. Acknowledged
//! data stays, and work goes on when the cause is gone. An origin that hangs delays only the
//! requests that need it.
//!
//! It leaves a flash that fails for good to `degraded.rs`.

use crate::common::*;
use crate::fence::MemoryFence;
use larder_device::{
    IoErrorKind, IoOp, Runtime,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::Schedule,
};
use larder_engine::{EngineError, WriteMode};
use std::{sync::Arc, time::Duration};

const CHUNK: usize = 8 << 10;
const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];
const SHORTAGES: [IoErrorKind; 3] = [IoErrorKind::NoSpace, IoErrorKind::Quota, IoErrorKind::TooManyFiles];

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

/// Timers keep the time in tests that judge it.
fn world_of(seed: u64, mode: WriteMode) -> (World, Arc<MemoryFence>) {
    world_in(Schedule::Timed, seed, mode)
}

fn world_in(schedule: Schedule, seed: u64, mode: WriteMode) -> (World, Arc<MemoryFence>) {
    let fence = MemoryFence::new();
    let mut setup = Setup { origin_bytes: 32 * MIB, schedule, ..Setup::default() };
    setup.options.mode = mode;
    setup.tuning.prefetch_bytes_max = 0;
    setup.tuning.fence = fence.keeper();
    (World::new(seed, setup), fence)
}

/// Ends the planned failures of both devices after a while.
fn heal_after(world: &World, time: Duration) {
    let (runtime, flash, origin) = (world.runtime.clone(), world.flash.clone(), world.origin.clone());
    world.runtime.spawn(Box::pin(async move {
        runtime.delay(time).await.ok();
        flash.sim.plan().clear();
        flash.sim.set_full(false);
        origin.sim.plan().clear();
        origin.at_full_speed();
    }));
}

fn refuse(world: &World, op: IoOp, kind: IoErrorKind) {
    world.flash.sim.plan().add(Fault { op: Some(op), range: None, kind, times: FOR_EVER });
}

/// Writes, trims, flushes and reads at random; each read is checked.
fn work(world: &World, twin: &mut Twin, rng: &mut Rng, rounds: u64) {
    for _ in 0..rounds {
        let (offset, len) = random_run(rng, 4 * MIB, 48);
        match rng.below(8) {
            0..5 => {
                let data = noise(rng.next_u64(), len);
                world.try_write(offset, &data, rng.chance(1, 8)).unwrap_or_else(|error| panic!("write: {error}"));
                twin.write(offset, &data);
            }
            5 => world.flush(),
            _ => assert_same(&world.read(offset, len), &twin.bytes(offset, len), "a read"),
        }
    }
}

/// A cache waits for a flash without room as long as the shortage lasts.
///
/// That holds in each mode and for each reason, and the flash does not fail.
#[test]
fn a_flash_that_has_no_room_is_waited_for_and_loses_nothing() {
    each_seed(6, |seed| {
        for mode in MODES {
            for (number, kind) in SHORTAGES.into_iter().enumerate() {
                let schedule = if seed.is_multiple_of(2) { Schedule::Timed } else { Schedule::Chaos };
                let (mut world, fence) = world_in(schedule, seed + 100 * number as u64, mode);
                let (mut rng, mut twin) = (Rng::new(seed), Twin::new());
                work(&world, &mut twin, &mut rng, 40);
                for _ in 0..3 {
                    refuse(&world, IoOp::Write, kind);
                    heal_after(&world, Duration::from_secs(1 + rng.below(300)));
                    work(&world, &mut twin, &mut rng, 40);
                    world.flush();
                }
                heal_after(&world, Duration::ZERO);
                let status = world.status();
                assert!(!status.degraded && !fence.is_up(), "{mode:?} {kind:?}: {:?}", status.conditions);
                world.flush();
                world.crash();
                world.open();
                assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "after a crash");
                assert_eq!(world.status().counts.corrupt_records, 0);
            }
        }
    });
}

/// A sparse file on a full file system: ranges with blocks can be written over, the others wait.
#[test]
fn a_flash_that_is_full_in_places_is_waited_for() {
    each_seed(6, |seed| {
        for mode in MODES {
            let (mut world, fence) = world_of(seed, mode);
            let (mut rng, mut twin) = (Rng::new(seed), Twin::new());
            work(&world, &mut twin, &mut rng, 40);
            world.flash.sim.set_full(true);
            heal_after(&world, Duration::from_secs(120));
            work(&world, &mut twin, &mut rng, 200);
            world.flush();
            heal_after(&world, Duration::ZERO);
            assert!(!world.status().degraded && !fence.is_up(), "{mode:?}: {:?}", world.status().conditions);
            world.crash();
            world.flash.sim.set_full(false);
            world.open();
            assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "after a crash");
        }
    });
}

/// Checkpoints have room or wait for it; they do not make the flash fail.
#[test]
fn checkpoints_wait_for_room() {
    // Refused are the whole areas, or their headers alone.
    [u64::MAX, 4096].into_iter().for_each(a_checkpoint_waits_for_room);
}

fn a_checkpoint_waits_for_room(refused_bytes: u64) {
    let (mut world, fence) = world_of(5, WriteMode::Back);
    let layout = world.layout();
    for area in layout.checkpoint_offset {
        let range = area..area + layout.checkpoint_area_bytes.min(refused_bytes);
        world.flash.sim.fail_range(IoOp::Write, range, IoErrorKind::NoSpace, FOR_EVER);
    }
    let is_full = |world: &World| world.status().conditions.iter().any(|condition| condition.name == "flash_full");
    let mut written = 0;
    while !is_full(&world) {
        assert!(written < 20_000, "a checkpoint is due by now: {}%", world.status().log_used_percent);
        world.write(at(written % 512), &noise(written, CHUNK));
        written += 1;
        if written % 16 == 0 {
            world.flush();
        }
    }
    world.run(world.runtime.delay(Duration::from_secs(60))).expect("time");
    assert!(is_full(&world) && !world.status().degraded && !fence.is_up(), "{:?}", world.status().conditions);
    assert!(world.status().log_used_percent < 90, "{}%: tries eat the log", world.status().log_used_percent);
    heal_after(&world, Duration::ZERO);
    world.run(world.runtime.delay(Duration::from_secs(5))).expect("time");
    assert!(!is_full(&world), "{:?}", world.status().conditions);
    world.close();
    world.open();
    let newest = |lba: u64| (0..written).rev().find(|number| number % 512 == lba).expect("each was written");
    for lba in (0..written.min(512)).step_by(31) {
        assert_same(&world.read(at(lba), CHUNK), &noise(newest(lba), CHUNK), "after a restart");
    }
}

/// An end waits for room for a limited time.
///
/// With a fence all data then goes to the origin; without one the end fails. Flushed data stays.
#[test]
fn an_end_waits_for_room_a_little_while() {
    for has_fence in [true, false] {
        let (mut world, fence) = world_of(9, WriteMode::Back);
        world.write(at(0), &noise(0, CHUNK));
        world.flush();
        world.write(at(1), &noise(1, CHUNK));
        refuse(&world, IoOp::Write, IoErrorKind::NoSpace);
        fence.break_down(!has_fence);
        let began = world.runtime.now();
        let closed = world.run(world.cache().close());
        assert!(world.runtime.now() - began < Duration::from_secs(20), "{:?}", world.runtime.now() - began);
        assert_eq!(closed.is_ok(), has_fence, "{closed:?}");
        if has_fence {
            assert_same(&world.origin.sim.peek_durable(at(1), CHUNK), &noise(1, CHUNK), "past the flash");
        }
        world.crash();
        world.flash.sim.plan().clear();
        fence.break_down(false);
        world.setup.tuning.discard_fenced = true;
        if !has_fence {
            world.open();
            assert_same(&world.read(at(0), CHUNK), &noise(0, CHUNK), "what was flushed");
        }
    }
}

/// With the timeout of the tuning, a flash that stays full counts as failed, and writes go past it.
#[test]
fn a_full_flash_fails_after_the_time_that_the_tuning_gives_it() {
    let (mut world, fence) = world_of(11, WriteMode::Back);
    world.close();
    world.setup.tuning.flash_full_timeout = Some(Duration::from_secs(40));
    world.open();
    world.write(at(0), &noise(0, CHUNK));
    refuse(&world, IoOp::Write, IoErrorKind::Quota);
    let began = world.runtime.now();
    world.flush();
    let took = world.runtime.now() - began;
    assert!((40..60).contains(&took.as_secs()), "{took:?}");
    assert!(world.status().degraded && fence.is_up());
    assert_same(&world.origin.sim.peek_durable(at(0), CHUNK), &noise(0, CHUNK), "past the flash");
}

/// A device that fails for a moment is tried again.
///
/// A device that goes on failing counts as failed within seconds.
#[test]
fn a_flash_that_fails_for_a_moment_heals() {
    each_seed(6, |seed| {
        for (heals, after) in [(true, Duration::from_secs(2)), (false, Duration::from_secs(3600))] {
            let (world, fence) = world_of(seed, WriteMode::Back);
            world.write(at(0), &noise(0, CHUNK));
            refuse(&world, IoOp::Write, IoErrorKind::Io);
            heal_after(&world, after);
            let began = world.runtime.now();
            world.flush();
            assert!(world.runtime.now() - began < Duration::from_secs(30), "{:?}", world.runtime.now() - began);
            assert_eq!((world.status().degraded, fence.is_up()), (!heals, !heals), "{:?}", world.status().conditions);
            assert_same(&world.read(at(0), CHUNK), &noise(0, CHUNK), "the chunk");
        }
    });
}

/// Beside an origin without room, dirty data stays in the cache until there is room.
///
/// Then it reaches the origin. A caller that waits for it sees the failure.
#[test]
fn an_origin_that_has_no_room_heals_by_itself() {
    for kind in SHORTAGES {
        let (world, _) = world_of(13, WriteMode::Back);
        for lba in 0..64 {
            world.write(at(lba), &noise(lba, CHUNK));
        }
        world.origin.sim.plan().add(Fault { op: Some(IoOp::Write), range: None, kind, times: FOR_EVER });
        assert!(!world.destage_all());
        assert_eq!(world.status().dirty_bytes, 64 * CHUNK as u64);
        let health = world.status().health;
        assert!(health.contains("the origin fails (") && health.contains("dirty data stays"), "{health}");
        heal_after(&world, Duration::ZERO);
        // No client and no operator asks for anything.
        world.run(world.runtime.delay(Duration::from_secs(15))).expect("time");
        assert_eq!(world.status().health, "ok");
        assert!(world.destage_all());
        for lba in 0..64 {
            assert_same(&world.origin.sim.peek_durable(at(lba), CHUNK), &noise(lba, CHUNK), "destaged");
        }
    }
}

/// Beside an origin that hangs, eviction takes clean data.
///
/// Writers find room, though some dirty data could not leave.
#[test]
fn eviction_goes_on_beside_an_origin_that_hangs() {
    each_seed(4, |seed| {
        let (world, _) = world_of(seed, WriteMode::Back);
        // Flash full of clean data, with dirty data in the oldest slots.
        let chunks = world.setup.flash_bytes / CHUNK as u64;
        (0..chunks).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
        assert!(world.destage_all());
        for lba in (0..64).step_by(8) {
            world.write(at(lba), &noise(5000 + lba, CHUNK));
        }
        world.flush();
        world.origin.slow_down(&world.runtime, Duration::from_secs(7200));
        let began = world.runtime.now();
        for lba in 2048..2048 + 512 {
            world.write(at(lba), &noise(lba, CHUNK));
        }
        world.flush();
        let took = world.runtime.now() - began;
        assert!(took < Duration::from_secs(120), "writes took {took:?}");
        for lba in (2048..2048 + 512).step_by(37) {
            assert_same(&world.read(at(lba), CHUNK), &noise(lba, CHUNK), "written meanwhile");
        }
        for lba in (0..64).step_by(8) {
            assert_same(&world.read(at(lba), CHUNK), &noise(5000 + lba, CHUNK), "dirty, and kept");
        }
        heal_after(&world, Duration::ZERO);
        assert!(world.destage_all());
    });
}

/// An opening that waits for the origin reports a condition.
#[test]
fn an_opening_beside_an_origin_that_hangs_is_told() {
    let heard = Arc::new(crate::conditions::Heard::default());
    let mut setup = Setup { schedule: Schedule::Timed, ..Setup::default() };
    setup.tuning.listener = heard.listener();
    let mut world = World::made(1, setup);
    world.origin.slow_down(&world.runtime, Duration::from_secs(90));
    world.open();
    world.origin.at_full_speed();
    world.run(world.runtime.delay(Duration::from_secs(10))).expect("time");
    assert_eq!((heard.count("+origin_hangs"), heard.count("-origin_hangs")), (1, 1));
}

/// A superblock without room refuses the opening with a sentence.
///
/// The next opening finds the same cache.
#[test]
fn an_opening_without_room_changes_nothing() {
    let (mut world, _) = world_of(17, WriteMode::Back);
    world.write(at(0), &noise(0, CHUNK));
    world.close();
    refuse(&world, IoOp::Write, IoErrorKind::NoSpace);
    match world.try_open() {
        Err(EngineError::Flash(error)) => assert_eq!(error.kind, IoErrorKind::NoSpace),
        other => panic!("{other:?}"),
    }
    world.crash();
    world.flash.sim.plan().clear();
    world.open();
    assert_same(&world.read(at(0), CHUNK), &noise(0, CHUNK), "the chunk");
}
