//! Clean copies that neither log nor checkpoint has. An overwrite forgets such a copy without a
//! commit, and no crash brings back another one of the chunk.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::world::{World, read, write, zero};
use larder_core::{Lba, types::SECTOR_BYTES};
use larder_device::{IoErrorKind, IoOp, Runtime, ZeroFlags, faulty::FOR_EVER};
use larder_engine::{Cache, WriteMode};
use std::{sync::atomic::Ordering::*, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
const OVERWRITES: u32 = 200;

fn is_cached(cache: &Cache, chunk: u64) -> bool {
    cache.slot_of(Lba(chunk)).is_some()
}

fn commits(cache: &Cache) -> u64 {
    cache.status().counts.commits
}

/// Writes chunk 0, and reads it: it is cached in both modes.
async fn put(cache: &Cache, content: u32) {
    write(cache, 0, &stamps(content, CHUNK), false).await;
    cache.wait_for_insertions().await;
    read(cache, 0, CHUNK).await;
    cache.wait_for_insertions().await;
    assert!(is_cached(cache, 0), "{content}");
}

/// One chunk is overwritten, and cached, again and again.
#[test]
fn contract_overwrite_of_an_unlogged_copy_costs_no_commit() {
    for mode in [WriteMode::Through, WriteMode::Around] {
        let rt = runtime(1);
        let world = World::new(&rt, without_buckets(shape(mode)));
        rt.block_on(async {
            let cache = world.open(&rt).await;
            let before = commits(&cache);
            for number in 0..OVERWRITES {
                put(&cache, 1001 + 100 * number).await;
                if number % 7 == 0 {
                    write(&cache, 3, &[900_001 + number], false).await;
                    cache.wait_for_insertions().await;
                }
                if number % 9 == 0 {
                    zero(&cache, 0, CHUNK, ZeroFlags::default()).await;
                }
            }
            let made = commits(&cache) - before;
            assert!(made <= 2, "{mode:?}: {made} commits for {OVERWRITES} overwrites");
            // The log has the copy, and the next overwrite forgets it durably, once.
            cache.checkpoint().await.unwrap();
            let before = commits(&cache);
            put(&cache, 500_001).await;
            put(&cache, 600_001).await;
            let made = commits(&cache) - before;
            assert!((1..=2).contains(&made), "{mode:?}: {made} commits for an overwrite of a logged copy");
        });
        rt.crash();
        let rt = attach(&world, 2);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            let origin = world.origin.peek(0, CHUNK * SECTOR_BYTES);
            assert!(read(&cache, 0, CHUNK).await[..] == origin[..], "{mode:?}, after the crash");
        });
    }
}

/// The timer logs the copy, and the chunk is overwritten after that.
#[test]
fn contract_copy_in_the_log_is_forgotten_durably() {
    for mode in [WriteMode::Through, WriteMode::Around] {
        let (mut world, rt) = new_world(mode);
        world.shape.tuning.commit_interval_ms = 20;
        rt.block_on(async {
            let cache = world.open(&rt).await;
            put(&cache, 1001).await;
            rt.delay(SECOND).await.unwrap();
            write(&cache, 0, &stamps(2001, CHUNK), true).await;
        });
        rt.crash();
        let rt = attach(&world, 2);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            expect(&cache, 0, &stamps(2001, CHUNK)).await;
        });
    }
}

/// A checkpoint has the copy and waits for the origin's flush, while the chunk is overwritten.
#[test]
fn contract_copy_in_a_checkpoint_is_forgotten_durably() {
    for mode in [WriteMode::Through, WriteMode::Around] {
        let (world, rt) = new_world(mode);
        let origin = Gate::new(&world.origin);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
            put(&cache, 1001).await;
            origin.hold(IoOp::Flush);
            let checkpointing = cache.clone();
            let checkpointed = spawn(&rt, async move { checkpointing.checkpoint().await.unwrap() });
            until(&rt, "the pieces are made", || origin.waiting() > 0).await;
            write(&cache, 0, &stamps(2001, CHUNK), false).await;
            assert!(!checkpointed.load(Acquire));
            origin.release();
            until(&rt, "the checkpoint is over", || checkpointed.load(Acquire)).await;
            cache.flush().await.unwrap();
        });
        rt.crash();
        let rt = attach(&world, 2);
        rt.block_on(async { expect(&world.open(&rt).await, 0, &stamps(2001, CHUNK)).await });
    }
}

/// A checkpoint fails while it is written: later copies are in no piece of it.
#[test]
fn contract_overwrite_after_a_failed_checkpoint_costs_no_commit() {
    let rt = runtime(1);
    let world = World::new(&rt, without_buckets(shape(WriteMode::Through)));
    let layout = world.layout();
    rt.block_on(async {
        let cache = world.open(&rt).await;
        put(&cache, 1001).await;
        for start in layout.checkpoint_offset {
            let area = start..start + layout.checkpoint_area_bytes;
            world.flash.fail_range(IoOp::Write, area, IoErrorKind::Io, FOR_EVER);
        }
        assert!(cache.checkpoint().await.is_err(), "no area can be written");
        // The checkpoint may have this copy.
        let before = commits(&cache);
        put(&cache, 2001).await;
        assert_eq!(commits(&cache) - before, 1);
        for number in 0..OVERWRITES {
            put(&cache, 3001 + 100 * number).await;
        }
        let made = commits(&cache) - before;
        assert!(made <= 2, "{made} commits for {OVERWRITES} overwrites");
    });
}

/// The chunk's slot is evicted, not durably yet. A read caches the chunk again, and a write comes.
#[test]
fn contract_unlogged_copy_beside_an_undurable_eviction_leaves_no_stale_copy() {
    let rt = runtime(1);
    let world = World::new(&rt, over_weus(shape(WriteMode::Through)));
    let (flash, layout) = (Gate::new(&world.flash), world.layout());
    let chunks = (world.shape.origin_bytes / 4096) as usize;
    let mut is_over = false;
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        let content = |chunk: usize| stamps(1_000_000 + chunk as u32 * 64, CHUNK);
        let mut next = 0;
        while cache.status().slots_free > 3 {
            write(&cache, next * CHUNK, &content(next), false).await;
            cache.wait_for_insertions().await;
            next += 1;
        }
        cache.checkpoint().await.unwrap();
        assert!(is_cached(&cache, 0));
        let log_end = layout.log_offset + layout.log_bytes;
        flash.hold_within(IoOp::Write, layout.log_offset..log_end);
        let filling = cache.clone();
        spawn(&rt, async move {
            for chunk in next..chunks {
                write(&filling, chunk * CHUNK, &content(chunk), false).await;
                filling.wait_for_insertions().await;
            }
        });
        until(&rt, "the eviction of the first chunk", || !is_cached(&cache, 0)).await;
        read(&cache, 0, CHUNK).await;
        until(&rt, "the chunk is cached again", || is_cached(&cache, 0)).await;
        let writing = cache.clone();
        let over = spawn(&rt, async move {
            write(&writing, 0, &stamps(77_001, CHUNK), false).await;
            writing.flush().await.unwrap();
        });
        rt.delay(SECOND).await.unwrap();
        is_over = over.load(Acquire);
    });
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        assert!(is_cached(&cache, 0), "the eviction was to be lost");
        let stamps = if is_over { stamps(77_001, CHUNK) } else { stamps(1_000_000, CHUNK) };
        expect(&cache, 0, &stamps).await;
    });
}
