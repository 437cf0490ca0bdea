//! Chunks that cannot leave a full cache do not keep the others in it. One wrong read condemns
//! nothing.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::world::{World, read, sector_bytes, write};
use larder_core::{Lba, types::SECTOR_BYTES};
use larder_device::{
    IoErrorKind, IoOp,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::SimRuntime,
};
use larder_engine::{Cache, WriteMode};
use std::{sync::Arc, time::Duration};

const CHUNKS: usize = 4000;
const CHUNK_BYTES: usize = CHUNK * SECTOR_BYTES;

/// Returns a content that no other chunk has.
fn content(chunk: usize) -> Vec<u32> {
    stamps(1_000_000 + 64 * chunk as u32, CHUNK)
}

/// Writes more than the flash holds. Each write must be over within two minutes.
async fn fill(cache: &Cache, from: usize, rt: &Arc<SimRuntime>) {
    for chunk in from..CHUNKS {
        let written = within(rt, Duration::from_secs(120), try_write(cache, chunk * CHUNK, &content(chunk))).await;
        assert_eq!(written, Some(true), "chunk {chunk}");
    }
    assert!(!cache.status().degraded);
}

#[test]
fn contract_a_few_bad_sectors_of_the_origin_do_not_stop_a_full_cache() {
    for count in 0..4 {
        let (world, rt) = new_world(WriteMode::Back);
        for number in 0..count {
            // Some slots get a chunk each.
            let at = (number * 130 * CHUNK_BYTES) as u64;
            let range = Some(at..at + SECTOR_BYTES as u64);
            world.origin.plan().add(Fault { op: Some(IoOp::Write), range, kind: IoErrorKind::Io, times: FOR_EVER });
        }
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
            fill(&cache, 0, &rt).await;
        });
        rt.kill();
    }
}

#[test]
fn contract_a_few_rotten_records_do_not_stop_a_full_cache() {
    for count in 0..4 {
        let (world, rt) = new_world(WriteMode::Back);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
            for chunk in 0..600 {
                write(&cache, chunk * CHUNK, &content(chunk), false).await;
            }
            cache.flush().await.expect("flushed");
            let mut slots = Vec::new();
            for chunk in 0..500 {
                let slot = cache.slot_of(Lba(chunk as u64)).expect("it is dirty");
                if slots.len() < count && !slots.contains(&slot) {
                    slots.push(slot);
                    rot_first_sector(&world, slot.0, &content(chunk));
                }
            }
            fill(&cache, 600, &rt).await;
        });
        rt.kill();
    }
}

fn rot_first_sector(world: &World, slot: u32, stamps: &[u32]) {
    let layout = world.layout();
    let start = layout.slot_offset(slot).expect("there is such a slot");
    let mut first = vec![0; SECTOR_BYTES];
    sector_bytes(stamps[0], &mut first);
    let bytes = world.flash.peek(start, layout.slot_bytes as usize);
    let at = bytes.chunks(SECTOR_BYTES).position(|sector| sector == first).expect("it is stored as it is");
    world.flash.corrupt(start + (at * SECTOR_BYTES) as u64, 64, &mut Rng::new(3));
}

/// The device gives wrong bytes once.
///
/// The record is sound: it is destaged, read, and merged with, as without the error.
#[test]
fn contract_one_read_that_lies_loses_no_dirty_data() {
    for how in 0..3 {
        let (world, rt) = new_world(WriteMode::Back);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
            write(&cache, 0, &content(0), false).await;
            cache.flush().await.expect("flushed");
            world.flash.misread_next(&mut Rng::new(1));
            match how {
                0 => {}
                1 => drop(read(&cache, 0, CHUNK).await),
                _ => write(&cache, 1, &content(0)[1..2], false).await,
            }
            assert!(cache.destage_all().await, "way {how}");
            expect_beside_damage(&cache, 0, &content(0)).await;
            cache.set_mode(WriteMode::Through).await.expect("the origin is complete");
        });
        rt.kill();
    }
}

/// Neighbours are written to the origin as one. One bad sector keeps its own chunk dirty, and no
/// other.
#[test]
fn contract_a_bad_sector_of_the_origin_keeps_its_own_chunk_alone() {
    const DIRTY: usize = 700;
    let (world, rt) = new_world(WriteMode::Back);
    let bad = [3, 300, 301, 699];
    for chunk in bad {
        let at = (chunk * CHUNK_BYTES + 2 * SECTOR_BYTES) as u64;
        let range = Some(at..at + SECTOR_BYTES as u64);
        world.origin.plan().add(Fault { op: Some(IoOp::Write), range, kind: IoErrorKind::Io, times: FOR_EVER });
    }
    rt.block_on(async {
        let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..DIRTY {
            assert!(try_write(&cache, chunk * CHUNK, &content(chunk)).await);
        }
        assert!(!cache.destage_all().await, "it said that all is on the origin");
        assert_eq!(cache.status().dirty_bytes, (bad.len() * CHUNK_BYTES) as u64);
        let mut wanted = vec![0; SECTOR_BYTES];
        for chunk in (0..DIRTY).filter(|chunk| !bad.contains(chunk)) {
            sector_bytes(content(chunk)[0], &mut wanted);
            assert!(world.origin.peek((chunk * CHUNK_BYTES) as u64, SECTOR_BYTES) == wanted, "chunk {chunk}");
        }
        world.origin.plan().clear();
        assert!(cache.destage_all().await, "the sectors were mended");
        assert_eq!(cache.status().dirty_bytes, 0);
    });
    rt.kill();
}

/// More unreadable neighbours than one batch holds, in lower addresses than all others.
///
/// The rest leaves all the same.
#[test]
fn contract_what_cannot_be_read_keeps_nothing_else_from_the_origin() {
    const DIRTY: usize = 900;
    let (world, rt) = new_world(WriteMode::Back);
    rt.block_on(async {
        let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
        for chunk in 0..DIRTY {
            assert!(try_write(&cache, chunk * CHUNK, &content(chunk)).await);
        }
        cache.flush().await.expect("flushed");
        let layout = world.layout();
        let slot_of = |chunk: usize| cache.slot_of(Lba(chunk as u64)).expect("cached").0;
        let bad: Vec<u32> = (0..400).map(slot_of).collect();
        let lost = (0..DIRTY).filter(|&chunk| bad.contains(&slot_of(chunk))).count();
        assert!(lost < DIRTY, "some are elsewhere");
        for &slot in &bad {
            let start = layout.slots_offset + u64::from(slot) * u64::from(layout.slot_bytes);
            let range = Some(start..start + u64::from(layout.slot_bytes));
            world.flash.plan().add(Fault { op: Some(IoOp::Read), range, kind: IoErrorKind::Io, times: FOR_EVER });
        }
        assert!(!cache.destage_all().await, "it said that all is on the origin");
        assert_eq!(cache.status().dirty_bytes, (lost * CHUNK_BYTES) as u64);
        world.flash.plan().clear();
        assert!(cache.destage_all().await, "it can be read again");
    });
    rt.kill();
}
