//! Partial-chunk writes in write-back: kept as fragments; the write's path reads no origin. The
//! first read of the rest completes them, and a destage writes their sectors.

use crate::common::*;
use larder_device::{IoOp, rng::Rng, sim::SimDeviceOptions};

const CHUNK: u64 = 8 << 10;

/// Fills the first 4 MiB of the origin with noise.
fn filled(world: &World) -> Twin {
    let mut twin = Twin::new();
    let bytes = noise(99, 4 << 20);
    world.fill_origin(0, &bytes);
    twin.write(0, &bytes);
    twin
}

#[test]
fn partial_writes_never_read_the_origin() {
    each_seed(12, |seed| {
        let mut rng = Rng::new(seed ^ 1);
        // If each fragment takes a slot of a chunk, there is room for all of them, too.
        let mut setup = Setup { flash_bytes: 256 * MIB, ..Setup::default() };
        setup.options.chunk_bytes = [4, 8, 32, 128][rng.index(4)] << 10;
        // An origin of coarse sectors must not be read for merging either, not before destaging.
        setup.origin = SimDeviceOptions { sector_bytes: [512, 4096][rng.index(2)], ..SimDeviceOptions::default() };
        let world = World::new(seed, setup);
        let mut twin = filled(&world);
        for number in 0..300 {
            let (offset, len) = random_run(&mut rng, 4 << 20, 40);
            let data = if rng.chance(1, 2) { noise(number, len) } else { text(number, len) };
            world.write(offset, &data);
            twin.write(offset, &data);
            if rng.chance(1, 20) {
                world.flush();
            }
        }
        assert_eq!(world.status().counts.destaged_chunks, 0, "nothing had to leave");
        assert_eq!(world.origin_reads(), 0, "writes read the origin");
        assert_eq!(world.status().counts.origin_reads, 0);
        assert!(world.status().counts.fragments_written > 0, "the writes were to make fragments");
        for offset in (0..4 << 20).step_by(64 << 10) {
            assert_same(&world.read(offset, 64 << 10), &twin.bytes(offset, 64 << 10), "a read after partial writes");
        }
        assert!(world.origin_reads() > 0, "the count counts");
    });
}

#[test]
fn partial_writes_of_a_small_cache_never_read_the_origin() {
    // Destaging and eviction all the time; both write the origin, and never read it with sectors of
    // 512 bytes.
    each_seed(6, |seed| {
        let mut setup = Setup { flash_bytes: 5 * MIB, ..Setup::default() };
        setup.tuning.dirty_low_percent = 5;
        setup.tuning.dirty_high_percent = 10;
        setup.tuning.dirty_max_percent = 30;
        let world = World::new(seed, setup);
        let mut twin = filled(&world);
        let mut rng = Rng::new(seed);
        for number in 0..1500 {
            let (offset, len) = random_run(&mut rng, 4 << 20, 24);
            let data = noise(number, len);
            world.write(offset, &data);
            twin.write(offset, &data);
        }
        assert_eq!(world.origin_reads(), 0);
        assert!(world.status().counts.destaged_chunks > 0);
        assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "the volume");
    });
}

#[test]
fn fragments_merge() {
    each_seed(8, |seed| {
        let world = World::new(seed, Setup::default());
        let mut twin = filled(&world);
        let mut put = |sector: u64, sectors: usize, number: u64| {
            let data = noise(number, sectors * SECTOR);
            world.write(sector * SECTOR as u64, &data);
            twin.write(sector * SECTOR as u64, &data);
        };
        put(0, 2, 1);
        put(4, 2, 2);
        // Overlaps both, and closes the gap.
        put(1, 4, 3);
        // One apart.
        put(10, 1, 4);
        assert_same(&world.read(0, 6 * SECTOR), &twin.bytes(0, 6 * SECTOR), "merged sectors");
        let last = 10 * SECTOR as u64;
        assert_same(&world.read(last, SECTOR), &twin.bytes(last, SECTOR), "the sector apart");
        assert_eq!(world.origin_reads(), 0, "valid sectors are hits");
        assert_eq!(world.status().counts.read_hits, 2);
        assert_eq!(world.status().dirty_bytes, CHUNK, "one chunk is dirty, however often it was written");
    });
}

#[test]
fn sectors_that_fill_a_chunk_make_it_whole_without_the_origin() {
    each_seed(8, |seed| {
        let world = World::new(seed, Setup::default());
        filled(&world);
        let content = noise(5, CHUNK as usize);
        let mut order: Vec<usize> = (0..16).collect();
        Rng::new(seed).shuffle(&mut order);
        for sector in order {
            let from = sector * SECTOR;
            world.write(3 * CHUNK + from as u64, &content[from..from + SECTOR]);
        }
        assert_same(&world.read(3 * CHUNK, CHUNK as usize), &content, "the chunk");
        assert_eq!(world.origin_reads(), 0);
        // The whole chunk has a fingerprint: the same content elsewhere is a duplicate.
        world.write(5 * CHUNK, &content);
        assert_eq!(world.status().counts.duplicate_chunks, u64::from(design::shares_content(design::chosen())));
        assert_eq!(world.status().counts.fragments_written, 15);
    });
}

#[test]
fn a_read_of_the_rest_completes_a_fragment_with_one_origin_read() {
    each_seed(8, |seed| {
        let mut world = World::new(seed, Setup::default());
        let mut twin = filled(&world);
        let at = 7 * CHUNK;
        let data = noise(1, 3 * SECTOR);
        world.write(at + 512, &data);
        twin.write(at + 512, &data);
        let expected = twin.bytes(at, CHUNK as usize);
        assert_same(&world.read(at, CHUNK as usize), &expected, "the first read");
        assert_eq!(world.origin_reads(), 1, "the rest is one read of the origin");
        world.wait_for_insertions();
        let hits = world.status().counts.read_hits;
        assert_same(&world.read(at, CHUNK as usize), &expected, "the second read");
        assert_same(&world.read(at + 4096, 4096), &expected[4096..], "a part of it");
        assert_eq!(world.origin_reads(), 1, "the second read hits");
        assert_eq!(world.status().counts.read_hits, hits + 2);
        // The origin lacks the fragment's sectors still: they are dirty, and survive a crash.
        assert_eq!(world.status().dirty_bytes, CHUNK);
        world.flush();
        world.crash();
        world.open();
        assert_same(&world.read(at, CHUNK as usize), &expected, "after a crash");
        assert_eq!(world.origin_reads(), 1);
        assert!(world.destage_all());
        assert_same(&world.origin.sim.peek_durable(at, CHUNK as usize), &expected, "the origin");
    });
}

#[test]
fn destaging_a_fragment_writes_its_valid_sectors_only() {
    each_seed(8, |seed| {
        let world = World::new(seed, Setup::default());
        filled(&world);
        let at = 11 * CHUNK;
        world.write(at + 1024, &noise(1, 2 * SECTOR));
        world.write(at + 4096, &noise(2, SECTOR));
        // Changes under the cache show that no other sector is written back.
        let mut expected = noise(77, CHUNK as usize);
        world.fill_origin(at, &expected);
        expected[1024..2048].copy_from_slice(&noise(1, 2 * SECTOR));
        expected[4096..4608].copy_from_slice(&noise(2, SECTOR));
        world.origin.take_events();
        assert!(world.destage_all());
        let mut writes: Vec<(u64, u64)> =
            world.origin.asked(IoOp::Write).iter().map(|write| (write.offset - at, write.len)).collect();
        writes.sort_unstable();
        assert_eq!(writes, [(1024, 1024), (4096, 512)]);
        assert_eq!(world.origin_reads(), 0, "destaging a fragment needs no read of the origin");
        assert_same(&world.origin.sim.peek_durable(at, CHUNK as usize), &expected, "the origin");
        assert_same(&world.read(at, CHUNK as usize), &expected, "a read after the destage");
        assert_eq!(world.status().dirty_bytes, 0);
    });
}

#[test]
fn a_partial_write_into_a_cached_chunk_needs_no_origin() {
    each_seed(8, |seed| {
        let world = World::new(seed, Setup::default());
        let mut twin = filled(&world);
        world.read(0, CHUNK as usize);
        world.wait_for_insertions();
        assert_eq!(world.origin_reads(), 1);
        let data = noise(3, SECTOR);
        world.write(1536, &data);
        twin.write(1536, &data);
        assert_same(&world.read(0, CHUNK as usize), &twin.bytes(0, CHUNK as usize), "the chunk");
        assert_eq!(world.origin_reads(), 1, "the merged chunk is whole");
        assert_eq!(world.status().counts.fragments_written, 0);
    });
}
