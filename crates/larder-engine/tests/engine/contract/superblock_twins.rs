//! The superblock's twins and their log: without either twin, the other one and its log are whole.
//!
//! Invariants: as in `mod.rs`.

use super::{crowds::patient, gate::*};
use crate::world::{World, identify, read, write, zero};
use larder_device::{BlockDevice, IoErrorKind, IoOp, Runtime, ZeroFlags, faulty::Fault, rng::Rng};
use larder_engine::{Cache, WriteMode};
use larder_format::{layout::SUPERBLOCK_OFFSETS, superblock::SUPERBLOCK_BYTES};
use parking_lot::Mutex;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    time::Duration,
};

/// Chunks that are written in turn.
const HOT: usize = 8;
/// More commits than the log has room for.
const COMMITS: usize = 1500;

/// Returns the stamp of the write with this number.
fn stamp(number: usize) -> u32 {
    1001 + 2 * number as u32
}

fn rot_twin(world: &World, twin: usize) {
    world.flash.corrupt(SUPERBLOCK_OFFSETS[twin], SUPERBLOCK_BYTES as u64, &mut Rng::new(7));
}

/// Loses power while the gate holds a checkpoint before it writes twin `held`.
///
/// Until then a client writes and flushes as much as it may. The written twins rot.
fn log_of_twins_that_are_not_written(held: usize) {
    let rt = patient(1);
    let world = World::new(&rt, without_buckets(shape(WriteMode::Back)));
    let flash = Gate::new(&world.flash);
    // The number of writes, and of flushed writes.
    let done = Arc::new(Mutex::new((0, 0)));
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        let used = async |percent| {
            while cache.status().log_used_percent < percent {
                let number = done.lock().0;
                write(&cache, number % HOT * CHUNK, &[stamp(number); CHUNK], false).await;
                *done.lock() = (number + 1, number);
                cache.flush().await.expect("flushed");
                done.lock().1 = number + 1;
            }
        };
        used(40).await;
        let at = SUPERBLOCK_OFFSETS[held];
        flash.hold_within(IoOp::Write, at..at + SUPERBLOCK_BYTES as u64);
        let checkpointing = cache.clone();
        spawn(&rt, async move { drop(checkpointing.checkpoint().await) });
        until(&rt, "a twin waits", || flash.waiting() > 0).await;
        let (writing, counted) = (cache.clone(), done.clone());
        spawn(&rt, async move {
            for _ in 0..COMMITS {
                let number = counted.lock().0;
                counted.lock().0 += 1;
                write(&writing, number % HOT * CHUNK, &[stamp(number); CHUNK], false).await;
                if writing.flush().await.is_err() {
                    return;
                }
                counted.lock().1 = number + 1;
            }
        });
        rt.delay(Duration::from_secs(5)).await.expect("a delay ends");
        assert!(done.lock().1 < COMMITS, "the log has room for all of them: nothing is shown");
    });
    rt.crash();
    (0..held).for_each(|twin| rot_twin(&world, twin));
    let (written, flushed) = *done.lock();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        for chunk in 0..HOT {
            let numbers = (0..written).filter(|number| number % HOT == chunk);
            let newest = numbers.clone().filter(|&number| number < flushed).max().expect("each was written");
            let allowed = numbers.filter(|&number| number >= newest).map(stamp);
            let bytes = read(&cache, chunk * CHUNK, 1).await;
            assert!(identify(&bytes, allowed).is_some(), "chunk {chunk} lost what was flushed");
        }
    });
}

#[test]
fn contract_the_log_is_kept_until_both_twins_name_the_checkpoint() {
    (0..2).for_each(log_of_twins_that_are_not_written);
}

/// Loses power after a checkpoint and commits without a flush of the flash; one twin rots.
///
/// The other twin was durable before the log reused the space that an older twin would need.
fn each_twin_is_durable(rotten: usize, seed: u64) {
    let rt = patient(seed);
    let world = World::new(&rt, over_weus(shape(WriteMode::Back)));
    let layout = world.layout();
    let flash = Gate::new(&world.flash);
    let kept = 200 * CHUNK;
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        cache.checkpoint().await.expect("a checkpoint");
        write(&cache, kept, &stamps(1001, CHUNK), true).await;
        let trim_until = async |percent| {
            let mut number = 0;
            while cache.status().log_used_percent < percent {
                zero(&cache, number % HOT * CHUNK, CHUNK, ZeroFlags { fua: true, ..ZeroFlags::default() }).await;
                number += 1;
            }
        };
        trim_until(45).await;
        cache.checkpoint().await.expect("a checkpoint");
        // From here on every checkpoint stays unfinished, and all commits are trims: the flash gets
        // no flush.
        let flushes = world.flash.counters().flushes;
        flash.hold_within(IoOp::Write, layout.checkpoint_offset[0]..layout.log_offset);
        trim_until(70).await;
        assert_eq!(world.flash.counters().flushes, flushes, "a flush makes a twin durable by chance");
    });
    rt.crash();
    rot_twin(&world, rotten);
    let rt = attach(&world, seed + 1000);
    rt.block_on(async { expect(&world.open(&rt).await, kept, &stamps(1001, CHUNK)).await });
}

#[test]
fn contract_each_superblock_twin_is_durable_when_the_log_is_used_again() {
    for seed in 0..4 {
        (0..2).for_each(|rotten| each_twin_is_durable(rotten, seed));
    }
}

/// A checkpoint fails at a twin, which is torn. The next one first writes that twin.
///
/// A power loss meanwhile tears the same twin again, and never the whole one.
#[test]
fn contract_an_update_begins_with_the_twin_that_the_last_one_may_have_torn() {
    for torn in 0..2 {
        let rt = patient(5);
        let world = World::new(&rt, shape(WriteMode::Back));
        let flash = Gate::new(&world.flash);
        let range = |twin: usize| SUPERBLOCK_OFFSETS[twin]..SUPERBLOCK_OFFSETS[twin] + SUPERBLOCK_BYTES as u64;
        rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            write(&cache, 5 * CHUNK, &stamps(1001, CHUNK), true).await;
            let refused = Fault { op: Some(IoOp::Write), range: Some(range(torn)), kind: IoErrorKind::Io, times: 1 };
            world.flash.plan().add(refused);
            cache.checkpoint().await.expect_err("a twin takes no write");
            rot_twin(&world, torn);
            flash.hold_within(IoOp::Write, range(1 - torn));
            let checkpointing = cache.clone();
            spawn(&rt, async move { drop(checkpointing.checkpoint().await) });
            until(&rt, "the whole twin waits", || flash.waiting() > 0).await;
        });
        // The torn one is whole by now: losing the other costs nothing.
        rt.crash();
        rot_twin(&world, 1 - torn);
        let rt = attach(&world, 6);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            let bytes = read(&cache, 5 * CHUNK, 1).await;
            assert!(identify(&bytes, [1001]).is_some(), "twin {torn} was torn, and the other one was lost first");
        });
    }
}

/// An opening first repairs the twin that an earlier power loss tore.
///
/// A power loss meanwhile tears the same twin again, and never the whole one.
#[test]
fn contract_a_damaged_twin_is_written_before_the_whole_one() {
    for rotten in 0..2 {
        let rt = patient(3);
        let world = World::new(&rt, shape(WriteMode::Back));
        rt.block_on(async {
            let cache = world.open(&rt).await;
            write(&cache, 5 * CHUNK, &stamps(1001, CHUNK), true).await;
        });
        rt.crash();
        rot_twin(&world, rotten);
        let rt = attach(&world, 4);
        let flash = Gate::new(&world.flash);
        let whole = SUPERBLOCK_OFFSETS[1 - rotten];
        flash.hold_within(IoOp::Write, whole..whole + SUPERBLOCK_BYTES as u64);
        let tuning = world.shape.tuning.clone();
        rt.block_on(async {
            let mut opening = pin!(Cache::open(flash.clone(), world.origin.clone(), rt.clone(), tuning));
            let mut waits = pin!(until(&rt, "the whole twin waits", || flash.waiting() > 0));
            poll_fn(|cx| {
                assert!(opening.as_mut().poll(cx).is_pending(), "it opened without the whole twin");
                waits.as_mut().poll(cx)
            })
            .await;
        });
        // The damaged one is whole by now: losing the other costs nothing.
        rt.crash();
        rot_twin(&world, 1 - rotten);
        let rt = attach(&world, 5);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            let bytes = read(&cache, 5 * CHUNK, 1).await;
            assert!(identify(&bytes, [1001]).is_some(), "twin {rotten} was lost first");
        });
    }
}
