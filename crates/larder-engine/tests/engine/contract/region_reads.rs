//! Requests of several chunks over buckets: metadata slots are read side by side, each block once.
//! The counts of reads and writes of the region agree with the device's.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::world::{World, read, write};
use larder_device::{
    IoOp, Runtime,
    sim::{SimDevice, SimDeviceOptions, SimRuntime},
};
use larder_engine::{Cache, WriteMode, create};
use larder_format::DesignId;
use std::{
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// Chunks of a request.
const CHUNKS: usize = 16;
/// More chunks than remembered metadata slots.
const OTHERS: usize = 400;

/// Makes a cache over buckets whose flash writes sectors of this size.
fn over_buckets(rt: &Arc<SimRuntime>, mode: WriteMode, sector_bytes: usize) -> World {
    let mut shape = shape(mode);
    shape.design = DesignId::Austere;
    let mut world = World::new(rt, shape);
    let options = SimDeviceOptions { sector_bytes: sector_bytes as u32, ..SimDeviceOptions::default() };
    world.flash = SimDevice::with_options(rt, "flash", world.shape.flash_bytes, options);
    rt.block_on(create(&*world.flash, world.shape.origin_bytes, &world.shape.options())).expect("it is made");
    world
}

/// Stores these chunks, clean, and others after them, so that their metadata slots are forgotten.
async fn fill(cache: &Cache, first: usize, content: impl Fn(usize) -> u32) {
    for chunk in 0..CHUNKS {
        write(cache, (first + chunk) * CHUNK, &stamps(content(chunk), CHUNK), false).await;
        cache.wait_for_insertions().await;
    }
    for other in 0..OTHERS {
        let chunk = 100 + other;
        write(cache, chunk * CHUNK, &stamps(1_000_001 + 100 * chunk as u32, CHUNK), false).await;
        cache.wait_for_insertions().await;
    }
    cache.flush().await.expect("flushed");
    cache.destage_all().await;
    cache.wait_for_insertions().await;
}

fn each(chunk: usize) -> u32 {
    1001 + 100 * chunk as u32
}

#[test]
fn contract_metadata_slots_of_a_read_are_read_side_by_side() {
    type Content = fn(usize) -> u32;
    // As many contents as chunks, and one content.
    for (content, sector_bytes, at_once) in
        [(each as Content, 512, CHUNKS), (each as Content, 4096, 2), (|_| 1001, 512, 1), (|_| 1001, 4096, 1)]
    {
        let rt = runtime(1);
        let world = over_buckets(&rt, WriteMode::Through, sector_bytes);
        let (flash, layout) = (Gate::new(&world.flash), world.layout());
        let region = layout.region_offset..layout.slots_offset;
        rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            fill(&cache, 0, content).await;
            let before = cache.status().counts;
            flash.hold_within(IoOp::Read, region.clone());
            let reading = cache.clone();
            let over = spawn(&rt, async move {
                let bytes = read(&reading, 0, CHUNKS * CHUNK).await;
                for chunk in 0..CHUNKS {
                    let part = &bytes[chunk * CHUNK * 512..(chunk + 1) * CHUNK * 512];
                    let found = part.chunks(512).zip(stamps(content(chunk), CHUNK));
                    found.for_each(|(sector, stamp)| assert_eq!(crate::world::identify(sector, [stamp]), Some(stamp)));
                }
            });
            rt.delay(Duration::from_millis(50)).await.expect("a delay ends");
            let waiting = flash.waiting();
            let what = format!("{sector_bytes} bytes a sector: {waiting} reads of the region at once");
            assert!(waiting >= at_once && !over.load(Acquire), "{what}");
            flash.release();
            until(&rt, "the chunks are read", || over.load(Acquire)).await;
            let counts = cache.status().counts;
            // Each block once: no slot is read again for another chunk with its content.
            assert_eq!(counts.flash_region_reads - before.flash_region_reads, waiting as u64, "{what}");
            let bytes = counts.flash_region_bytes_read - before.flash_region_bytes_read;
            assert_eq!(bytes, (waiting * sector_bytes) as u64, "{what}");
            let hits = counts.read_hits - before.read_hits;
            assert_eq!((hits, counts.read_misses), (CHUNKS as u64, before.read_misses), "{what}");
        });
        rt.kill();
    }
}

#[test]
fn contract_metadata_slots_of_contents_that_are_written_are_read_side_by_side() {
    let rt = runtime(1);
    let world = over_buckets(&rt, WriteMode::Back, 512);
    let (flash, layout) = (Gate::new(&world.flash), world.layout());
    let region = layout.region_offset..layout.slots_offset;
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        fill(&cache, 0, each).await;
        let before = cache.status().counts;
        flash.hold_within(IoOp::Read, region.clone());
        let writing = cache.clone();
        let over = spawn(&rt, async move {
            let contents: Vec<u32> = (0..CHUNKS).flat_map(|chunk| stamps(each(chunk), CHUNK)).collect();
            write(&writing, 40 * CHUNK, &contents, false).await;
        });
        rt.delay(Duration::from_millis(50)).await.expect("a delay ends");
        assert_eq!((flash.waiting(), over.load(Acquire)), (CHUNKS, false), "reads of the region at once");
        flash.release();
        until(&rt, "the chunks are written", || over.load(Acquire)).await;
        let counts = cache.status().counts;
        assert_eq!(counts.duplicate_chunks - before.duplicate_chunks, CHUNKS as u64);
        assert_eq!(counts.flash_region_reads - before.flash_region_reads, CHUNKS as u64);
        for chunk in 0..CHUNKS {
            expect(&cache, (40 + chunk) * CHUNK, &stamps(each(chunk), CHUNK)).await;
        }
    });
    rt.kill();
}

/// A device that writes blocks of several metadata slots reads and writes the block for each
/// change.
#[test]
fn contract_traffic_of_the_region_is_counted_as_the_device_sees_it() {
    for sector_bytes in [512u64, 4096] {
        let rt = runtime(1);
        let world = over_buckets(&rt, WriteMode::Through, sector_bytes as usize);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), world.origin.clone(), &rt).await;
            let before = cache.status().counts;
            fill(&cache, 0, each).await;
            let counts = cache.status().counts;
            let writes = counts.flash_region_writes - before.flash_region_writes;
            assert!(writes > OTHERS as u64, "{writes}");
            assert_eq!(counts.flash_region_bytes_written - before.flash_region_bytes_written, writes * sector_bytes);
            let reads = counts.flash_region_reads - before.flash_region_reads;
            assert!(reads >= if sector_bytes > 512 { writes } else { 0 }, "{reads} reads for {writes} writes");
            assert_eq!(counts.flash_region_bytes_read - before.flash_region_bytes_read, reads * sector_bytes);
        });
        rt.kill();
    }
}

/// Makes a larger cache of clean chunks, each with a content of its own.
fn over_many_buckets(rt: &Arc<SimRuntime>) -> World {
    let mut shape = shape(WriteMode::Through);
    shape.design = DesignId::Austere;
    (shape.flash_bytes, shape.origin_bytes) = (64 << 20, 64 << 20);
    let mut world = World::new(rt, shape);
    let options = SimDeviceOptions { sector_bytes: 512, ..SimDeviceOptions::default() };
    world.flash = SimDevice::with_options(rt, "flash", world.shape.flash_bytes, options);
    rt.block_on(create(&*world.flash, world.shape.origin_bytes, &world.shape.options())).expect("it is made");
    world
}

async fn filled(world: &World, rt: &Arc<SimRuntime>, chunks: usize) -> Arc<Cache> {
    let cache = open_on(world, world.flash.clone(), world.origin.clone(), rt).await;
    for chunk in 0..chunks {
        write(&cache, chunk * CHUNK, &stamps(each(chunk), CHUNK), false).await;
        if chunk % 16 == 0 {
            cache.wait_for_insertions().await;
        }
    }
    cache.wait_for_insertions().await;
    cache.flush().await.expect("flushed");
    cache.wait_for_insertions().await;
    rt.delay(Duration::from_millis(50)).await.expect("a delay ends");
    cache
}

/// Requests of many chunks each do not push out metadata slots that others still need.
#[test]
fn contract_each_metadata_slot_is_read_once_beside_other_readers() {
    for (readers, chunks) in [(4, 64), (16, 64), (48, 32)] {
        let rt = runtime(1);
        let world = over_many_buckets(&rt);
        rt.block_on(async {
            let cache = filled(&world, &rt, readers * chunks + OTHERS).await;
            let before = cache.status().counts;
            let reader = |number: usize| {
                let cache = cache.clone();
                spawn(&rt, async move {
                    read(&cache, number * chunks * CHUNK, chunks * CHUNK).await;
                })
            };
            let over: Vec<_> = (0..readers).map(reader).collect();
            until(&rt, "all is read", || over.iter().all(|over| over.load(Acquire))).await;
            let counts = cache.status().counts;
            let reads = counts.flash_region_reads - before.flash_region_reads;
            assert_eq!(reads, (readers * chunks) as u64, "{readers} readers of {chunks} chunks");
        });
        rt.kill();
    }
}

/// Metadata slots that are remembered, and read again, are not the next to be forgotten.
#[test]
fn contract_what_is_read_again_is_remembered_anew() {
    let rt = runtime(1);
    let world = over_many_buckets(&rt);
    rt.block_on(async {
        let cache = filled(&world, &rt, 800).await;
        read(&cache, 0, 32 * CHUNK).await;
        for others in 0..7 {
            read(&cache, (100 + others * 32) * CHUNK, 32 * CHUNK).await;
        }
        let before = cache.status().counts;
        read(&cache, 0, 64 * CHUNK).await;
        assert_eq!(cache.status().counts.flash_region_reads - before.flash_region_reads, 64);
    });
    rt.kill();
}
