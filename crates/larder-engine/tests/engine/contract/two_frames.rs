//! A commit of two frames of the log: its entries are durable frame by frame. FLUSH ends when the
//! last of them is.
//!
//! Invariants: as in `mod.rs`.

use super::{crowds::patient, gate::*};
use crate::{
    common::Probe,
    world::{World, ZERO, identify, read, write, zero},
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{IoOp, Runtime, ZeroFlags};
use larder_engine::WriteMode;
use std::{sync::atomic::Ordering::*, time::Duration};

/// Chunks that one commit says are trimmed.
const TRIMS: usize = 300;
/// The first frame of that commit fills the end of the log's region.
///
/// It has at most so many bytes: fewer entries than [`TRIMS`].
const FIRST_FRAME_BYTES_MAX: u64 = 8 << 10;
/// The log gets a checkpoint at this percentage of its region, so near the end that no other one
/// comes.
const CHECKPOINT_AT_PERCENT: u64 = 70;

fn stamp(chunk: usize) -> u32 {
    1001 + 2 * chunk as u32
}

/// Makes a commit at the end of the log's region that needs two frames.
///
/// A client asks for a FLUSH between the two. Then the power goes: at once, or when the FLUSH is
/// over.
fn flush_between_two_frames(is_cut_between: bool) {
    let rt = patient(1);
    let world = World::new(&rt, without_buckets(shape(WriteMode::Back)));
    let layout = world.layout();
    let (log, log_end) = (layout.log_offset, layout.log_offset + layout.log_bytes);
    let probe = Probe::new(world.flash.clone());
    let flash = Gate::over(probe.clone());
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..TRIMS {
            write(&cache, chunk * CHUNK, &[stamp(chunk); CHUNK], false).await;
        }
        cache.flush().await.expect("flushed");
        // Small commits, until the next frame comes near the end of the region.
        let at = (TRIMS + 8) * CHUNK;
        let mut is_checkpoint_due = true;
        loop {
            probe.take_events();
            zero(&cache, at, CHUNK, ZeroFlags { fua: true, ..ZeroFlags::default() }).await;
            let frames = probe.asked(IoOp::Write).into_iter().filter(|write| (log..log_end).contains(&write.offset));
            let head = frames.map(|frame| frame.end()).max().expect("a frame");
            if (log_end - FIRST_FRAME_BYTES_MAX..log_end).contains(&head) {
                break;
            }
            if is_checkpoint_due && (head - log) * 100 >= layout.log_bytes * CHECKPOINT_AT_PERCENT {
                cache.checkpoint().await.expect("a checkpoint");
                is_checkpoint_due = false;
            }
        }
        // The trims gather behind a commit.
        flash.hold_within(IoOp::Write, log..log_end);
        let trimming = cache.clone();
        spawn(&rt, async move { zero(&trimming, at, CHUNK, ZeroFlags { fua: true, ..ZeroFlags::default() }).await });
        until(&rt, "a commit waits", || flash.waiting() > 0).await;
        let trims: Vec<_> = (0..TRIMS)
            .map(|chunk| {
                let trimming = cache.clone();
                spawn(&rt, async move { zero(&trimming, chunk * CHUNK, CHUNK, ZeroFlags::default()).await })
            })
            .collect();
        until(&rt, "all are trimmed", || trims.iter().all(|trimmed| trimmed.load(Acquire))).await;
        assert_eq!(flash.waiting(), 1, "another commit");
        // Their commit goes on at the beginning of the region, and waits there.
        flash.hold_within(IoOp::Write, log..log + 1);
        flash.release_one();
        let early = cache.clone();
        let flushed_early = spawn(&rt, async move { early.flush().await.expect("flushed") });
        until(&rt, "the second frame waits", || flash.waiting() > 0).await;
        let late = cache.clone();
        let flushed_late = spawn(&rt, async move { late.flush().await.expect("flushed") });
        rt.delay(Duration::from_secs(1)).await.expect("a delay ends");
        let is_over = flushed_early.load(Acquire) || flushed_late.load(Acquire);
        assert!(!is_over, "a FLUSH is over, and a frame of its commit is not written");
        if !is_cut_between {
            flash.release();
            until(&rt, "both are over", || flushed_early.load(Acquire) && flushed_late.load(Acquire)).await;
        }
    });
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        let mut zeroes = 0;
        for chunk in 0..TRIMS {
            let bytes = read(&cache, chunk * CHUNK, CHUNK).await;
            let found: Vec<_> =
                bytes.chunks(SECTOR_BYTES).map(|sector| identify(sector, [ZERO, stamp(chunk)])).collect();
            assert!(found.iter().all(|stamp| stamp.is_some() && *stamp == found[0]), "chunk {chunk}: {found:?}");
            zeroes += usize::from(found[0] == Some(ZERO));
        }
        match is_cut_between {
            true => {
                assert!(0 < zeroes && zeroes < TRIMS, "{zeroes} trims are in the first frame: there were to be two")
            }
            false => assert_eq!(zeroes, TRIMS, "a flushed trim is lost"),
        }
    });
}

#[test]
fn contract_no_flush_ends_between_two_frames_of_its_commit() {
    [false, true].into_iter().for_each(flush_between_two_frames);
}
