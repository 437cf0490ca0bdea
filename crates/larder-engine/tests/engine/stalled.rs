//! Flash full of unreadable dirty data: it cannot leave, so writers must not wait for it.
//!
//! It leaves a flash that refuses writes or is gone to `degraded.rs`.

use crate::common::*;
use crate::fence::MemoryFence;
use larder_device::{
    IoErrorKind, IoOp, Runtime,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::Schedule,
};
use std::{sync::Arc, time::Duration};

const CHUNK: usize = 8 << 10;
/// More than the flash of a [`Setup`] holds.
const CHUNKS: u64 = 3000;
/// The longest wait of a write.
///
/// It is 10 s without progress, which may begin at the second try, and a try every 2 s.
const WRITE_MAX: Duration = Duration::from_secs(16);

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

/// Times are judged if timers keep them; every second seed has any order.
fn schedule_of(seed: u64) -> Schedule {
    if seed.is_multiple_of(2) { Schedule::Timed } else { Schedule::Chaos }
}

fn fenced_world(seed: u64) -> (World, Arc<MemoryFence>) {
    let fence = MemoryFence::new();
    let mut setup = Setup { schedule: schedule_of(seed), ..Setup::default() };
    setup.tuning.fence = fence.keeper();
    (World::new(seed, setup), fence)
}

fn reads_fail(range: Option<std::ops::Range<u64>>) -> Fault {
    Fault { op: Some(IoOp::Read), range, kind: IoErrorKind::Io, times: FOR_EVER }
}

fn has(world: &World, name: &str) -> bool {
    world.status().conditions.iter().any(|condition| condition.name == name)
}

/// Writes dirty chunks until the cache is nearly full of them, and returns their number.
fn fill(world: &World) -> u64 {
    let chunks = world.setup.flash_bytes / CHUNK as u64 / 2;
    (0..chunks).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
    world.flush();
    chunks
}

/// Writes the chunks from `first` on, all of them new content, and returns the slowest write's
/// time.
fn write_on(world: &World, first: u64) -> Duration {
    let timed = |lba| {
        let began = world.runtime.now();
        world.write(at(lba), &noise(lba, CHUNK));
        world.runtime.now() - began
    };
    (first..CHUNKS).map(timed).max().expect("some are left")
}

/// Checks the chunks from before the failure: the `dirty` ones are errors, and none is old.
fn nothing_is_old(world: &World, chunks: u64, dirty: u64) {
    let mut lost = 0;
    for lba in 0..chunks {
        match world.try_read(at(lba), CHUNK) {
            Ok(found) => assert_same(&found, &noise(lba, CHUNK), "what the origin has"),
            Err(_) => lost += 1,
        }
    }
    println!("{}: {lost} of {chunks} chunks cannot be read", design::name(design::chosen()));
    assert_eq!(lost, dirty, "chunks that were dirty, and that the flash does not give back");
}

/// Counts the chunks that the origin lacks.
fn dirty_chunks(world: &World) -> u64 {
    world.status().dirty_bytes / CHUNK as u64
}

/// No dirty data is readable: writers go past the flash after a while, and all later data is kept.
#[test]
fn flash_that_cannot_be_read_does_not_hold_up_writers() {
    each_seed(8, |seed| {
        let (world, fence) = fenced_world(seed);
        let kept = fill(&world);
        let dirty = dirty_chunks(&world);
        world.flash.sim.plan().add(reads_fail(None));
        let slowest = write_on(&world, kept);
        assert!(schedule_of(seed) == Schedule::Chaos || slowest < WRITE_MAX, "a write took {slowest:?}");
        assert!(has(&world, "flash_failed") && fence.is_up(), "{:?}", world.status().conditions);
        // Data still in memory may have been read; the rest is there.
        for lba in kept..CHUNKS {
            if let Ok(found) = world.try_read(at(lba), CHUNK) {
                assert_same(&found, &noise(lba, CHUNK), "what was written since");
            }
        }
        assert_same(&world.read(at(CHUNKS - 1), CHUNK), &noise(CHUNKS - 1, CHUNK), "what went past the flash");
        nothing_is_old(&world, kept, dirty);
    });
}

/// The same without a fence: an error that says why, and no write that waits for ever.
#[test]
fn without_a_fence_the_writers_are_told() {
    each_seed(4, |seed| {
        let world = World::new(seed, Setup::default());
        let kept = fill(&world);
        world.flash.sim.plan().add(reads_fail(None));
        let refused = (kept..CHUNKS).find_map(|lba| world.try_write(at(lba), &noise(lba, CHUNK), false).err());
        let refused = refused.expect("the flash has no room for so much").to_string();
        assert!(refused.contains("wait for room"), "{refused}");
    });
}

/// The same with damaged records.
///
/// Data written from then on is sound, and leaves in place of the damaged.
#[test]
fn rotten_flash_does_not_hold_up_writers() {
    each_seed(6, |seed| {
        let (world, fence) = fenced_world(seed);
        let kept = fill(&world);
        let dirty = dirty_chunks(&world);
        let (layout, mut rng) = (world.layout(), Rng::new(seed));
        for sector in 0..u64::from(layout.slot_count) * u64::from(layout.slot_bytes) / 512 {
            world.flash.sim.corrupt(layout.slots_offset + sector * 512, 512, &mut rng);
        }
        let slowest = write_on(&world, kept);
        assert!(schedule_of(seed) == Schedule::Chaos || slowest < WRITE_MAX, "a write took {slowest:?}");
        assert!(has(&world, "dirty_data_lost"), "{:?}", world.status().conditions);
        assert_eq!(has(&world, "flash_failed"), fence.is_up());
        nothing_is_old(&world, kept, dirty);
    });
}

/// An origin that fails keeps writers waiting; that is not the flash's fault, and nothing is lost.
#[test]
fn a_failing_origin_is_waited_for() {
    each_seed(4, |seed| {
        let (world, fence) = fenced_world(seed);
        let kept = fill(&world);
        world.origin.sim.plan().add(Fault {
            op: Some(IoOp::Write),
            range: None,
            kind: IoErrorKind::Io,
            times: FOR_EVER,
        });
        let (runtime, origin) = (world.runtime.clone(), world.origin.clone());
        let healed = async move {
            runtime.delay(Duration::from_secs(3600)).await.ok();
            origin.sim.plan().clear();
        };
        world.runtime.spawn(Box::pin(healed));
        assert!(write_on(&world, kept) > Duration::from_secs(3000), "some write waited");
        assert!(!world.status().degraded && !fence.is_up(), "{:?}", world.status().conditions);
        for lba in (0..CHUNKS).step_by(7) {
            assert_same(&world.read(at(lba), CHUNK), &noise(lba, CHUNK), "all of it");
        }
    });
}

/// Neighbours of a bad sector are read with it in one request.
///
/// The sector keeps only its own record from the origin.
#[test]
fn a_bad_sector_keeps_only_its_own_record_dirty() {
    each_seed(4, |seed| {
        let (world, _) = fenced_world(seed);
        for lba in 0..40 {
            world.write(at(lba), &noise(lba, CHUNK));
        }
        world.flush();
        let record = world.record_of(20).range;
        let middle = (record.start + record.end) / 2;
        world.flash.sim.plan().add(reads_fail(Some(middle..middle + 1)));
        assert!(!world.destage_all(), "one chunk is left");
        assert_eq!(world.status().dirty_bytes, CHUNK as u64);
        for lba in (0..40).filter(|&lba| lba != 20) {
            assert_same(&world.origin.sim.peek_durable(at(lba), CHUNK), &noise(lba, CHUNK), "a neighbour");
        }
        world.flash.sim.plan().clear();
        assert!(world.destage_all(), "the sector can be read again");
        assert_same(&world.origin.sim.peek_durable(at(20), CHUNK), &noise(20, CHUNK), "the chunk itself");
    });
}
