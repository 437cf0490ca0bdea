//! Durable requests of one chunk: one that waits for its commit holds up no other. All of them
//! share the next commit.
//!
//! Invariants: as in `mod.rs`.

use super::{crowds::patient, gate::*};
use crate::world::{World, identify, read, write, zero};
use larder_device::{IoOp, Runtime, ZeroFlags};
use larder_engine::WriteMode;
use std::{sync::atomic::Ordering::*, time::Duration};

const AT: usize = 5 * CHUNK;
/// Requests beside the one whose commit waits.
const REQUESTS: usize = 24;

#[test]
fn durable_requests_of_one_chunk_share_a_commit() {
    let rt = patient(1);
    let world = World::new(&rt, without_buckets(shape(WriteMode::Back)));
    let layout = world.layout();
    let log = layout.log_offset..layout.log_offset + layout.log_bytes;
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        flash.hold_within(IoOp::Write, log);
        let first = {
            let cache = cache.clone();
            spawn(&rt, async move { write(&cache, AT, &[1; CHUNK], true).await })
        };
        until(&rt, "its commit waits", || flash.waiting() > 0).await;
        let before = cache.status().counts.commits;
        write(&cache, AT, &[3; CHUNK], false).await;
        assert!(!first.load(Acquire), "it is durable before its frame");
        let others: Vec<_> = (0..REQUESTS)
            .map(|number| {
                let (cache, fua) = (cache.clone(), ZeroFlags { fua: true, ..ZeroFlags::default() });
                spawn(&rt, async move {
                    match number % 4 {
                        0 => zero(&cache, AT, CHUNK, fua).await,
                        1 => zero(&cache, AT + 1, 1, fua).await,
                        2 => write(&cache, AT + 2, &[5], true).await,
                        _ => write(&cache, AT, &[7 + number as u32 * 2; CHUNK], true).await,
                    }
                })
            })
            .collect();
        rt.delay(Duration::from_millis(10)).await.expect("a delay ends");
        let behind = {
            let cache = cache.clone();
            spawn(&rt, async move { write(&cache, AT, &[101; CHUNK], false).await })
        };
        until(&rt, "a write behind them is over", || behind.load(Acquire)).await;
        assert_eq!(identify(&read(&cache, AT, 1).await, [101]), Some(101));
        assert!(!first.load(Acquire) && others.iter().all(|done| !done.load(Acquire)), "one is durable too early");
        flash.release();
        until(&rt, "all are durable", || first.load(Acquire) && others.iter().all(|done| done.load(Acquire))).await;
        let commits = cache.status().counts.commits - before;
        assert!(commits <= 3, "{REQUESTS} requests behind a commit took {commits} commits");
        cache.close().await.expect("closed");
    });
}
