//! Data reduction: duplicates are stored once, zeroes nowhere, compressible chunks compressed. The
//! rest is raw. The FP index finds as many duplicates as its ratio allows. Designs without some of
//! that store so much more, and no less.

use crate::common::*;
use larder_device::rng::Rng;
use larder_engine::{Compression, WriteMode, designs};
use larder_format::{DesignId, StoreKind};

const CHUNK: usize = 8 << 10;

/// Returns an image of `chunks` distinct chunks; `percent` of them differ from image 0.
fn image(chunks: usize, percent: usize) -> Vec<u8> {
    (0..chunks)
        .flat_map(|i| {
            let differs = i % 100 < percent;
            noise(i as u64 + if differs { 1 << 32 } else { 0 }, CHUNK)
        })
        .collect()
}

/// Returns true if equal content is kept once.
fn shares() -> bool {
    design::shares_content(design::chosen())
}

#[test]
fn copies_of_an_image_grow_flash_use_by_what_differs() {
    each_seed(3, |seed| {
        let world = World::new(seed, Setup { flash_bytes: 32 * MIB, ..Setup::default() });
        let (chunks, bytes) = (600, 600 * CHUNK as u64);
        let (first, third) = (image(chunks, 0), image(chunks, 10));
        let at = [0, 16 * MIB, 32 * MIB];
        let mut stored = Vec::new();
        let mut used = Vec::new();
        for (offset, image) in at.into_iter().zip([&first, &first, &third]) {
            for (i, piece) in image.chunks(25 * CHUNK).enumerate() {
                world.write(offset + (i * 25 * CHUNK) as u64, piece);
            }
            world.flush();
            let status = world.status();
            stored.push(status.counts.stored_bytes);
            used.push(status.flash_bytes_used);
            assert_same(&world.read(offset, bytes as usize), image, "the image");
        }
        assert_eq!(stored[0], bytes, "noise is stored raw");
        // Without deduplication all of it is stored.
        let (copy, other, ratio) = if shares() { (0, bytes / 10, 3.0 / 1.1) } else { (bytes, bytes, 1.0) };
        assert_eq!(stored[1] - stored[0], copy, "what a copy stores");
        assert_eq!(stored[2] - stored[1], other, "the third stores what differs");
        let weu = 512 << 10;
        assert!(used[0] >= bytes && used[1] <= used[0] + copy + weu, "used slots {used:?}");
        assert!(used[2] <= used[1] + other.next_multiple_of(weu) + weu, "used slots {used:?}");
        let status = world.status();
        assert_eq!(status.logical_bytes_cached, 3 * bytes);
        assert!((status.dedup_ratio - ratio).abs() < 0.01, "dedup ratio {}", status.dedup_ratio);
        assert_eq!(world.origin_reads(), 0);
    });
}

#[test]
fn copies_that_reads_bring_in_are_stored_once_too() {
    each_seed(4, |seed| {
        let mut setup = Setup { flash_bytes: 32 * MIB, ..Setup::default() };
        setup.options.mode = [WriteMode::Back, WriteMode::Through, WriteMode::Around][(seed % 3) as usize];
        // Chance neighbours in a row are no streams here.
        setup.tuning.prefetch_bytes_max = 0;
        let world = World::new(seed, setup);
        let chunks = 300;
        let (first, third) = (image(chunks, 0), image(chunks, 10));
        let mut stored = Vec::new();
        for (offset, image) in [0, 16 * MIB, 32 * MIB].into_iter().zip([&first, &first, &third]) {
            world.fill_origin(offset, image);
            let mut order: Vec<usize> = (0..chunks).collect();
            Rng::new(seed).shuffle(&mut order);
            for chunk in order {
                let from = chunk * CHUNK;
                assert_same(&world.read(offset + from as u64, CHUNK), &image[from..from + CHUNK], "a miss");
            }
            world.wait_for_insertions();
            stored.push(world.status().counts.stored_bytes);
        }
        let bytes = (chunks * CHUNK) as u64;
        let wanted = if shares() { [bytes, bytes, bytes + bytes / 10] } else { [bytes, 2 * bytes, 3 * bytes] };
        assert_eq!(stored, wanted);
    });
}

/// Over slots zeroes are content as any other: shared and compressed as the design does.
#[test]
fn zeroes_are_stored_nowhere_or_as_any_content() {
    each_seed(4, |seed| {
        let world = World::new(seed, Setup::default());
        world.flush();
        let before = world.status();
        world.write(0, &vec![0; 64 * CHUNK]);
        for lba in [1000, 2000, 3000_u64] {
            // The same for the origin's zeroes.
            assert!(world.read(lba * CHUNK as u64, CHUNK).iter().all(|&b| b == 0));
        }
        world.wait_for_insertions();
        world.flush();
        let after = world.status();
        let chunks = 64 + 3;
        let records = match (design::fills_weus(design::chosen()), shares()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => chunks,
        };
        assert_eq!(after.counts.stored_records, records);
        if records == 0 {
            assert_eq!(after.counts.zero_chunks, chunks);
            assert_eq!((after.counts.stored_bytes, after.counts.flash_segment_bytes_written), (0, 0));
            assert_eq!(after.flash_bytes_used, before.flash_bytes_used);
            assert_eq!(after.zero_bytes_cached, chunks * CHUNK as u64);
        } else {
            assert_eq!((after.counts.zero_chunks, after.zero_bytes_cached), (0, 0));
            assert_eq!(after.counts.duplicate_chunks, chunks - records);
            assert_eq!(after.logical_bytes_cached, chunks * CHUNK as u64);
            let raw = records * CHUNK as u64;
            assert_eq!(after.counts.stored_bytes < raw, design::compresses(design::chosen()), "compressed");
        }
        let reads = world.origin_reads();
        assert!(world.read(0, 64 * CHUNK).iter().all(|&b| b == 0));
        assert!(world.read(2000 * CHUNK as u64, CHUNK).iter().all(|&b| b == 0));
        assert_eq!(world.origin_reads(), reads, "zeroes are hits");
        // One other byte makes the chunk no zero chunk.
        let mut nearly = vec![0; CHUNK];
        nearly[CHUNK - 1] = 1;
        world.write(100 * CHUNK as u64, &nearly);
        assert_eq!(world.status().counts.stored_records, records + 1);
        assert_same(&world.read(100 * CHUNK as u64, CHUNK), &nearly, "a nearly zero chunk");
    });
}

/// Ratios count the stored bytes: a part of a chunk isn't taken for a whole one.
#[test]
fn parts_of_chunks_count_as_what_they_hold() {
    const PART: usize = 3 << 10;
    each_seed(3, |seed| {
        let world = World::new(seed, Setup::default());
        for lba in 0..20 {
            world.write(lba * CHUNK as u64, &noise(lba, PART));
        }
        for lba in 100..105 {
            world.write(lba * CHUNK as u64, &noise(lba, CHUNK));
        }
        world.flush();
        let status = world.status();
        let (parts, bytes) = (20 * PART as u64, (20 * PART + 5 * CHUNK) as u64);
        let counts = &status.counts;
        assert_eq!((counts.fragments_written, counts.fragment_bytes, counts.stored_records), (20, parts, 25));
        assert_eq!((counts.stored_content_bytes, counts.stored_bytes), (bytes, bytes), "noise is stored raw");
        assert_eq!((status.compression_ratio, status.plain_cache_bytes_written), (1.0, bytes));
        assert_eq!(status.fp_index_entries > 0, shares(), "{}", status.fp_index_entries);
    });
}

/// Returns true if the design knows all contents that it stores, or none, for any ratio.
fn indexes_all() -> bool {
    !design::fills_weus(design::chosen())
}

/// Writes distinct chunks, then the same again in the opposite order.
///
/// Returns the number of duplicates found, and the FP index's limit.
fn duplicates_found(seed: u64, percent: u8) -> (u64, u64) {
    let mut setup = Setup { flash_bytes: 8 * MIB, ..Setup::default() };
    setup.options.fp_index_percent = percent;
    let world = World::new(seed, setup);
    let layout = world.layout();
    // The history of larder names six records for each one.
    let limit = layout.fp_entries_max * if design::chosen() == DesignId::Larder { 6 } else { 1 };
    // All of it fits: over slots that takes as many as there are chunks.
    let slot_bytes = u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
    let chunks = if indexes_all() { slot_bytes / CHUNK as u64 * 4 / 5 } else { limit * 9 / 10 };
    for i in 0..chunks {
        world.write(i * CHUNK as u64, &text(i, CHUNK));
    }
    assert_eq!(world.status().counts.duplicate_chunks, 0);
    for i in (0..chunks).rev() {
        world.write(i * CHUNK as u64, &text(i, CHUNK));
    }
    let status = world.status();
    if !indexes_all() {
        assert!(status.fp_index_entries <= limit * u64::from(percent) / 100);
        assert!(percent > 0 || status.fp_index_ram_bytes < 4096);
    }
    for i in (0..chunks).step_by(97) {
        assert_same(&world.read(i * CHUNK as u64, CHUNK), &text(i, CHUNK), "a chunk");
    }
    assert_eq!(world.origin_reads(), 0, "all of it fits");
    (status.counts.duplicate_chunks, chunks)
}

#[test]
fn the_fp_indexs_ratio_decides_how_many_duplicates_are_found() {
    let found: Vec<(u64, u64)> = [100, 75, 50, 25, 0].map(|percent| duplicates_found(1, percent)).to_vec();
    let chunks = found[0].1;
    if indexes_all() {
        assert_eq!(found, [found[0]; 5], "whatever ratio is asked for");
        let duplicates = found[0].0;
        if !shares() {
            assert_eq!(duplicates, 0);
        } else if design::is_slotted(design::chosen()) {
            assert_eq!(duplicates, chunks);
        } else {
            // If two contents have the same hash in a bucket, one is not found.
            assert!(duplicates <= chunks && duplicates >= chunks - chunks / 100, "{duplicates} of {chunks} found");
        }
        return;
    }
    // At 100 % nothing was evicted; at 0 % there is no index; in between the most recent ones are
    // found.
    assert_eq!(found[0].0, chunks);
    assert_eq!(found[4].0, 0);
    for (percent, (duplicates, chunks)) in [75, 50, 25].into_iter().zip(&found[1..4]) {
        let limit = chunks * 10 / 9 * percent / 100;
        let near = limit * 9 / 10..=limit * 11 / 10;
        assert!(near.contains(duplicates), "{percent}% found {duplicates}, the index holds {limit}");
    }
}

#[test]
fn without_deduplication_every_copy_is_stored() {
    let mut setup = Setup::default();
    setup.options.dedup = false;
    let design = designs::find(design::chosen()).expect("a design");
    if design.can_share() && indexes_all() {
        // Its addresses are over contents; it cannot do without.
        setup.options = design::fitted(setup.options);
        setup.options.dedup = false;
        let refused = design.check(&setup.options).expect_err("it has no copies").to_string();
        assert!(refused.contains(&format!("the design {} ", design.name)), "{refused}");
        assert!(refused.contains("deduplicates, with all its fingerprints: switch that on"), "{refused}");
        return;
    }
    let world = World::new(1, setup);
    for lba in 0..10 {
        world.write(lba * CHUNK as u64, &noise(1, CHUNK));
    }
    let status = world.status();
    assert_eq!((status.counts.stored_records, status.counts.duplicate_chunks), (10, 0));
    assert_same(&world.read(9 * CHUNK as u64, CHUNK), &noise(1, CHUNK), "a copy");
}

/// The dirty share counts the room of records on flash.
#[test]
fn records_take_whole_slots_or_subchunks_where_there_are_such() {
    let world = World::new(6, Setup::default());
    let mut taken = 0;
    for lba in 0..100 {
        world.write(lba * CHUNK as u64, &text(lba, CHUNK));
        let counts = world.status().counts;
        let record = counts.stored_flash_bytes - taken;
        taken = counts.stored_flash_bytes;
        let design = designs::find(design::chosen()).expect("a design");
        let whole = match design.kind() {
            StoreKind::Weus => 1,
            StoreKind::Slots | StoreKind::Buckets => world.status().slot_bytes,
        };
        assert!(record > 0 && record.is_multiple_of(whole), "{record} bytes, in steps of {whole}");
    }
    let counts = world.status().counts;
    assert!(taken >= counts.stored_bytes, "{taken} for {}", counts.stored_bytes);
    if designs::find(design::chosen()).is_ok_and(|design| design.kind() == StoreKind::Weus) {
        assert_eq!(taken, counts.stored_bytes);
    }
}

fn stored_bytes(compression: Compression, make: fn(u64, usize) -> Vec<u8>) -> u64 {
    let mut setup = Setup::default();
    setup.options.compression = compression;
    let mut world = World::new(5, setup);
    for lba in 0..100 {
        world.write(lba * CHUNK as u64, &make(lba, CHUNK));
    }
    // A fragment is compressed as well.
    world.write(200 * CHUNK as u64, &make(200, 8 * SECTOR));
    let stored = world.status().counts.stored_bytes;
    world.flush();
    world.crash();
    world.open();
    for lba in 0..100 {
        assert_same(&world.read(lba * CHUNK as u64, CHUNK), &make(lba, CHUNK), "a chunk after a crash");
        let part = world.read(lba * CHUNK as u64 + 1024, 1024);
        assert_same(&part, &make(lba, CHUNK)[1024..2048], "a part of a chunk");
    }
    assert_same(&world.read(200 * CHUNK as u64, 8 * SECTOR), &make(200, 8 * SECTOR), "a fragment");
    stored
}

#[test]
fn chunks_are_compressed_where_that_makes_them_smaller() {
    let raw = (100 * CHUNK + 8 * SECTOR) as u64;
    let [off, lz4, zstd] = [Compression::Off, Compression::Lz4, Compression::Zstd].map(|c| stored_bytes(c, text));
    assert_eq!(off, raw);
    if design::compresses(design::chosen()) {
        assert!(lz4 < raw / 2 && lz4 > 0, "lz4: {lz4} of {raw}");
        assert!(zstd < lz4, "zstd: {zstd}, lz4: {lz4}");
    } else {
        // Each chunk has a slot of its size.
        assert_eq!([lz4, zstd], [raw; 2]);
    }
    for compression in [Compression::Off, Compression::Lz4, Compression::Zstd] {
        assert_eq!(stored_bytes(compression, noise), raw, "{compression:?} must keep noise raw");
    }
}
