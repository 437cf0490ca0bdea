//! Work under way when the flash fails: the cache promises nothing that is in RAM alone. A
//! successful flush does not cover data that a failed one may have lost.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::{
    fence::MemoryFence,
    world::{World, identify, read, write, zero},
};
use larder_device::{
    IoBuf, IoErrorKind, IoOp, Runtime, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{Cache, WriteMode};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

fn fail_for_ever(device: &SimDevice, op: IoOp, range: Option<Range<u64>>) {
    device.plan().add(Fault { op: Some(op), range, kind: IoErrorKind::Io, times: FOR_EVER });
}

/// Returns the first sector of a chunk as the next opening finds it, over devices that work.
fn reopened(world: &World, chunk: usize, candidates: &[u32]) -> Option<u32> {
    world.flash.plan().clear();
    world.origin.plan().clear();
    let rt = attach(world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        identify(&read(&cache, chunk * CHUNK, 1).await, candidates.iter().copied())
    })
}

/// Writes `sector` to chunk 0, which held `before`; the flash fails while the write reads the rest.
///
/// The result needs no room on flash: it is zero, or a duplicate of chunk 1, which holds `other`.
fn written_while_the_flash_fails(before: &[u32], other: &[u32], sector: u32, keeper: Option<&Arc<MemoryFence>>) {
    let (mut world, rt) = new_world(WriteMode::Back);
    world.shape.tuning.discard_fenced = true;
    if let Some(keeper) = keeper {
        world.shape.tuning.fence = keeper.keeper();
    }
    let flash = Gate::new(&world.flash);
    let promised = rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        write(&cache, CHUNK, other, false).await;
        write(&cache, 0, before, false).await;
        cache.flush().await.expect("flushed");
        // A clean chunk for a checkpoint to write: no dirty data waits when the flash fails.
        read(&cache, 40 * CHUNK, CHUNK).await;
        cache.wait_for_insertions().await;
        flash.hold(IoOp::Read);
        let writing = cache.clone();
        let acknowledged = Arc::new(parking_lot::Mutex::new(None));
        let answer = acknowledged.clone();
        let over = spawn(&rt, async move { *answer.lock() = Some(try_write(&writing, 0, &[sector]).await) });
        until(&rt, "the write reads its chunk", || flash.waiting() > 0).await;
        fail_for_ever(&world.flash, IoOp::Flush, None);
        let failing = cache.clone();
        spawn(&rt, async move { drop(failing.checkpoint().await) });
        until(&rt, "the flash has failed", || cache.status().degraded).await;
        flash.release();
        until(&rt, "the write is answered", || over.load(Acquire)).await;
        let acknowledged = acknowledged.lock().expect("answered");
        assert_eq!(
            acknowledged,
            keeper.is_some_and(|keeper| keeper.is_up()),
            "a write without the flash needs a fence"
        );
        let flushed = within(&rt, Duration::from_secs(60), cache.flush()).await.expect("a flush ends");
        acknowledged && flushed.is_ok()
    });
    rt.kill();
    assert_eq!(promised, keeper.is_some());
    if promised {
        assert_eq!(reopened(&world, 0, &[before[0], sector]), Some(sector), "it was flushed");
    }
}

#[test]
fn contract_zeroes_that_are_written_while_the_flash_fails_are_not_in_ram_alone() {
    let before = [1001, 0, 0, 0, 0, 0, 0, 0];
    for keeper in [None, Some(MemoryFence::new())] {
        written_while_the_flash_fails(&before, &stamps(9001, CHUNK), 0, keeper.as_ref());
    }
}

#[test]
fn contract_duplicates_that_are_written_while_the_flash_fails_are_not_in_ram_alone() {
    let other = stamps(9001, CHUNK);
    let mut before = other.clone();
    before[0] = 1001;
    for keeper in [None, Some(MemoryFence::new())] {
        written_while_the_flash_fails(&before, &other, 9001, keeper.as_ref());
    }
}

/// A read completes a volatile fragment to a duplicate while the flash fails.
///
/// The cache still knows that it is not durable.
#[test]
fn contract_a_fragment_completed_while_the_flash_fails_is_not_taken_for_durable() {
    let mut content = stamps(5001, CHUNK);
    content[CHUNK - 1] = 0;
    for seed in 0..100 {
        let (mut world, first) = new_world(WriteMode::Back);
        first.kill();
        // A refused write is tried again at once, and only once: the read is under way when the
        // flash fails.
        world.shape.tuning.flash_full_timeout = Some(Duration::ZERO);
        let rt = SimRuntime::new(seed);
        world.flash.attach(&rt);
        world.origin.attach(&rt);
        let promised = rt.block_on(async {
            let cache = Arc::new(world.open(&rt).await);
            write(&cache, CHUNK, &content, false).await;
            cache.flush().await.expect("flushed");
            write(&cache, 0, &content[..CHUNK - 1], false).await;
            let range = Some(world.layout().slots_offset..world.shape.flash_bytes);
            world.flash.plan().add(Fault { op: Some(IoOp::Write), range, kind: IoErrorKind::NoSpace, times: FOR_EVER });
            let (reading, failing) = (cache.clone(), cache.clone());
            let completed = spawn(&rt, async move { drop(read(&reading, 0, CHUNK).await) });
            spawn(&rt, async move { drop(failing.checkpoint().await) });
            until(&rt, "the flash has failed", || cache.status().degraded && completed.load(Acquire)).await;
            rt.delay(Duration::from_millis(5)).await.expect("a delay ends");
            cache.flush().await.is_ok()
        });
        rt.kill();
        if promised {
            assert_eq!(reopened(&world, 0, &[content[0], 0]), Some(content[0]), "seed {seed}: it was flushed");
        }
    }
}

/// A trim is cut by a later one, and the flash fails before either is durable.
///
/// FLUSH answers for all remaining parts of both.
#[test]
fn contract_what_is_left_of_a_cut_trim_is_not_taken_for_durable() {
    let (mut world, rt) = new_world(WriteMode::Back);
    let keeper = MemoryFence::new();
    world.shape.tuning.fence = keeper.keeper();
    world.shape.tuning.discard_fenced = true;
    rt.block_on(async {
        let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
        write(&cache, 0, &stamps(1001, 12 * CHUNK), false).await;
        assert!(cache.destage_all().await);
        cache.flush().await.expect("flushed");
        zero(&cache, 0, 10 * CHUNK, ZeroFlags::default()).await;
        zero(&cache, 0, 2 * CHUNK, ZeroFlags::default()).await;
        for op in [IoOp::Write, IoOp::Flush] {
            fail_for_ever(&world.flash, op, None);
        }
        // The origin takes the second trim alone.
        let rest = 2 * u64::from(world.shape.chunk_bytes)..world.shape.origin_bytes;
        for op in [IoOp::Write, IoOp::WriteZeroes, IoOp::Discard] {
            fail_for_ever(&world.origin, op, Some(rest.clone()));
        }
        for _ in 0..3 {
            let flushed = within(&rt, Duration::from_secs(60), cache.flush()).await.expect("a flush ends");
            flushed.expect_err("the rest of the first trim is nowhere");
        }
        world.origin.plan().clear();
        within(&rt, Duration::from_secs(60), cache.flush())
            .await
            .expect("a flush ends")
            .expect("the origin has it all");
    });
    rt.kill();
    assert_eq!(reopened(&world, 5, &[1001 + 2 * 5 * CHUNK as u32, 0]), Some(0));
}

/// A checkpoint's flush fails late, after segments of new writes came to the flash.
///
/// No flush beside it, and none after it, makes these segments durable.
#[test]
fn contract_a_flush_that_fails_takes_the_word_of_those_beside_it() {
    let content = |chunk: usize| stamps(1_000_000 + 64 * chunk as u32, CHUNK);
    let mut failed = 0;
    for (kth, seed) in (1..=8).flat_map(|kth| (0..8).map(move |seed| (kth, seed))) {
        let (world, first) = new_world(WriteMode::Back);
        first.kill();
        let rt = runtime(seed + 100);
        world.flash.attach(&rt);
        world.origin.attach(&rt);
        let flash = Gate::new(&world.flash);
        let flushed = rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            write(&cache, 3000 * CHUNK, &content(3000), false).await;
            cache.flush().await.expect("flushed");
            flash.hold_nth(IoOp::Flush, kth);
            let checkpointing = cache.clone();
            let over = spawn(&rt, async move { drop(checkpointing.checkpoint().await) });
            rt.delay(Duration::from_millis(20)).await.expect("a delay ends");
            if flash.waiting() == 0 {
                return None;
            }
            // More than a WEU: its segments are written before a commit is asked for.
            for chunk in 0..300 {
                write(&cache, chunk * CHUNK, &content(chunk), false).await;
            }
            rt.delay(Duration::from_millis(20)).await.expect("a delay ends");
            world.flash.fail_next(IoOp::Flush, IoErrorKind::Io);
            flash.release();
            until(&rt, "the flush has failed", || flash.waiting() > 0).await;
            // The cache does not know that yet.
            let mut flushing = Box::pin(cache.flush());
            let early = within(&rt, Duration::from_millis(20), &mut flushing).await;
            flash.release();
            until(&rt, "the checkpoint ended", || over.load(Acquire)).await;
            let flushed = match early {
                Some(flushed) => flushed,
                None => flushing.await,
            };
            Some(flushed.is_ok())
        });
        rt.crash();
        failed += usize::from(flushed.is_some());
        if flushed == Some(true) {
            world.flash.plan().clear();
            let rt = attach(&world, 2);
            rt.block_on(async { all_there(&world.open(&rt).await, 300, &content).await });
        }
    }
    assert!(failed > 8, "{failed}");
}

async fn all_there(cache: &Cache, count: usize, content: &impl Fn(usize) -> Vec<u32>) {
    for chunk in 0..count {
        let offset = (chunk * CHUNK * larder_core::types::SECTOR_BYTES) as u64;
        let found = cache.read(offset, IoBuf::new(512)).await.unwrap_or_else(|error| panic!("chunk {chunk}: {error}"));
        assert!(identify(&found, [content(chunk)[0]]).is_some(), "chunk {chunk} was flushed");
    }
}

/// A frame of the log is read back. One wrong read does not prove a wrong write.
#[test]
fn contract_one_lie_about_a_frame_does_not_write_it_again() {
    let (world, rt) = new_world(WriteMode::Back);
    rt.block_on(async {
        let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
        zero(&cache, 0, CHUNK, ZeroFlags::default()).await;
        world.flash.misread_next(&mut Rng::new(1));
        let before = world.flash.counters().writes;
        cache.flush().await.expect("flushed");
        assert_eq!(world.flash.counters().writes - before, 1);
        assert_eq!((cache.status().counts.flash_write_errors, cache.status().degraded), (0, false));
    });
    rt.kill();
}
