//! A chunk whose clean record is not logged yet is written over, destaged, and written back. The
//! record is the same, and its log entry must not be older than the chunk's later states.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::world::{self, Shape, World, read, write};
use larder_core::types::SECTOR_BYTES;
use larder_device::{IoOp, Runtime};
use larder_engine::{WriteMode, designs::ENGINE_DESIGNS};
use larder_format::{DesignId, StoreKind};
use std::{sync::atomic::Ordering::*, time::Duration};

/// The chunk.
const X: usize = 40;

fn bytes_of(stamps: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; stamps.len() * SECTOR_BYTES];
    for (&stamp, sector) in stamps.iter().zip(bytes.chunks_mut(SECTOR_BYTES)) {
        world::sector_bytes(stamp, sector);
    }
    bytes
}

/// Takes the chunk from clean `first` over dirty, destaged `second` to dirty `first` again.
///
/// A crash must leave it dirty, because the origin has `second`.
fn comes_back_dirty(design: DesignId, kind: StoreKind, first: &[u32], second: &[u32]) {
    let rt = runtime(1);
    let world = World::new(&rt, Shape { design, ..shape(WriteMode::Back) });
    let flash = Gate::new(&world.flash);
    let offset = (X * CHUNK * SECTOR_BYTES) as u64;
    world.origin.poke(offset, &bytes_of(first));
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        // A record that fills its slot is written at once, and the gate holds that write; otherwise
        // the segment stays open.
        let is_written_at_once = kind != StoreKind::Weus && first != vec![0; CHUNK];
        if is_written_at_once {
            flash.hold_nth(IoOp::Write, 1);
        }
        read(&cache, X * CHUNK, CHUNK).await;
        until(&rt, "the chunk is inserted", || cache.status().counts.inserted_chunks == 1).await;
        if is_written_at_once {
            until(&rt, "its record is on its way", || flash.waiting() > 0).await;
        }
        write(&cache, X * CHUNK, second, false).await;
        let destaging = cache.clone();
        let destaged = spawn(&rt, async move { assert!(destaging.destage_all().await) });
        rt.delay(Duration::from_millis(50)).await.expect("a delay ends");
        if !destaged.load(Acquire) {
            // Slots of several records wait for each other: then this order of events cannot occur.
            return flash.release();
        }
        assert_eq!(world.origin.peek(offset, SECTOR_BYTES), bytes_of(&second[..1]), "it was destaged");
        write(&cache, X * CHUNK, first, false).await;
        flash.release();
        rt.delay(Duration::from_millis(50)).await.expect("a delay ends");
        flash.release();
        cache.flush().await.expect("flushed");
        cache.wait_for_insertions().await;
        // This makes the clean record's log entry durable, in any form.
        write(&cache, (X + 9) * CHUNK, &stamps(9001, CHUNK), false).await;
        cache.flush().await.expect("flushed");
    });
    rt.crash();
    let rt = attach(&world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        expect(&cache, X * CHUNK, first).await;
        assert!(cache.destage_all().await, "the origin takes it");
        cache.close().await.expect("closed");
    });
    let found = world.origin.peek(offset, CHUNK * SECTOR_BYTES);
    assert!(found == bytes_of(first), "{design:?}: what was written last was taken for clean, and the origin lacks it");
}

#[test]
fn contract_a_clean_record_is_not_logged_over_a_dirty_mapping_to_it() {
    for design in ENGINE_DESIGNS {
        comes_back_dirty(design.id, design.kind(), &stamps(1001, CHUNK), &stamps(2001, CHUNK));
    }
}
