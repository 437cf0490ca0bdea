//! The metadata log under pressure: a checkpoint always has room in it, and frees it, under any
//! load.
//!
//! Invariants: as in `mod.rs`.

use super::{crowds::patient, gate::*};
use crate::{
    fence::MemoryFence,
    world::{World, identify, read, write, zero},
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    IoErrorKind, IoOp, Runtime, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    sim::SimRuntime,
};
use larder_engine::{Cache, WriteMode, designs};
use larder_format::{DesignId, StoreKind};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::*},
    },
    time::Duration,
};

/// A checkpoint is slow while a client writes without FLUSH and all dirty data is destaged.
#[test]
fn contract_slow_checkpoint_does_not_leave_a_full_log() {
    let rt = patient(1);
    let world = World::new(&rt, over_weus(shape(WriteMode::Back)));
    let layout = world.layout();
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        // Dirty chunks to destage later.
        for chunk in 0..1100 {
            write(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK), false).await;
        }
        cache.flush().await.unwrap();
        cache.checkpoint().await.unwrap();
        flash.hold_below(IoOp::Write, layout.log_offset);
        let mut number = 0u32;
        while cache.status().log_used_percent < 74 {
            let at = (1200 + number as usize % 8) * CHUNK;
            write(&cache, at, &stamps(500_001 + 100 * number, CHUNK), false).await;
            cache.flush().await.unwrap();
            number += 1;
        }
        until(&rt, "a checkpoint is under way", || flash.waiting() > 0).await;
        let writing = cache.clone();
        let written = spawn(&rt, async move {
            for number in 0..1000u32 {
                let at = (1200 + number as usize % 8) * CHUNK;
                write(&writing, at, &stamps(900_001 + 100 * number, CHUNK), false).await;
            }
        });
        rt.delay(Duration::from_millis(200)).await.unwrap();
        let destaging = cache.clone();
        let destaged = spawn(&rt, async move {
            destaging.destage_all().await;
        });
        rt.delay(Duration::from_millis(200)).await.unwrap();
        // The checkpoint goes on.
        flash.release();
        until(&rt, "all is written", || written.load(Acquire) && destaged.load(Acquire)).await;
        let minute = Duration::from_secs(60);
        assert!(within(&rt, minute, cache.flush()).await.is_some_and(|flushed| flushed.is_ok()), "FLUSH");
        assert!(within(&rt, minute, cache.checkpoint()).await.is_some_and(|made| made.is_ok()), "a checkpoint");
        assert!(within(&rt, minute, cache.close()).await.is_some_and(|closed| closed.is_ok()), "the end");
    });
    rt.kill();
}

/// One flush of the origin fails while many small records wait in an open WEU: each must be
/// forgotten.
#[test]
fn contract_a_failed_origin_flush_does_not_fill_the_log() {
    let rt = patient(1);
    let mut shape = shape(WriteMode::Through);
    shape.flash_bytes = 40 << 20;
    shape.origin_bytes = 128 << 20;
    shape.slot_bytes = 2 << 20;
    let world = World::new(&rt, shape);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        for chunk in 0..15_000 {
            write(&cache, chunk * CHUNK, &[1001 + 2 * chunk as u32; CHUNK], false).await;
            if chunk % 64 == 63 {
                cache.wait_for_insertions().await;
            }
        }
        cache.wait_for_insertions().await;
        assert!(cache.status().logical_bytes_cached > 4096 * 4096, "there were to be many");
        world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
        cache.flush().await.expect_err("the flush that fails");
        let minute = Duration::from_secs(60);
        let written = within(&rt, minute, try_write(&cache, 20_000 * CHUNK, &stamps(9001, CHUNK))).await;
        assert_eq!(written, Some(true), "the log is {}% full", cache.status().log_used_percent);
        assert!(within(&rt, minute, cache.close()).await.is_some(), "the end");
    });
    rt.kill();
}

/// A cache ended with a log that is nearly full: its opening makes room before all else.
#[test]
fn contract_a_crowded_log_is_over_with_the_next_opening() {
    let rt = runtime(1);
    let world = World::new(&rt, over_weus(shape(WriteMode::Back)));
    let flash = Gate::new(&world.flash);
    let below = world.layout().log_offset;
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        flash.hold_below(IoOp::Write, below);
        let mut number = 0u32;
        while cache.status().log_used_percent < 74 {
            write(&cache, (number as usize % 8) * CHUNK, &stamps(500_001 + 100 * number, CHUNK), false).await;
            cache.flush().await.unwrap();
            number += 1;
        }
        // One more commit than there is room for, without the checkpoint that would make room.
        let flushing = cache.clone();
        spawn(&rt, async move {
            write(&flushing, 0, &stamps(9001, CHUNK), false).await;
            let _ = flushing.flush().await;
        });
        rt.delay(Duration::from_secs(1)).await.unwrap();
    });
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        let used = cache.status().log_used_percent;
        assert!(used < 50, "{used}%");
        write(&cache, 0, &stamps(9001, CHUNK), false).await;
        cache.flush().await.expect("flushed");
        cache.close().await.expect("closed");
    });
}

/// One write of a checkpoint fails, once, while a write-through waits for the log.
///
/// Neither the origin nor the client is at fault.
#[test]
fn contract_one_failed_checkpoint_write_fails_no_write_through() {
    for mode in [WriteMode::Through, WriteMode::Around] {
        let rt = runtime(1);
        let mut world = World::new(&rt, that_logs(shape(mode)));
        world.shape.tuning.fence = MemoryFence::new().keeper();
        let layout = world.layout();
        let flash = Gate::new(&world.flash);
        rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            for chunk in 0..1000 {
                write(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK), false).await;
                expect(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK)).await;
                cache.wait_for_insertions().await;
                if chunk % 200 == 199 {
                    cache.flush().await.unwrap();
                    cache.checkpoint().await.unwrap();
                }
            }
            flash.hold_below(IoOp::Write, layout.log_offset);
            let writing = cache.clone();
            let failed = Arc::new(AtomicUsize::new(0));
            let count = failed.clone();
            let over = spawn(&rt, async move {
                for chunk in 0..1000 {
                    let content = stamps(200_001 + 100 * chunk as u32, CHUNK);
                    let done = try_write(&writing, chunk * CHUNK, &content).await;
                    count.fetch_add(usize::from(!done), AcqRel);
                }
            });
            rt.delay(Duration::from_secs(5)).await.unwrap();
            assert!(!over.load(Acquire) && flash.waiting() > 0, "a write waits for the checkpoint");
            world.flash.fail_next(IoOp::Write, IoErrorKind::Io);
            flash.release();
            until(&rt, "all are written", || over.load(Acquire)).await;
            assert_eq!(failed.load(Acquire), 0, "{mode:?}: the flash failed once, and the origin works");
        });
        rt.kill();
    }
}

/// A checkpoint fails at its header, as often as it is tried.
#[test]
fn contract_tries_of_a_checkpoint_that_fails_take_no_room_in_the_log() {
    let rt = patient(1);
    let world = World::new(&rt, shape(WriteMode::Back));
    let layout = world.layout();
    rt.block_on(async {
        let cache = world.open(&rt).await;
        write(&cache, 0, &stamps(1001, CHUNK), true).await;
        cache.checkpoint().await.expect("a checkpoint");
        for at in layout.checkpoint_offset {
            let range = Some(at..at + SECTOR_BYTES as u64);
            world.flash.plan().add(Fault { op: Some(IoOp::Write), range, kind: IoErrorKind::Io, times: FOR_EVER });
        }
        let before = cache.status().log_used_percent;
        // A frame each would take a third of the log.
        for _ in 0..layout.log_bytes / u64::from(layout.sector_bytes) / 3 {
            cache.checkpoint().await.expect_err("the header is not written");
        }
        let used = cache.status().log_used_percent;
        assert_eq!(used, before, "percent of the log");
        world.flash.plan().clear();
        cache.checkpoint().await.expect("a checkpoint");
        cache.close().await.expect("closed");
    });
}

/// Sends so many requests at once, each of which needs room for an entry after its read.
///
/// They need more than the log keeps room for. `used`: the filling of the log at their start, in
/// percent.
fn many_at_once<F>(clients: usize, used: u64, request: impl Fn(Arc<Cache>, usize) -> F)
where
    F: Future<Output = bool> + Send + 'static,
{
    let rt = patient(1);
    let mut shape = without_buckets(shape(WriteMode::Back));
    shape.dedup = false;
    shape.flash_bytes = 16 << 20;
    shape.origin_bytes = 64 << 20;
    let world = World::new(&rt, shape);
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..clients {
            write(&cache, chunk * CHUNK, &[1001 + 2 * chunk as u32; CHUNK], false).await;
            if chunk % 200 == 199 {
                cache.flush().await.expect("flushed");
            }
        }
        assert!(cache.destage_all().await);
        cache.checkpoint().await.expect("a checkpoint");
        cache.checkpoint().await.expect("a checkpoint");
        flash.hold_below(IoOp::Write, world.layout().log_offset);
        let mut number = 0;
        while cache.status().log_used_percent < used {
            write(&cache, (8000 + number % 8) * CHUNK, &stamps(500_001 + 100 * number as u32, CHUNK), false).await;
            cache.flush().await.expect("flushed");
            number += 1;
        }
        let (over, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for chunk in 0..clients {
            let (request, over, failed) = (request(cache.clone(), chunk), over.clone(), failed.clone());
            spawn(&rt, async move {
                let done = request.await;
                failed.fetch_add(usize::from(!done), AcqRel);
                over.fetch_add(1, AcqRel);
            });
        }
        rt.delay(Duration::from_secs(5)).await.expect("a delay ends");
        flash.release();
        for _ in 0..600 {
            if over.load(Acquire) < clients {
                rt.delay(Duration::from_secs(1)).await.expect("a delay ends");
            }
        }
        assert_eq!(
            (over.load(Acquire), failed.load(Acquire)),
            (clients, 0),
            "log {}%",
            cache.status().log_used_percent
        );
        let minute = Duration::from_secs(60);
        assert!(within(&rt, minute, cache.flush()).await.is_some_and(|flushed| flushed.is_ok()), "FLUSH");
        assert!(within(&rt, minute, cache.checkpoint()).await.is_some_and(|made| made.is_ok()), "a checkpoint");
        assert!(within(&rt, minute, cache.close()).await.is_some_and(|closed| closed.is_ok()), "the end");
    });
    rt.kill();
}

#[test]
fn contract_many_partial_writes_at_once_leave_the_log_room() {
    many_at_once(7000, 60, |cache, chunk| async move {
        try_write(&cache, chunk * CHUNK, &[200_001 + 2 * chunk as u32]).await
    });
}

#[test]
fn contract_many_partial_trims_at_once_leave_the_log_room() {
    many_at_once(3500, 73, |cache, chunk| async move {
        let offset = (chunk * CHUNK * SECTOR_BYTES) as u64;
        cache.zero(offset, SECTOR_BYTES as u64, ZeroFlags::default()).await.is_ok()
    });
}

/// A flush of the origin fails under a checkpoint.
///
/// A later write fails only after another flush was tried.
#[test]
fn contract_old_failure_of_a_checkpoint_is_not_told_to_a_later_write() {
    let rt: Arc<SimRuntime> = patient(1);
    let world = World::new(&rt, that_logs(shape(WriteMode::Through)));
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..1000 {
            write(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK), false).await;
            cache.wait_for_insertions().await;
            if chunk % 200 == 199 {
                cache.flush().await.expect("flushed");
                cache.checkpoint().await.expect("a checkpoint");
            }
        }
        flash.hold_below(IoOp::Write, world.layout().log_offset);
        let writing = cache.clone();
        let over = spawn(&rt, async move {
            for chunk in 0..420 {
                try_write(&writing, chunk * CHUNK, &stamps(200_001 + 100 * chunk as u32, CHUNK)).await;
            }
        });
        rt.delay(Duration::from_secs(5)).await.expect("a delay ends");
        assert!(!over.load(Acquire) && flash.waiting() > 0, "a write waits for the checkpoint");
        let failures = cache.status().counts.origin_flush_failures;
        world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
        flash.release();
        until(&rt, "it fails", || cache.status().counts.origin_flush_failures > failures).await;
        rt.delay(Duration::from_millis(100)).await.expect("a delay ends");
        let content = stamps(900_001, CHUNK);
        let written = within(&rt, Duration::from_secs(60), try_write(&cache, 900 * CHUNK, &content)).await;
        assert_eq!(written, Some(true), "nothing had been tried again");
    });
    rt.kill();
}

/// Destages so many batches to a slow origin at once, and evicts slots, beside a slow checkpoint.
///
/// The log comes to its reserve.
fn overfill(design: &str, destages: usize) {
    const BATCH: usize = 256;
    let rt = patient(1);
    let mut shape = shape(WriteMode::Back);
    shape.design = designs::named(design).expect("a design").id;
    shape.tuning.dirty_low_percent = 90;
    shape.tuning.dirty_high_percent = 92;
    shape.tuning.dirty_max_percent = 95;
    let world = World::new(&rt, shape);
    let layout = world.layout();
    let (flash, origin) = (Gate::new(&world.flash), Gate::new(&world.origin));
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), origin.clone(), &rt).await;
        let mut stamp = 2_000_000u32;
        let mut next = || {
            stamp += 100;
            stamps(stamp, CHUNK)
        };
        origin.hold(IoOp::Write);
        let mut all = Vec::new();
        for batch in (0..destages).rev() {
            for chunk in batch * BATCH..(batch + 1) * BATCH {
                write(&cache, chunk * CHUNK, &next(), false).await;
            }
            cache.flush().await.expect("flushed");
            let (destaging, before) = (cache.clone(), origin.waiting());
            all.push(spawn(&rt, async move {
                destaging.destage_all().await;
            }));
            until(&rt, "it writes to the origin", || origin.waiting() > before).await;
        }
        cache.checkpoint().await.expect("a checkpoint");
        let hot = move |i: usize| (destages * BATCH + 8 + i % 8) * CHUNK;
        // In slots of one chunk, until nearly as few are free as are kept.
        let kept = (u64::from(layout.slot_count) / 64).clamp(2, 256);
        let mut number = 0;
        while layout.store() != StoreKind::Weus && cache.status().slots_free > kept + 2 {
            write(&cache, hot(number), &next(), false).await;
            if number % 64 == 0 {
                cache.flush().await.expect("flushed");
            }
            number += 1;
        }
        cache.flush().await.expect("flushed");
        cache.checkpoint().await.expect("a checkpoint");
        flash.hold_below(IoOp::Write, layout.log_offset);
        let far = world.sectors - 16 * CHUNK;
        for _ in 0..100_000 {
            let trimmed = async {
                zero(&cache, far, CHUNK, ZeroFlags::default()).await;
                cache.flush().await.expect("flushed");
            };
            if cache.status().log_used_percent >= 70 || within(&rt, Duration::from_millis(50), trimmed).await.is_none()
            {
                break;
            }
        }
        let writing = cache.clone();
        let written = spawn(&rt, async move {
            for i in 0..300u32 {
                try_write(&writing, hot(i as usize), &stamps(9_000_000 + 100 * i, CHUNK)).await;
            }
        });
        rt.delay(Duration::from_millis(300)).await.expect("a delay ends");
        origin.release();
        rt.delay(Duration::from_millis(300)).await.expect("a delay ends");
        flash.release();
        rt.delay(Duration::from_secs(30)).await.expect("a delay ends");
        let status = cache.status();
        let state = format!("{design}: the log is {}% full, {:?}", status.log_used_percent, status.conditions);
        assert!(all.iter().all(|one| one.load(Acquire)), "destages hang; {state}");
        assert!(written.load(Acquire), "writes hang; {state}");
        let minute = Duration::from_secs(60);
        assert!(within(&rt, minute, cache.flush()).await.is_some_and(|flushed| flushed.is_ok()), "FLUSH; {state}");
        assert!(within(&rt, minute, cache.close()).await.is_some_and(|closed| closed.is_ok()), "the end; {state}");
    });
    rt.kill();
}

#[test]
fn contract_many_destages_and_an_eviction_leave_the_log_room() {
    for (design, destages) in [("nitro", 4), ("lru", 2), ("lru", 3), ("lru", 4), ("d-arc", 4)] {
        overfill(design, destages);
    }
}

/// The origin hangs, and a client asks again and again for a full destage.
///
/// That takes no room from the writers, and starts no checkpoint.
#[test]
fn contract_destages_that_wait_for_their_turn_take_no_room_in_the_log() {
    for (asks, trims) in [(60, false), (60, true)] {
        let rt = patient(1);
        let world = World::new(&rt, over_weus(shape(WriteMode::Back)));
        let origin = Gate::new(&world.origin);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
            if trims {
                zero(&cache, 0, CHUNK, ZeroFlags::default()).await;
            } else {
                for chunk in 0..256 {
                    write(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK), false).await;
                }
            }
            origin.hold(if trims { IoOp::WriteZeroes } else { IoOp::Write });
            cache.flush().await.expect("flushed");
            cache.checkpoint().await.expect("a checkpoint");
            for _ in 0..asks {
                let _ = within(&rt, Duration::from_secs(1), cache.destage_all()).await;
            }
            let before = cache.status().counts.checkpoints;
            let content = stamps(9001, CHUNK);
            let written = within(&rt, Duration::from_secs(60), try_write(&cache, 400 * CHUNK, &content)).await;
            assert_eq!(written, Some(true), "the log is {}% full", cache.status().log_used_percent);
            assert_eq!(cache.status().counts.checkpoints, before);
            origin.release();
        });
        rt.kill();
    }
}

/// The flash fails its reads while a checkpoint is slow, and a client reads all chunks.
///
/// That takes no more of the log than any other work.
#[test]
fn contract_many_clean_records_that_cannot_be_read_leave_the_log_room() {
    let rt = patient(1);
    let mut shape = over_weus(shape(WriteMode::Back));
    shape.flash_bytes = 40 << 20;
    shape.origin_bytes = 128 << 20;
    shape.slot_bytes = 2 << 20;
    let world = World::new(&rt, shape);
    let layout = world.layout();
    let flash = Gate::new(&world.flash);
    const CHUNKS: usize = 15_000;
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..CHUNKS {
            write(&cache, chunk * CHUNK, &[1001 + 2 * chunk as u32; CHUNK], false).await;
        }
        assert!(cache.destage_all().await);
        cache.checkpoint().await.expect("a checkpoint");
        cache.checkpoint().await.expect("a checkpoint");
        world.flash.fail_range(IoOp::Read, layout.slots_offset..layout.flash_bytes, IoErrorKind::Io, u64::MAX);
        flash.hold_below(IoOp::Write, layout.log_offset);
        for chunk in 0..CHUNKS {
            let bytes = read(&cache, chunk * CHUNK, 1).await;
            assert!(identify(&bytes, [1001 + 2 * chunk as u32]).is_some(), "chunk {chunk}");
        }
        flash.release();
        let minute = Duration::from_secs(60);
        let written = within(&rt, minute, try_write(&cache, 20_000 * CHUNK, &stamps(9001, CHUNK))).await;
        assert_eq!(written, Some(true), "the log is {}% full", cache.status().log_used_percent);
        assert!(within(&rt, minute, cache.flush()).await.is_some_and(|flushed| flushed.is_ok()), "FLUSH");
        assert!(within(&rt, minute, cache.checkpoint()).await.is_some_and(|made| made.is_ok()), "a checkpoint");
        assert!(within(&rt, minute, cache.close()).await.is_some_and(|closed| closed.is_ok()), "the end");
    });
    rt.kill();
}

/// The flash fails over its checkpoints when its log is crowded, and then fails its reads.
///
/// Each clean chunk is asked of the flash once, and of the origin from then on.
#[test]
fn contract_clean_records_of_a_failed_flash_are_asked_for_once_though_its_log_was_crowded() {
    let rt = patient(1);
    let world = World::new(&rt, over_weus(shape(WriteMode::Back)));
    let layout = world.layout();
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..100 {
            write(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK), false).await;
        }
        assert!(cache.destage_all().await);
        cache.checkpoint().await.expect("a checkpoint");
        flash.hold_below(IoOp::Write, layout.log_offset);
        let mut stamp = 500_001;
        while cache.status().log_used_percent < 74 {
            stamp += 100;
            write(&cache, 200 * CHUNK, &stamps(stamp, CHUNK), false).await;
            cache.flush().await.expect("flushed");
        }
        world.flash.fail_range(IoOp::Write, 0..layout.log_offset, IoErrorKind::Io, u64::MAX);
        world.flash.fail_range(IoOp::Read, layout.slots_offset..layout.flash_bytes, IoErrorKind::Io, u64::MAX);
        flash.release();
        for _ in 0..100 {
            rt.delay(Duration::from_millis(100)).await.expect("a delay ends");
        }
        assert!(cache.status().degraded, "no checkpoint could be written");
        let read_all = async || {
            for chunk in 0..100 {
                expect(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK)).await;
            }
            cache.status().counts.flash_read_errors
        };
        let once = read_all().await;
        assert!(once >= 100, "they were to be on the flash");
        let again = read_all().await - once;
        // The destage of dirty data tries on, and may cause a few.
        assert!(again < 50, "{again} reads of the flash for what it did not read before");
    });
    rt.kill();
}

/// Write-throughs of cached chunks, more at once than the log has room for, while one commit is
/// slow.
#[test]
fn contract_many_write_throughs_at_once_behind_a_slow_commit_end() {
    let rt = patient(1);
    let mut shape = over_weus(shape(WriteMode::Through));
    shape.flash_bytes = 6 << 20;
    shape.origin_bytes = 32 << 20;
    let world = World::new(&rt, shape);
    let flash = Gate::new(&world.flash);
    let clients = world.layout().mappings_max as usize * 7 / 8;
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..clients {
            write(&cache, chunk * CHUNK, &[1001 + 2 * chunk as u32; CHUNK], false).await;
            if chunk % 64 == 63 {
                cache.wait_for_insertions().await;
                cache.flush().await.expect("flushed");
            }
        }
        cache.wait_for_insertions().await;
        cache.flush().await.expect("flushed");
        cache.checkpoint().await.expect("a checkpoint");
        cache.checkpoint().await.expect("a checkpoint");
        flash.hold(IoOp::Write);
        let over = Arc::new(AtomicUsize::new(0));
        for chunk in 0..clients {
            let (cache, over) = (cache.clone(), over.clone());
            spawn(&rt, async move {
                assert!(try_write(&cache, chunk * CHUNK, &[200_001 + 2 * chunk as u32; CHUNK]).await);
                over.fetch_add(1, AcqRel);
            });
        }
        rt.delay(Duration::from_secs(5)).await.expect("a delay ends");
        flash.release();
        for _ in 0..600 {
            if over.load(Acquire) < clients {
                rt.delay(Duration::from_secs(1)).await.expect("a delay ends");
            }
        }
        assert_eq!(over.load(Acquire), clients, "the log is {}% full", cache.status().log_used_percent);
    });
    rt.kill();
}

/// Entries are committed one by one, each in a frame of its own, beside a slow checkpoint.
///
/// That takes more of the log than a common frame, while many more entries have room reserved.
#[test]
fn contract_many_small_commits_leave_the_log_room() {
    const BATCH: usize = 256;
    const DESTAGES: usize = 4;
    let rt = patient(1);
    let mut shape = over_weus(shape(WriteMode::Back));
    shape.flash_bytes = 6 << 20;
    shape.origin_bytes = 64 << 20;
    shape.dedup = false;
    shape.tuning.dirty_low_percent = 90;
    shape.tuning.dirty_high_percent = 92;
    shape.tuning.dirty_max_percent = 95;
    let world = World::new(&rt, shape);
    let layout = world.layout();
    let writers = (layout.zero_ranges_max).min(layout.log_bytes / 64 / 8) as usize;
    let (flash, origin) = (Gate::new(&world.flash), Gate::new(&world.origin));
    let reads = Gate::over(flash.clone());
    rt.block_on(async {
        let cache = open_on(&world, reads.clone(), origin.clone(), &rt).await;
        let part = DESTAGES * BATCH;
        for chunk in part..part + writers {
            write(&cache, chunk * CHUNK, &[1001 + 2 * chunk as u32; CHUNK], false).await;
        }
        assert!(cache.destage_all().await);
        origin.hold(IoOp::Write);
        let mut all = Vec::new();
        for batch in (0..DESTAGES).rev() {
            for chunk in batch * BATCH..(batch + 1) * BATCH {
                write(&cache, chunk * CHUNK, &[1001 + 2 * chunk as u32; CHUNK], false).await;
            }
            cache.flush().await.expect("flushed");
            let (destaging, before) = (cache.clone(), origin.waiting());
            all.push(spawn(&rt, async move {
                destaging.destage_all().await;
            }));
            until(&rt, "it writes to the origin", || origin.waiting() > before).await;
        }
        cache.checkpoint().await.expect("a checkpoint");
        cache.checkpoint().await.expect("a checkpoint");
        flash.hold_below(IoOp::Write, layout.log_offset);
        let mut stamp = 500_001;
        while cache.status().log_used_percent < 44 {
            stamp += 2;
            write(&cache, (part + writers) * CHUNK, &[stamp; CHUNK], false).await;
            cache.flush().await.expect("flushed");
        }
        reads.hold_within(IoOp::Read, layout.slots_offset..u64::MAX);
        for chunk in part..part + writers {
            let cache = cache.clone();
            all.push(spawn(&rt, async move {
                assert!(try_write(&cache, chunk * CHUNK, &[200_001 + 2 * chunk as u32]).await);
            }));
        }
        until(&rt, "they read", || reads.waiting() >= writers - 16).await;
        while reads.waiting() > 1 {
            reads.release_one();
            rt.delay(Duration::from_millis(1)).await.expect("a delay ends");
            if within(&rt, Duration::from_millis(50), cache.flush()).await.is_none() {
                break;
            }
        }
        origin.release();
        reads.release();
        rt.delay(Duration::from_millis(300)).await.expect("a delay ends");
        flash.release();
        rt.delay(Duration::from_secs(30)).await.expect("a delay ends");
        let state = format!("the log is {}% full", cache.status().log_used_percent);
        assert!(all.iter().all(|one| one.load(Acquire)), "requests hang; {state}");
        let minute = Duration::from_secs(60);
        assert!(within(&rt, minute, cache.flush()).await.is_some_and(|flushed| flushed.is_ok()), "FLUSH; {state}");
        assert!(
            within(&rt, minute, cache.checkpoint()).await.is_some_and(|made| made.is_ok()),
            "a checkpoint; {state}"
        );
        assert!(within(&rt, minute, cache.close()).await.is_some_and(|closed| closed.is_ok()), "the end; {state}");
    });
    rt.kill();
}

/// The origin hangs, and destages that wait for it have most of the log reserved.
///
/// FLUSH goes on, however few entries each has. No checkpoint is made if it does not help, for any
/// waiter.
#[test]
fn contract_a_log_that_others_have_reserved_stops_no_flush_and_has_no_checkpoints_made() {
    const BATCH: usize = 256;
    // Each destage reserves 512 of the log's 4,608 entries. In the last case that exceeds the share
    // that may be filled.
    for (destages, writers) in [(3, 400), (5, 400), (6, 400), (7, 200)] {
        let rt = patient(1);
        let mut shape = over_weus(shape(WriteMode::Back));
        if destages > 5 {
            // The last cases need more dirty chunks than half of the addresses, the most that other
            // designs have.
            shape.design = DesignId::Nitro;
        }
        shape.flash_bytes = 6 << 20;
        shape.origin_bytes = 64 << 20;
        shape.dedup = false;
        shape.tuning.dirty_low_percent = 90;
        shape.tuning.dirty_high_percent = 92;
        shape.tuning.dirty_max_percent = 95;
        let world = World::new(&rt, shape);
        let layout = world.layout();
        let (flash, origin) = (Gate::new(&world.flash), Gate::new(&world.origin));
        rt.block_on(async {
            let cache = open_on(&world, flash.clone(), origin.clone(), &rt).await;
            let pause = async |millis| rt.delay(Duration::from_millis(millis)).await.expect("a delay ends");
            let minute = Duration::from_secs(60);
            let part = destages * (1 + BATCH);
            let beyond = part + writers;
            // Often enough for the average size of a stored chunk to count.
            for chunk in (0..3).flat_map(|_| part..part + writers) {
                write(&cache, chunk * CHUNK, &[1001 + 2 * chunk as u32; CHUNK], false).await;
            }
            assert!(cache.destage_all().await);
            origin.hold(IoOp::WriteZeroes);
            let mut all = Vec::new();
            // Each chunk is in a run of its own, with enough chunks behind it to end a batch.
            for chunk in (0..part).step_by(1 + BATCH).rev() {
                for (number, dirty) in (chunk + 1..=chunk + BATCH).enumerate() {
                    let stamps = [1001 + 2 * dirty as u32; CHUNK];
                    let written = within(&rt, minute, write(&cache, dirty * CHUNK, &stamps, false)).await;
                    let state = || (cache.status().conditions, cache.status().slots_free, cache.status().dirty_bytes);
                    assert!(written.is_some(), "{destages} destages: write {dirty} hangs: {:?}", state());
                    if number % 64 == 63 {
                        cache.checkpoint().await.expect("a checkpoint");
                    }
                }
                zero(&cache, chunk * CHUNK, CHUNK, ZeroFlags::default()).await;
                cache.flush().await.expect("flushed");
                cache.checkpoint().await.expect("a checkpoint");
                cache.checkpoint().await.expect("a checkpoint");
                if chunk == 0 {
                    flash.hold_within(IoOp::Read, layout.slots_offset..u64::MAX);
                    for chunk in part..part + writers {
                        let cache = cache.clone();
                        all.push(spawn(&rt, async move {
                            assert!(try_write(&cache, chunk * CHUNK, &[200_001 + 2 * chunk as u32]).await);
                        }));
                    }
                    pause(10).await;
                }
                let (destaging, before) = (cache.clone(), origin.waiting());
                all.push(spawn(&rt, async move {
                    destaging.destage_all().await;
                }));
                until(&rt, "it waits for the origin", || origin.waiting() > before).await;
            }
            assert!(flash.waiting() > 100, "writers that read: {}", flash.waiting());
            for number in 0..100 {
                flash.release_one();
                pause(1).await;
                let flushed = within(&rt, minute, cache.flush()).await;
                assert!(flushed.is_some_and(|flushed| flushed.is_ok()), "{destages} destages, FLUSH {number}");
            }
            let writing = cache.clone();
            all.push(spawn(&rt, async move {
                assert!(try_write(&writing, beyond * CHUNK, &stamps(9001, CHUNK)).await);
            }));
            pause(1000).await;
            let before = cache.status().counts.checkpoints;
            for chunk in 0..100 {
                read(&cache, (beyond + 2 + 2 * chunk) * CHUNK, CHUNK).await;
                pause(1000).await;
            }
            let made = cache.status().counts.checkpoints - before;
            assert!(made <= 2, "{destages} destages: {made} checkpoints");
            flash.release();
            origin.release();
            pause(30_000).await;
            let state = format!("{destages} destages, the log is {}% full", cache.status().log_used_percent);
            assert!(all.iter().all(|one| one.load(Acquire)), "requests hang; {state}");
            assert!(within(&rt, minute, cache.flush()).await.is_some_and(|flushed| flushed.is_ok()), "FLUSH; {state}");
            assert!(within(&rt, minute, cache.close()).await.is_some_and(|closed| closed.is_ok()), "the end; {state}");
        });
        rt.kill();
    }
}

/// Clients rewrite more clean cached chunks at once than the log's reserve has entries for.
///
/// A checkpoint is slow meanwhile. A request that finds the log crowded waits, in each design, and
/// none fails.
#[test]
fn contract_a_crowd_of_rewrites_leaves_the_log_room() {
    const REWRITES: usize = 8000;
    for design in designs::ENGINE_DESIGNS {
        let rt = patient(1);
        let mut shape = shape(WriteMode::Through);
        shape.design = design.id;
        shape.flash_bytes = 16 << 20;
        shape.origin_bytes = 64 << 20;
        let world = World::new(&rt, shape);
        let below = world.layout().log_offset;
        let flash = Gate::new(&world.flash);
        rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            for chunk in 0..REWRITES {
                write(&cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK), false).await;
                if chunk % 64 == 63 {
                    cache.wait_for_insertions().await;
                }
            }
            cache.flush().await.expect("flushed");
            cache.checkpoint().await.expect("a checkpoint");
            flash.hold_below(IoOp::Write, below);
            let (over, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            for chunk in 0..REWRITES {
                let (cache, over, failed) = (cache.clone(), over.clone(), failed.clone());
                spawn(&rt, async move {
                    let done = try_write(&cache, chunk * CHUNK, &stamps(2_000_001 + 100 * chunk as u32, CHUNK)).await;
                    failed.fetch_add(usize::from(!done), AcqRel);
                    over.fetch_add(1, AcqRel);
                });
            }
            rt.delay(Duration::from_secs(2)).await.expect("a delay ends");
            flash.release();
            for _ in 0..600 {
                if over.load(Acquire) < REWRITES {
                    rt.delay(Duration::from_secs(1)).await.expect("a delay ends");
                }
            }
            let minute = Duration::from_secs(60);
            let later = within(&rt, minute, try_write(&cache, 0, &stamps(9_000_001, CHUNK))).await;
            let state = format!("{}: the log is {}% full", design.name, cache.status().log_used_percent);
            assert_eq!((over.load(Acquire), failed.load(Acquire)), (REWRITES, 0), "over, and failed; {state}");
            assert_eq!(later, Some(true), "a write afterwards; {state}");
            assert!(within(&rt, minute, cache.close()).await.is_some_and(|closed| closed.is_ok()), "the end; {state}");
        });
        rt.kill();
    }
}
