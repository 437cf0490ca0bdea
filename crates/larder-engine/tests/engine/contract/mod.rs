//! Single scenarios that once broke, or would break, a line of the engine's contract. Each stops
//! devices at a chosen operation, fails them, or ends the runtime there, and looks at the next
//! opening.
//!
//! Invariants: every scenario is deterministic, its seed included.

mod cannot_leave;
mod crowds;
mod durable_requests;
mod flash_fails;
mod gate;
mod given_up;
mod log_room;
mod origin_flush;
mod origin_forgets;
mod region_reads;
mod same_place;
mod superblock_twins;
mod two_frames;
mod unlogged;

use crate::{
    fence,
    world::{self, World, identify, read, write, zero},
};
use gate::*;
use larder_core::types::SECTOR_BYTES;
use larder_device::{IoBuf, IoErrorKind, IoOp, Runtime, WriteFlags, ZeroFlags, faulty::FOR_EVER, rng::Rng};
use larder_engine::{Cache, Tuning, WriteMode};
use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::*},
    task::Poll,
    time::Duration,
};

/// A trimmed run is destaged while part of it is written again, with a checkpoint in between.
#[test]
fn contract_overwrite_of_a_run_in_destage_survives() {
    let (world, rt) = new_world(WriteMode::Back);
    let origin = Gate::new(&world.origin);
    rt.block_on(async {
        let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
        zero(&cache, 0, 10 * CHUNK, ZeroFlags::default()).await;
        cache.flush().await.unwrap();
        origin.hold(IoOp::Flush);
        let destaging = cache.clone();
        spawn(&rt, async move {
            destaging.destage_all().await;
        });
        until(&rt, "the run's flush waits", || origin.waiting() > 0).await;
        // A whole chunk, and a fragment.
        write(&cache, 5 * CHUNK, &stamps(1001, CHUNK), false).await;
        write(&cache, 3 * CHUNK + 1, &stamps(3001, 2), false).await;
        cache.flush().await.unwrap();
        let checkpointing = cache.clone();
        let checkpointed = spawn(&rt, async move { checkpointing.checkpoint().await.unwrap() });
        // The checkpoint needs the origin's flush at its end: until then its pieces are made.
        rt.delay(Duration::from_millis(20)).await.unwrap();
        origin.release();
        origin.hold(IoOp::Write);
        until(&rt, "the checkpoint is over", || checkpointed.load(Acquire)).await;
        // The destage goes on with the new chunks, and waits at their write.
        until(&rt, "the next destage waits", || origin.waiting() > 0).await;
        cache.flush().await.unwrap();
    });
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        expect(&cache, 5 * CHUNK, &stamps(1001, CHUNK)).await;
        expect(&cache, 3 * CHUNK, &[0, 3001, 3003, 0]).await;
        // Not clean either: the origin must get it.
        assert!(cache.destage_all().await);
        cache.close().await.unwrap();
    });
    let mut wanted = [0; SECTOR_BYTES];
    world::sector_bytes(1001, &mut wanted);
    assert!(world.origin.peek((5 * CHUNK * SECTOR_BYTES) as u64, SECTOR_BYTES) == wanted, "the origin never got it");
}

/// A write-through whose commit fails is tried again, and then goes past the flash.
///
/// The cached copy could not be forgotten durably, and must not come back.
#[test]
fn contract_retried_write_through_leaves_no_stale_copy() {
    let (mut world, rt) = new_world(WriteMode::Through);
    let fence = fence::MemoryFence::new();
    world.shape.tuning.fence = fence.keeper();
    rt.block_on(async {
        let cache = world.open(&rt).await;
        write(&cache, 0, &stamps(1001, CHUNK), false).await;
        cache.wait_for_insertions().await;
        cache.checkpoint().await.unwrap();
        assert!(cache.slot_of(larder_core::Lba(0)).is_some(), "cached");
        // The commit that removes the copy fails for longer than the retries of a refused write.
        // Without a fence, writes past the flash are forbidden.
        world.flash.fail_range(IoOp::Write, 0..world.shape.flash_bytes, IoErrorKind::Io, FOR_EVER);
        fence.break_down(true);
        assert!(!try_write(&cache, 0, &stamps(2001, CHUNK)).await, "its commit fails");
        fence.break_down(false);
        write(&cache, 0, &stamps(3001, CHUNK), false).await;
        cache.flush().await.unwrap();
    });
    assert!(fence.is_up());
    rt.crash();
    world.flash.plan().clear();
    let rt = attach(&world, 2);
    rt.block_on(async { expect(&world.open(&rt).await, 0, &stamps(3001, CHUNK)).await });
}

/// A chunk is written through while the eviction of its copy is not durable yet.
#[test]
fn contract_write_through_during_an_eviction_leaves_no_stale_copy() {
    let rt = runtime(1);
    let world = World::new(&rt, over_weus(shape(WriteMode::Through)));
    let flash = Gate::new(&world.flash);
    let chunks = (world.shape.origin_bytes / 4096) as usize;
    let mut evicted = None;
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        // Incompressible (even stamps), so that slots fill.
        let put = async |cache: &Cache, i: usize| {
            let content = 1_000_000 + i as u32 * 64;
            write(cache, i * CHUNK, &stamps(content, CHUNK), false).await;
            cache.wait_for_insertions().await;
        };
        let cached = |lba: u64| cache.slot_of(larder_core::Lba(lba)).is_some();
        let mut next = 0;
        while cache.status().slots_free > 3 {
            put(&cache, next).await;
            next += 1;
        }
        cache.checkpoint().await.unwrap();
        assert!(cached(0));
        // From here on nothing becomes durable: the eviction happens in memory only.
        flash.hold(IoOp::Flush);
        let filling = cache.clone();
        spawn(&rt, async move {
            for i in next..chunks {
                write(&filling, i * CHUNK, &stamps(1_000_000 + i as u32 * 64, CHUNK), false).await;
                filling.wait_for_insertions().await;
            }
        });
        until(&rt, "the eviction of the first chunk", || !cached(0)).await;
        let lba = 0;
        let writing = cache.clone();
        let done = spawn(&rt, async move {
            write(&writing, lba * CHUNK, &stamps(77_001, CHUNK), false).await;
            writing.flush().await.unwrap();
        });
        rt.delay(Duration::from_secs(1)).await.unwrap();
        if done.load(Acquire) {
            evicted = Some(lba);
        }
    });
    rt.crash();
    if let Some(lba) = evicted {
        let rt = attach(&world, 2);
        rt.block_on(async { expect(&world.open(&rt).await, lba * CHUNK, &stamps(77_001, CHUNK)).await });
    }
}

/// The whole of a write-through volume is trimmed while the cache is full.
#[test]
fn contract_trim_of_a_cached_volume_fits_the_log() {
    let (mut world, rt) = new_world(WriteMode::Through);
    world.shape.tuning.insert_queue_bytes_max = 64 << 20;
    let chunks = (world.shape.origin_bytes / 4096) as usize;
    rt.block_on(async {
        let cache = world.open(&rt).await;
        for i in 0..chunks {
            // Few contents: all of the volume is cached.
            write(&cache, i * CHUNK, &stamps(1001 + 100 * (i as u32 % 7), CHUNK), false).await;
        }
        cache.wait_for_insertions().await;
        for i in 0..3 {
            zero(&cache, 0, world.sectors, ZeroFlags::default()).await;
            cache.checkpoint().await.unwrap();
            write(&cache, 0, &stamps(5001 + i, CHUNK), false).await;
        }
        cache.close().await.unwrap();
    });
}

/// A frame of the log rots after it was durable and others followed.
#[test]
fn contract_damage_in_the_middle_of_the_log_is_not_taken_for_its_end() {
    let (world, rt) = new_world(WriteMode::Back);
    let layout = rt.block_on(async {
        let cache = world.open(&rt).await;
        for i in 0..4 {
            write(&cache, i * CHUNK, &stamps(1001 + 100 * i as u32, CHUNK), false).await;
            cache.flush().await.unwrap();
        }
        let found = larder_engine::superblock::read(&*world.flash).await.unwrap();
        found.0.layout
    });
    rt.crash();
    let sector = u64::from(layout.sector_bytes);
    world.flash.corrupt(layout.log_offset + sector + 64, 64, &mut Rng::new(3));
    let rt = attach(&world, 2);
    rt.block_on(async {
        let opened = Cache::open(world.flash.clone(), world.origin.clone(), rt.clone(), Tuning::default()).await;
        let Ok(cache) = opened else { return };
        // If it opens at all, lost dirty data must not read as the origin's old bytes.
        let read = cache.read((3 * CHUNK * SECTOR_BYTES) as u64, IoBuf::new(CHUNK * SECTOR_BYTES)).await;
        let lost = read.as_ref().is_ok_and(|bytes| identify(&bytes[..SECTOR_BYTES], [1301]).is_none());
        assert!(!lost, "a flushed write is gone, and nothing says so");
    });
}

/// The only record of a content is damaged, and the content is written again.
///
/// The cache must store it again, and not map it onto the damage.
#[test]
fn contract_content_of_a_damaged_record_is_stored_anew() {
    let (world, rt) = new_world(WriteMode::Back);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        write(&cache, 0, &stamps(1001, CHUNK), false).await;
        cache.flush().await.unwrap();
        rot(&world, &cache, 0);
        let lost = cache.read(0, IoBuf::new(CHUNK * SECTOR_BYTES)).await;
        assert_eq!(lost.map(|_| ()).unwrap_err().kind, IoErrorKind::Corrupt);
        // The operator restores the block from a backup; another file has the same content.
        write(&cache, 0, &stamps(1001, CHUNK), false).await;
        write(&cache, 4 * CHUNK, &stamps(1001, CHUNK), false).await;
        cache.flush().await.unwrap();
        expect_beside_damage(&cache, 0, &stamps(1001, CHUNK)).await;
        expect_beside_damage(&cache, 4 * CHUNK, &stamps(1001, CHUNK)).await;
        assert!(cache.destage_all().await);
        cache.close().await.unwrap();
    });
}

/// The second twin cannot be written; then the next checkpoint is cut short.
#[test]
fn contract_half_written_superblock_keeps_its_checkpoint() {
    for stop in 1..12 {
        let (world, rt) = new_world(WriteMode::Back);
        let ended = rt.block_on_or_stop(async {
            let cache = world.open(&rt).await;
            for i in 0..200 {
                write(&cache, i * CHUNK, &stamps(1001 + 100 * i as u32, CHUNK), false).await;
            }
            cache.checkpoint().await.unwrap();
            write(&cache, 0, &stamps(9001, CHUNK), false).await;
            world.flash.fail_range(IoOp::Write, 65536..69632, IoErrorKind::Io, 1);
            assert!(cache.checkpoint().await.is_err());
            write(&cache, CHUNK, &stamps(9101, CHUNK), false).await;
            cache.flush().await.unwrap();
            rt.stop_at_change(Some(rt.changes() + stop));
            cache.checkpoint().await
        });
        assert!(stop > 3 || ended.is_none());
        rt.crash();
        let rt = attach(&world, 2);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            expect(&cache, 0, &stamps(9001, CHUNK)).await;
            expect(&cache, CHUNK, &stamps(9101, CHUNK)).await;
            expect(&cache, 2 * CHUNK, &stamps(1201, CHUNK)).await;
        });
    }
}

/// A switch to write-through fails half-way; dirty data written after it survives a crash in any
/// case.
#[test]
fn contract_half_written_mode_keeps_dirty_data() {
    let (world, rt) = new_world(WriteMode::Back);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        world.flash.fail_range(IoOp::Write, 65536..69632, IoErrorKind::Io, 1);
        assert!(cache.set_mode(WriteMode::Through).await.is_err());
        assert_eq!(cache.mode(), WriteMode::Back);
        write(&cache, 0, &stamps(1001, CHUNK), false).await;
        cache.flush().await.unwrap();
    });
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        write(&cache, 1, &[5001], false).await;
        cache.flush().await.unwrap();
        expect(&cache, 0, &[1001, 5001, 1005, 1007]).await;
    });
    rt.crash();
    let rt = attach(&world, 3);
    rt.block_on(async { expect(&world.open(&rt).await, 0, &[1001, 5001, 1005, 1007]).await });
}

/// Operations that their callers gave up half-way leave no work behind for closing to wait for.
#[test]
fn contract_dropped_operations_do_not_hang_the_end() {
    let (world, rt) = new_world(WriteMode::Back);
    let (flash, origin) = (Gate::new(&world.flash), Gate::new(&world.origin));
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), origin.clone(), &rt).await;
        write(&cache, 0, &stamps(1001, CHUNK), false).await;
        for i in 0..400 {
            write(&cache, (1 + i) * CHUNK, &stamps(1_000_000 + 64 * i as u32, CHUNK), false).await;
        }
        cache.flush().await.unwrap();
        // A partial write reads its base from flash: there it is dropped.
        flash.hold(IoOp::Read);
        drop_when(&rt, write(&cache, 1, &[7001], false), || flash.waiting() > 0).await;
        flash.release();
        let (limit, superblocks) = (Duration::from_secs(600), 128 << 10);
        flash.hold_below(IoOp::Write, superblocks);
        drop_when(&rt, cache.set_mode(WriteMode::Through), || flash.waiting() > 0).await;
        flash.release();
        assert!(within(&rt, limit, cache.checkpoint()).await.is_some(), "a checkpoint after a dropped mode switch");
        // The switch went on to its end.
        assert_eq!(cache.mode(), WriteMode::Through);
        assert!(within(&rt, limit, cache.set_mode(WriteMode::Back)).await.is_some_and(|set| set.is_ok()), "mode");
        flash.hold_below(IoOp::Write, superblocks);
        drop_when(&rt, cache.checkpoint(), || flash.waiting() > 0).await;
        flash.release();
        assert!(within(&rt, limit, cache.checkpoint()).await.is_some(), "a checkpoint after a dropped one");
        write(&cache, 0, &stamps(2001, CHUNK), false).await;
        flash.hold(IoOp::Flush);
        drop_when(&rt, cache.flush(), || flash.waiting() > 0).await;
        flash.release();
        // The origin's flush of a destage, and a write of one.
        for op in [IoOp::Flush, IoOp::Write] {
            write(&cache, 0, &stamps(3001, CHUNK), false).await;
            origin.hold(op);
            drop_when(&rt, cache.destage_all(), || origin.waiting() > 0).await;
            origin.release();
        }
        assert!(within(&rt, limit, cache.set_mode(WriteMode::Through)).await.is_some(), "mode");
        assert!(within(&rt, limit, cache.close()).await.is_some_and(|end| end.is_ok()), "close");
    });
}

/// A closed cache refuses requests, and does not wait for tasks that have ended.
#[test]
fn contract_closed_cache_answers() {
    let (world, rt) = new_world(WriteMode::Back);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        write(&cache, 0, &stamps(1001, CHUNK), false).await;
        cache.close().await.unwrap();
        let limit = Duration::from_secs(600);
        assert!(within(&rt, limit, cache.flush()).await.is_some(), "flush");
        assert!(within(&rt, limit, cache.checkpoint()).await.is_some(), "checkpoint");
        assert!(within(&rt, limit, cache.set_mode(WriteMode::Through)).await.is_some(), "set mode");
        assert!(within(&rt, limit, cache.destage_all()).await.is_some(), "destage");
        assert!(within(&rt, limit, cache.zero(0, 4096, ZeroFlags::default())).await.is_some(), "zero");
        assert!(within(&rt, limit, cache.close()).await.is_some(), "close");
        let refused = cache.write(0, IoBuf::zeroed(512).freeze(), WriteFlags::default()).await;
        assert_eq!(refused.unwrap_err().kind, IoErrorKind::Cancelled);
    });
}

/// Scattered writes cut one trimmed run into more pieces than a checkpoint holds.
#[test]
fn contract_scattered_writes_into_a_trimmed_volume_do_not_wedge() {
    let (mut world, rt) = new_world(WriteMode::Back);
    world.shape.tuning = Tuning { prefetch_bytes_max: 0, ..Tuning::default() };
    let chunks = (world.shape.origin_bytes / 4096) as usize;
    rt.block_on(async {
        let cache = world.open(&rt).await;
        zero(&cache, 0, world.sectors, ZeroFlags::default()).await;
        for round in 0..2 {
            for i in (round..chunks).step_by(2) {
                write(&cache, i * CHUNK, &stamps(1001 + 2 * (i as u32 % 50), CHUNK), false).await;
                if i % 64 == 0 {
                    cache.flush().await.unwrap();
                }
                if i % 256 == 0 {
                    cache.checkpoint().await.unwrap_or_else(|error| panic!("checkpoint at chunk {i}: {error}"));
                }
            }
            zero(&cache, 0, world.sectors, ZeroFlags::default()).await;
        }
        cache.close().await.unwrap();
    });
}

/// The flash fails one read of a dirty record: that is no reason to give the data up.
#[test]
fn contract_transient_read_error_loses_no_dirty_data() {
    let (world, rt) = new_world(WriteMode::Back);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        write(&cache, 0, &stamps(1001, CHUNK), false).await;
        cache.flush().await.unwrap();
        world.flash.fail_range(IoOp::Read, 0..world.shape.flash_bytes, IoErrorKind::Io, 1);
        let _ = cache.destage_all().await;
        world.flash.fail_range(IoOp::Read, 0..world.shape.flash_bytes, IoErrorKind::Io, 3);
        let _ = cache.read(0, IoBuf::new(CHUNK * SECTOR_BYTES)).await;
        let _ = cache.read(0, IoBuf::new(CHUNK * SECTOR_BYTES)).await;
        let _ = cache.read(0, IoBuf::new(CHUNK * SECTOR_BYTES)).await;
        expect(&cache, 0, &stamps(1001, CHUNK)).await;
        assert!(cache.destage_all().await, "the flash is well again");
        cache.close().await.unwrap();
    });
}

/// As many reads miss as the flash can take, while checkpoints are slow.
///
/// The log must not overflow.
#[test]
fn contract_fills_alone_do_not_overflow_the_log() {
    for mode in [WriteMode::Through, WriteMode::Back] {
        let (mut world, rt) = new_world(mode);
        world.shape.tuning.commit_interval_ms = 1;
        world.shape.tuning.insert_depth = 16;
        let flash = Gate::new(&world.flash);
        let chunks = (world.shape.origin_bytes / 4096) as usize;
        rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            for round in 0..6 {
                for i in (0..chunks).step_by(8) {
                    read(&cache, i * CHUNK, 8 * CHUNK).await;
                    if mode == WriteMode::Through {
                        write(&cache, i * CHUNK, &stamps(1001 + 2 * ((round + i as u32) % 50), CHUNK), false).await;
                    }
                }
                cache.flush().await.unwrap();
            }
            cache.checkpoint().await.unwrap();
            cache.close().await.unwrap();
        });
    }
}

/// The origin takes no writes any more: closing still ends, and keeps the dirty data.
#[test]
fn contract_close_ends_though_the_origin_is_gone() {
    let (mut world, rt) = new_world(WriteMode::Back);
    world.shape.tuning = Tuning { prefetch_bytes_max: 0, dirty_max_percent: 90, ..Tuning::default() };
    let chunks = (world.shape.origin_bytes / 4096) as usize;
    let cache = rt.block_on(async {
        let cache = Arc::new(world.open(&rt).await);
        world.origin.fail_range(IoOp::Write, 0..world.shape.origin_bytes, IoErrorKind::Io, FOR_EVER);
        // More than the flash holds: writers wait in the end.
        let writing = cache.clone();
        spawn(&rt, async move {
            for i in 0..chunks {
                try_write(
                    &writing,
                    i * CHUNK,
                    &(0..CHUNK as u32).map(|n| 1_000_000 + 64 * i as u32 + 2 * n).collect::<Vec<_>>(),
                )
                .await;
            }
        });
        rt.delay(Duration::from_secs(30)).await.unwrap();
        for i in (chunks / 2..chunks).step_by(3) {
            read(&cache, i * CHUNK, CHUNK).await;
        }
        assert!(within(&rt, Duration::from_secs(600), cache.flush()).await.is_some_and(|end| end.is_ok()), "flush");
        cache
    });
    let ended = rt.block_on(async { within(&rt, Duration::from_secs(3600), cache.close()).await });
    assert!(ended.is_some(), "close waits for an origin that is gone");
}

/// A write-through that its caller gave up is still under way on the origin.
///
/// It must not overtake a later write.
#[test]
fn contract_dropped_write_through_is_not_overtaken() {
    for seed in 0..60 {
        let (world, first) = new_world(WriteMode::Through);
        first.kill();
        let rt = larder_device::sim::SimRuntime::new(seed);
        world.flash.attach(&rt);
        world.origin.attach(&rt);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            write(&cache, 0, &stamps(1001, CHUNK), false).await;
            let before = world.origin.counters().writes;
            let lost = stamps(2001, CHUNK);
            let mut given_up = Box::pin(write(&cache, 0, &lost, false));
            std::future::poll_fn(|cx| {
                let over = given_up.as_mut().poll(cx).is_ready();
                if over || world.origin.counters().writes > before { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            drop(given_up);
            write(&cache, 0, &stamps(3001, CHUNK), false).await;
            rt.delay(Duration::from_millis(100)).await.unwrap();
            let wanted = stamps(3001, CHUNK);
            for _ in 0..3 {
                expect(&cache, 0, &wanted).await;
            }
        });
        rt.run_until_idle();
        let mut wanted = [0; SECTOR_BYTES];
        world::sector_bytes(3001, &mut wanted);
        assert!(
            world.origin.peek(0, SECTOR_BYTES) == wanted,
            "seed {seed}: the origin has the write that was given up"
        );
    }
}
