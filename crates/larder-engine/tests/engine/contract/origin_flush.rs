//! Clean copies and the origin's flush. A copy becomes durable only after a flush that began when
//! the origin had its bytes. A request that must forget a copy does not wait for that.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::{
    design,
    world::{self, Shape, World, read, write, zero},
};
use larder_core::{Lba, types::SECTOR_BYTES};
use larder_device::{
    IoErrorKind, IoOp, Runtime, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    sim::SimRuntime,
};
use larder_engine::{Cache, WriteMode};
use std::{sync::Arc, sync::atomic::Ordering::*, time::Duration};

const MODES: [WriteMode; 2] = [WriteMode::Through, WriteMode::Around];
const SECOND: Duration = Duration::from_secs(1);

/// Returns a world with a commit every few milliseconds.
fn committing_world(mode: WriteMode) -> (World, Arc<SimRuntime>) {
    let (mut world, rt) = new_world(mode);
    world.shape.tuning.commit_interval_ms = 20;
    (world, rt)
}

/// Writes a chunk, and reads it: it is cached in both modes.
async fn put(cache: &Cache, chunk: usize, stamps: &[u32]) {
    write(cache, chunk * CHUNK, stamps, false).await;
    cache.wait_for_insertions().await;
    read(cache, chunk * CHUNK, CHUNK).await;
    cache.wait_for_insertions().await;
}

fn is_cached(cache: &Cache, chunk: u64) -> bool {
    cache.slot_of(Lba(chunk)).is_some()
}

/// Checks that the cache reads these chunks as the origin does.
async fn expect_the_origins(world: &World, cache: &Cache, chunks: std::ops::Range<usize>, when: &str) {
    for chunk in chunks {
        let origin = world.origin.peek((chunk * CHUNK * SECTOR_BYTES) as u64, CHUNK * SECTOR_BYTES);
        assert!(read(cache, chunk * CHUNK, CHUNK).await[..] == origin[..], "chunk {chunk}, {when}");
    }
}

/// A cached chunk is overwritten while clean mappings of others wait for a flush without end.
#[test]
fn contract_forgetting_does_not_wait_for_the_flush_that_others_need() {
    for mode in MODES {
        let (world, rt) = committing_world(mode);
        let origin = Gate::new(&world.origin);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
            for chunk in 0..3 {
                put(&cache, chunk, &stamps(1001 + 100 * chunk as u32, CHUNK)).await;
            }
            cache.checkpoint().await.unwrap();
            origin.hold(IoOp::Flush);
            put(&cache, 3, &stamps(2001, CHUNK)).await;
            put(&cache, 4, &[world::ZERO; CHUNK]).await;
            rt.delay(SECOND).await.unwrap();
            assert!(origin.waiting() > 0, "{mode:?}: nothing makes the new copies durable");
            let overwrites = async {
                write(&cache, 0, &stamps(3001, CHUNK), false).await;
                write(&cache, CHUNK + 1, &[3101], false).await;
                zero(&cache, 2 * CHUNK, CHUNK, ZeroFlags::default()).await;
                // These were never durable, and either content is right.
                write(&cache, 3 * CHUNK, &stamps(3301, CHUNK), false).await;
                write(&cache, 4 * CHUNK + 2, &[3401], false).await;
            };
            let over = within(&rt, SECOND, overwrites).await;
            assert!(over.is_some(), "{mode:?}: an overwrite waits for the origin's flush");
        });
        rt.crash();
        let rt = attach(&world, 2);
        rt.block_on(async {
            expect_the_origins(&world, &world.open(&rt).await, 0..5, &format!("{mode:?}, after the crash")).await;
        });
    }
}

/// No client flushes and the cache is idle: its copies become durable, and survive a crash.
#[test]
fn contract_idle_cache_restarts_warm() {
    for mode in MODES {
        let (world, rt) = committing_world(mode);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            for chunk in 0..20 {
                put(&cache, chunk, &stamps(1001 + 100 * chunk as u32, CHUNK)).await;
            }
            rt.delay(SECOND).await.unwrap();
        });
        rt.crash();
        let rt = attach(&world, 2);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            for chunk in 0..20 {
                assert!(is_cached(&cache, chunk as u64), "{mode:?}: chunk {chunk} is gone");
                expect(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK)).await;
            }
        });
    }
}

/// A chunk gets an earlier content back during a flush that began when it had that content.
///
/// The origin may have the content in between, and the copy must not become durable with that
/// flush.
#[test]
fn contract_flush_from_before_a_rewrite_makes_no_copy_durable() {
    let mut differed = 0;
    for seed in 0..60 {
        let rt = runtime(seed);
        let world = World::new(&rt, shape(WriteMode::Through));
        let zeroes = [world::ZERO; CHUNK];
        rt.block_on(async {
            let cache = Arc::new(world.open(&rt).await);
            put(&cache, 1, &stamps(1101, CHUNK)).await;
            cache.checkpoint().await.unwrap();
            put(&cache, 0, &zeroes).await;
            world.origin.delay_next(Some(IoOp::Flush), SECOND);
            let flushing = cache.clone();
            let flushed = spawn(&rt, async move { flushing.flush().await.unwrap() });
            rt.delay(SECOND / 2).await.unwrap();
            put(&cache, 0, &stamps(2001, CHUNK)).await;
            put(&cache, 0, &zeroes).await;
            assert!(!flushed.load(Acquire), "the flush was to take longer");
            until_over(&rt, &flushed).await;
            // Forgets a durable copy: all that is ready for the log becomes durable.
            write(&cache, CHUNK, &stamps(3101, CHUNK), false).await;
        });
        rt.crash();
        let rt = attach(&world, seed);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            differed += usize::from(world.origin.peek(0, SECTOR_BYTES) != [0; SECTOR_BYTES]);
            expect_the_origins(&world, &cache, 0..2, &format!("seed {seed}")).await;
        });
    }
    assert!(differed > 0, "no crash left the content between the two on the origin");
}

async fn until_over(rt: &Arc<SimRuntime>, over: &std::sync::atomic::AtomicBool) {
    while !over.load(Acquire) {
        rt.delay(Duration::from_millis(1)).await.expect("a delay ends");
    }
}

/// No copy keeps data that a flush of the origin lost.
#[test]
fn contract_failed_flush_forgets_the_copies_that_waited_for_it() {
    for mode in MODES {
        let (world, rt) = committing_world(mode);
        let origin = Gate::new(&world.origin);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
            put(&cache, 0, &stamps(1001, CHUNK)).await;
            cache.checkpoint().await.unwrap();
            origin.hold(IoOp::Flush);
            put(&cache, 1, &stamps(1101, CHUNK)).await;
            until(&rt, "the copy waits for a flush", || origin.waiting() > 0).await;
            put(&cache, 2, &[world::ZERO; CHUNK]).await;
            world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
            origin.release();
            until(&rt, "the copy is forgotten", || !is_cached(&cache, 1)).await;
            assert!(is_cached(&cache, 0), "{mode:?}: a durable copy goes, too");
            let before = world.origin.counters().reads;
            read(&cache, 2 * CHUNK, CHUNK).await;
            assert_eq!(world.origin.counters().reads, before + 1, "{mode:?}: the copy of the zeroes");
            // The client hears of it, once.
            assert!(cache.flush().await.is_err());
            cache.flush().await.unwrap();
            expect(&cache, CHUNK, &stamps(1101, CHUNK)).await;
        });
        // A copy whose record is not written yet.
        let (world, rt) = new_world(mode);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            put(&cache, 0, &stamps(1001, CHUNK)).await;
            world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
            assert!(is_cached(&cache, 0) && cache.flush().await.is_err());
            assert!(!is_cached(&cache, 0), "{mode:?}: the copy in the open segment");
        });
    }
}

/// A checkpoint under way has a copy that a failed flush has forgotten since.
///
/// The chunk is written again, and the copy must not come back.
#[test]
fn contract_checkpoint_does_not_bring_back_what_a_failed_flush_forgot() {
    let (world, rt) = new_world(WriteMode::Through);
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        put(&cache, 0, &[world::ZERO; CHUNK]).await;
        flash.hold(IoOp::Write);
        let checkpointing = cache.clone();
        let checkpointed = spawn(&rt, async move { checkpointing.checkpoint().await.unwrap() });
        until(&rt, "its pieces are made", || flash.waiting() > 0).await;
        world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
        assert!(cache.flush().await.is_err());
        flash.release();
        until(&rt, "the checkpoint is over", || checkpointed.load(Acquire)).await;
        write(&cache, 0, &stamps(2001, CHUNK), false).await;
        cache.flush().await.unwrap();
    });
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async { expect(&world.open(&rt).await, 0, &stamps(2001, CHUNK)).await });
}

/// A client that asked for a flush goes away before its end: its outcome counts all the same.
#[test]
fn contract_given_up_flush_of_the_origin_counts() {
    let (world, rt) = new_world(WriteMode::Through);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        for fails in [true, false] {
            write(&cache, 0, &stamps(1001, CHUNK), false).await;
            let before = world.origin.counters().flushes;
            if fails {
                world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
            }
            world.origin.delay_next(Some(IoOp::Flush), SECOND / 10);
            drop_when(&rt, cache.flush(), || world.origin.counters().flushes > before).await;
            rt.delay(SECOND).await.unwrap();
            assert_eq!(cache.flush().await.is_err(), fails, "what the flush lost is told");
            let after = world.origin.counters().flushes;
            cache.flush().await.unwrap();
            assert_eq!(world.origin.counters().flushes, after, "nothing is left to flush");
        }
    });
}

/// The origin's flush never ends: the number of waiting copies is bounded, and writes go on.
#[test]
fn contract_copies_that_wait_for_the_origin_are_bounded() {
    let (world, rt) = committing_world(WriteMode::Through);
    let origin = Gate::new(&world.origin);
    let chunks = (world.shape.origin_bytes / 4096) as usize;
    rt.block_on(async {
        let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
        origin.hold(IoOp::Flush);
        for chunk in 0..chunks {
            // One content, so that no copy waits for its segment; and each chunk once, so that the
            // log does not fill up.
            write(&cache, chunk * CHUNK, &stamps(1001, CHUNK), false).await;
            cache.wait_for_insertions().await;
        }
        let cached = (0..chunks as u64).filter(|&chunk| is_cached(&cache, chunk)).count();
        let most = (world.layout().log_bytes / 64 / 8) as usize;
        assert!(cached > most / 2 && cached < most + 100, "{cached} copies wait, {most} may");
        assert!(cache.status().counts.insertions_dropped > 0);
        origin.release();
        rt.delay(SECOND).await.unwrap();
        let evicted = cache.status().counts.evicted_slots;
        let mut made = 0;
        for chunk in 0..chunks {
            read(&cache, chunk * CHUNK, CHUNK).await;
            cache.wait_for_insertions().await;
            made += usize::from(is_cached(&cache, chunk as u64));
        }
        assert!(made > most + 100, "only {made} copies are made when the origin flushes again");
        // If the design replaces the slot with their content, its copies go.
        let cached = (0..chunks as u64).filter(|&chunk| is_cached(&cache, chunk)).count();
        let evicted = cache.status().counts.evicted_slots - evicted;
        assert!(cached > most + 100 || evicted > 0, "only {cached} copies stay");
        cache.close().await.unwrap();
    });
}

/// While the origin takes no flush, no checkpoint frees the log.
///
/// The timer's requests leave its reserve for the checkpoint after the origin is well again.
#[test]
fn contract_the_log_keeps_its_reserve_while_no_checkpoint_comes() {
    let rt = runtime(1);
    let mut world = World::new(&rt, that_logs(over_weus(shape(WriteMode::Through))));
    world.shape.tuning.commit_interval_ms = 20;
    rt.block_on(async {
        let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
        let chunks = (world.shape.origin_bytes / 4096) as usize;
        for chunk in 0..chunks {
            // One content: all of the volume is cached.
            write(&cache, chunk * CHUNK, &stamps(1001, CHUNK), false).await;
            cache.wait_for_insertions().await;
        }
        cache.checkpoint().await.expect("the origin is well");
        world.origin.plan().add(Fault { op: Some(IoOp::Flush), range: None, kind: IoErrorKind::Io, times: FOR_EVER });
        // The checkpoint has each copy, so a write forgets it durably. Once the log is nearly full,
        // a write hears why it fails.
        let mut failed = 0;
        for chunk in 0..chunks {
            failed += usize::from(!try_write(&cache, chunk * CHUNK, &stamps(3001, CHUNK)).await);
            rt.delay(SECOND / 100).await.expect("a delay ends");
        }
        assert!(failed > 0, "the log was not filled");
        world.origin.plan().clear();
        let _ = cache.flush().await;
        cache.checkpoint().await.expect("the origin is well again");
        assert!(cache.status().log_used_percent < 50);
    });
    rt.kill();
}

/// Returns a content that no other chunk has.
fn noise(n: usize) -> Vec<u32> {
    stamps(1_000_000 + 2000 * n as u32, CHUNK)
}

/// Makes the cache full, and uses a quarter of it, the newest, again: chunks from 100 on.
///
/// The rest goes first. If the design remembers addresses, the next chunks go before it forgets
/// them.
async fn fill(cache: &Cache) {
    let mut filled = 0;
    while cache.status().counts.evicted_slots == 0 && filled < 2300 {
        write(cache, (100 + filled) * CHUNK, &noise(filled), false).await;
        cache.wait_for_insertions().await;
        filled += 1;
    }
    cache.flush().await.expect("flushed");
    for number in (0..filled).rev().take(filled / 4) {
        read(cache, (100 + number) * CHUNK, CHUNK).await;
        cache.wait_for_insertions().await;
    }
}

/// A design that remembers replaced content must not map a chunk that the origin may have lost.
///
/// A copy of it elsewhere would then stand for data that a power loss takes from the origin.
#[test]
fn contract_what_is_remembered_of_a_doubtful_chunk_is_not_mapped_again() {
    // A seed; true if the content comes again before the failure is known; true if the cache ends
    // in order before the power goes.
    let cases = [0, 1, 2, 3, 4, 5, 6, 7].map(|seed| (seed, seed % 2 == 1, seed >= 4));
    // If each eviction had a log entry of its own, the log would be full while the origin's flush
    // is held.
    let over_weus = design::all().into_iter().filter(|&design| design::fills_weus(design));
    for (design, (seed, is_before, is_closed)) in over_weus.flat_map(|design| cases.map(|case| (design, case))) {
        let rt = runtime(seed);
        let world = World::new(&rt, Shape { design, flash_bytes: 4 << 20, ..shape(WriteMode::Through) });
        let origin = Gate::new(&world.origin);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
            fill(&cache).await;
            let slot_of = |number: usize| cache.slot_of(Lba(2000 + number as u64));
            for number in 0..300 {
                write(&cache, (2000 + number) * CHUNK, &noise(9000 + number), false).await;
                cache.wait_for_insertions().await;
                if slot_of(number) != slot_of(0) {
                    break;
                }
            }
            cache.checkpoint().await.unwrap();
            // Written, and replaced before a flush of the origin; then that flush fails.
            origin.hold(IoOp::Flush);
            write(&cache, 0, &stamps(9_000, CHUNK), false).await;
            cache.wait_for_insertions().await;
            // Few chunks again and again: few clean mappings may wait for a flush.
            for number in (0..3000).take_while(|_| is_cached(&cache, 0)) {
                write(&cache, (2500 + number % 150) * CHUNK, &noise(5000 + number), false).await;
                cache.wait_for_insertions().await;
            }
            assert!(!is_cached(&cache, 0), "it was not replaced: {design:?}");
            // The same content, elsewhere: mapped again before the failure is known, or after it.
            let again = async || {
                write(&cache, CHUNK, &stamps(9_000, CHUNK), false).await;
                cache.wait_for_insertions().await;
                read(&cache, 0, CHUNK).await;
                cache.wait_for_insertions().await;
            };
            if is_before {
                again().await;
            }
            world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
            origin.release();
            assert!(cache.flush().await.is_err());
            again().await;
            assert!(!is_cached(&cache, 0), "a doubtful chunk is cached");
            cache.flush().await.unwrap();
            if is_closed {
                // The operator hears of it once; then the cache ends in order, and its memory is
                // trusted.
                cache.set_mode(WriteMode::Around).await.expect_err("a flush failed");
                cache.close().await.unwrap();
            } else {
                cache.checkpoint().await.unwrap();
            }
        });
        rt.crash();
        let rt = attach(&world, seed);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            let found = read(&cache, 0, CHUNK).await;
            assert!(found[..] == world.origin.peek(0, CHUNK * SECTOR_BYTES)[..], "the cache and the origin differ");
        });
    }
}
