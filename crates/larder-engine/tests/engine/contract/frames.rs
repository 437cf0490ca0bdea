//! A commit of several frames: what is in the last of them is not durable while the first ones are.
//!
//! A log that is not large has such a commit where its region ends: what does not fit before the end is another frame.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::world::{read, write, zero};
use larder_device::{IoOp, ZeroFlags};
use larder_engine::WriteMode;
use std::{sync::atomic::Ordering::*, time::Duration};

/// Chunks that are trimmed with one commit, each an entry of its own. No frame is too small for them.
const TRIMMED: usize = 400;
/// Commits after which the log has gone round several times.
const COMMITS: usize = 80;

/// FLUSH while a commit of several frames is under way, of which some are written: it waits for all of them.
#[test]
fn contract_a_flush_waits_for_the_last_frame_of_a_commit() {
    let (world, rt) = new_world(WriteMode::Back);
    let log = world.layout().log_offset..world.layout().log_offset + world.layout().log_bytes;
    assert!(world.layout().frame_entries_max() > TRIMMED);
    let flash = Gate::new(&world.flash);
    let last = 2 * (TRIMMED - 1) * CHUNK;
    let split = rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        let mut split = 0;
        for _ in 0..COMMITS {
            write(&cache, last, &stamps(1001, CHUNK), true).await;
            for chunk in (0..TRIMMED).map(|number| 2 * number) {
                zero(&cache, chunk * CHUNK, CHUNK, ZeroFlags::default()).await;
            }
            flash.hold_within(IoOp::Write, log.clone());
            let flushing = cache.clone();
            let flushed = spawn(&rt, async move { flushing.flush().await.expect("flushed") });
            until(&rt, "a frame waits", || flash.waiting() > 0).await;
            flash.release_one();
            until(&rt, "the next frame waits, or there is none", || flash.waiting() > 0 || flushed.load(Acquire)).await;
            if !flushed.load(Acquire) {
                split += 1;
                // Whoever was woken looks again.
                let again = within(&rt, Duration::from_millis(20), cache.flush()).await;
                assert!(
                    again.is_none() && !flushed.load(Acquire),
                    "a trim counts as durable before its frame is written"
                );
            }
            flash.release();
            until(&rt, "all is written", || flushed.load(Acquire)).await;
        }
        split
    });
    assert!(split > 0, "no commit had two frames");
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        let found = read(&cache, last, CHUNK).await;
        assert!(found.iter().all(|&byte| byte == 0), "a trim that was flushed is gone");
    });
}
