//! Caches over WEU slots under replay.
//!
//! A hit is the last written content, in each write policy, after any deduplication, eviction,
//! destaging or trim. Bytes are those that the layout gives.

use crate::common::{Rng, for_seeds};
use larder_core::{Design, DesignConfig, Fingerprint, Lba, Lookup, cd_arc::CdArc, nitro::Nitro, packing::PackingRules};
use larder_sim::{
    cache::{Content, ReplayCache, WritePolicy},
    executor::{Executor, ExecutorOptions, StoreRules},
};
use std::collections::HashMap;

const CHUNK_BYTES: u32 = 4096;

fn options(policy: WritePolicy) -> ExecutorOptions {
    ExecutorOptions {
        chunk_bytes: CHUNK_BYTES,
        rules: PackingRules { slot_bytes: 64 << 10, sector_bytes: 4096, header_bytes: 64, entry_bytes: 64 },
        slot_count: 8,
        mappings_max: 400,
        fp_entries_max: 200,
        log_bytes: 256 << 10,
        checkpoint_area_bytes: 256 << 10,
        policy,
        compress: true,
        dirty_chunks_max: 40,
        zero_ranges_max: 400,
        store: StoreRules::weus(),
        commit_entries: 1,
    }
}

fn cache(options: ExecutorOptions) -> Executor {
    Executor::new(nitro, options).expect("large enough")
}

fn nitro(config: DesignConfig) -> Box<dyn Design> {
    Box::new(Nitro::new(config))
}

fn cd_arc(config: DesignConfig) -> Box<dyn Design> {
    Box::new(CdArc::new(config))
}

/// Returns content `number`; 0 is zeroes.
fn content(number: u64) -> Content {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    Content { fingerprint: Fingerprint(bytes), stored_bytes: 1 + (number * 977 % 4096) as u32 }
}

/// A cache, the content of each record, and that of each chunk of the volume.
struct World {
    cache: Executor,
    records: HashMap<(u32, u32, u32), Fingerprint>,
    volume: HashMap<u64, u64>,
}

impl World {
    fn held(&self, lba: u64) -> Option<Fingerprint> {
        match self.cache.design().peek(Lba(lba)) {
            Lookup::Chunk { place, .. } => Some(self.records[&(place.slot.0, place.generation, place.offset)]),
            Lookup::Zero => Some(Content::ZEROES),
            Lookup::Miss | Lookup::Fragment { .. } => None,
        }
    }

    fn is_in_run(&self, lba: u64) -> bool {
        self.cache.design().trimmed_from(Lba(lba)).is_some_and(|run| run.first.0 <= lba)
    }

    /// Notes the record of a request that may have stored `number` for `lba`. Checks that the
    /// chunk's record holds it.
    fn note(&mut self, lba: u64, number: u64, stored_before: u64) {
        if self.cache.traffic().chunks_stored > stored_before
            && let Lookup::Chunk { place, .. } = self.cache.design().peek(Lba(lba))
        {
            self.records.insert((place.slot.0, place.generation, place.offset), content(number).fingerprint);
        }
        if let Some(held) = self.held(lba) {
            assert_eq!(held, content(number).fingerprint, "chunk {lba}");
        }
    }

    fn read(&mut self, lba: u64) {
        let number = *self.volume.get(&lba).unwrap_or(&0);
        let (held, dirty) = (self.held(lba), self.cache.design().dirty_seq(Lba(lba)));
        assert!(held.is_some() || dirty.is_none(), "chunk {lba} is dirty and gone");
        let stored = self.cache.traffic().chunks_stored;
        // Replaced content may be found again.
        let found = held.or_else(|| self.cache.design().remembered(Lba(lba)));
        let hit = self.cache.read(Lba(lba), &content(number));
        assert_eq!(hit, found.is_some());
        if let Some(held) = found {
            assert_eq!(held, content(number).fingerprint, "a hit of chunk {lba}");
        }
        self.note(lba, number, stored);
    }

    fn write(&mut self, lba: u64, number: u64) {
        let stored = self.cache.traffic().chunks_stored;
        let is_mapped = self.held(lba).is_some() && !self.is_in_run(lba);
        let cached = is_mapped || self.cache.design().remembered(Lba(lba)).is_some();
        assert_eq!(self.cache.write(Lba(lba), &content(number)), cached);
        self.volume.insert(lba, number);
        self.note(lba, number, stored);
    }
}

#[test]
fn a_hit_of_nitro_is_what_was_written_last() {
    a_hit_is_what_was_written_last(nitro);
}

#[test]
fn a_hit_of_cd_arc_is_what_was_written_last() {
    a_hit_is_what_was_written_last(cd_arc);
}

fn a_hit_is_what_was_written_last(design: fn(DesignConfig) -> Box<dyn Design>) {
    for_seeds(0..24, |seed| {
        let policy = [WritePolicy::Back, WritePolicy::Through, WritePolicy::Around][(seed % 3) as usize];
        let mut options = options(policy);
        options.compress = seed % 2 == 0;
        options.fp_entries_max = [0, 20, 200][(seed / 3 % 3) as usize];
        options.zero_ranges_max = [400, 32][(seed / 9 % 2) as usize];
        let mut world = World {
            cache: Executor::new(design, options).expect("large enough"),
            records: HashMap::new(),
            volume: HashMap::new(),
        };
        let mut rng = Rng::new(seed);
        for _ in 0..4000 {
            let lba = rng.skewed(600);
            match rng.below(20) {
                0 => {
                    let count = 1 + rng.below(3);
                    world.cache.trim_run(Lba(lba), count);
                    (lba..lba + count).for_each(|lba| _ = world.volume.insert(lba, 0));
                    assert!(world.cache.design().dirty_counts().runs <= options.zero_ranges_max / 2);
                }
                1 => world.cache.flush(),
                2..10 => world.read(lba),
                _ => world.write(lba, rng.below(700)),
            }
        }
        let (traffic, figures) = (world.cache.traffic(), world.cache.figures());
        assert!(traffic.chunks_evicted > 0, "nothing was evicted");
        assert_eq!(figures.live_chunks + figures.stale_chunks, traffic.chunks_stored - traffic.chunks_evicted);
        let dirty = world.cache.design().dirty_counts();
        assert!(policy == WritePolicy::Back || dirty.chunks + dirty.run_chunks == 0);
    });
}

#[test]
fn a_write_into_a_trimmed_run_is_no_hit() {
    for design in [nitro, cd_arc] {
        for policy in [WritePolicy::Back, WritePolicy::Through] {
            let mut cache = Executor::new(design, options(policy)).expect("large enough");
            cache.write(Lba(3), &content(3));
            cache.trim_run(Lba(0), 10);
            // Chunks that were cached before, and chunks that never were.
            let hits: Vec<bool> = [3, 4, 3, 4].map(|lba| cache.write(Lba(lba), &content(lba))).into();
            assert_eq!(hits, [false, false, true, true], "{policy:?}");
            // Zeroes that a client wrote are cached, as any other content.
            let hits = [5, 5].map(|lba| cache.write(Lba(lba), &Content { fingerprint: Content::ZEROES, ..content(1) }));
            assert_eq!(hits, [false, true], "{policy:?}");
            assert_eq!(cache.read(Lba(6), &content(0)), policy == WritePolicy::Back, "it knows what a read finds");
        }
    }
}

/// Returns entries that are in the log by now.
fn logged(cache: &mut Executor, before: u64) -> u64 {
    cache.flush();
    // Sectors of so small a frame: a head, and an entry of 64 bytes each.
    let bytes = cache.traffic().flash_metadata_bytes_written - before;
    (bytes / 64).saturating_sub(1)
}

#[test]
fn trimmed_runs_are_destaged_by_address_and_logged() {
    for design in [nitro, cd_arc] {
        let options = ExecutorOptions {
            rules: PackingRules { sector_bytes: 64, ..options(WritePolicy::Back).rules },
            zero_ranges_max: 8,
            commit_entries: u64::MAX,
            ..options(WritePolicy::Back)
        };
        let mut cache = Executor::new(design, options).expect("large enough");
        let runs = |cache: &Executor| -> Vec<(u64, u64)> {
            let next = |from: u64| cache.design().trimmed_from(Lba(from)).map(|run| (run.first.0, run.count));
            std::iter::successors(next(0), |&(first, count)| next(first + count)).collect()
        };
        for first in [60, 50, 40, 30] {
            cache.trim_run(Lba(first), 5);
        }
        assert_eq!(logged(&mut cache, 0), 4, "an entry for each run");
        // A fifth run is too many, and the first one goes.
        let before = cache.traffic().flash_metadata_bytes_written;
        cache.trim_run(Lba(20), 5);
        assert_eq!(runs(&cache), [(30, 5), (40, 5), (50, 5), (60, 5)]);
        assert_eq!(logged(&mut cache, before), 2, "a trim, and that the origin has it");
        assert!(!cache.read(Lba(20), &content(0)) && cache.read(Lba(20), &content(0)), "the origin was asked once");
        assert!(cache.read(Lba(30), &content(0)));
        // A write in the middle makes two of one. Destaging continues at its place, and around the
        // end.
        cache.write(Lba(32), &content(7));
        assert_eq!(runs(&cache), [(33, 2), (40, 5), (50, 5), (60, 5)]);
        assert_eq!(cache.design().dirty_counts().chunks, 1);
        for (first, left) in [(70, [(40, 5), (50, 5), (60, 5), (70, 5)]), (10, [(10, 5), (50, 5), (60, 5), (70, 5)])] {
            cache.trim_run(Lba(first), 5);
            assert_eq!(runs(&cache), left);
        }
        // The dirty chunk between them was destaged in its turn.
        assert_eq!((cache.design().dirty_counts().chunks, cache.traffic().origin_chunks_written), (0, 1));
        assert_eq!(cache.traffic().origin_chunks_read, 1);
        // The origin first gets the trim of a part.
        cache.trim_part(Lba(52));
        assert_eq!(runs(&cache), [(10, 5), (50, 2), (53, 2), (60, 5), (70, 5)]);
    }
}

#[test]
fn a_long_trim_is_destaged_in_turns() {
    // The engine decides 16,384 chunks at a time, and tells the origin of 16 MiB in a turn.
    let mut cache = cache(ExecutorOptions { zero_ranges_max: 4, ..options(WritePolicy::Back) });
    cache.trim_run(Lba(0), 40_000);
    let counts = cache.design().dirty_counts();
    assert_eq!((counts.runs, counts.run_chunks), (2, 40_000 - 16_384));
    assert_eq!(cache.design().trimmed_from(Lba(0)).map(|run| run.first), Some(Lba(16_384)));
}

#[test]
fn what_fits_is_read_once_and_stored_once() {
    let mut cache = cache(ExecutorOptions { slot_count: 64, ..options(WritePolicy::Through) });
    for round in 0..3 {
        for lba in 0..300 {
            assert_eq!(cache.read(Lba(lba), &content(1 + lba / 3)), round > 0);
        }
    }
    let traffic = cache.traffic();
    assert_eq!((traffic.origin_chunks_read, traffic.chunks_stored, traffic.chunks_deduplicated), (300, 100, 200));
    assert_eq!((traffic.chunks_evicted, cache.figures().stale_chunks), (0, 0));
    let payload: u64 = (1..=100).map(|number| u64::from(content(number).stored_bytes)).sum();
    assert_eq!(cache.figures().live_stored_bytes, payload);
}

#[test]
fn raw_chunks_fill_a_segment_to_the_byte() {
    let mut cache = cache(ExecutorOptions { compress: false, fp_entries_max: 0, ..options(WritePolicy::Back) });
    for lba in 0..3 {
        cache.write(Lba(lba), &content(1 + lba));
    }
    assert_eq!(cache.traffic().flash_data_bytes_written, 0, "the segment is open");
    cache.flush();
    let traffic = cache.traffic();
    // Header and padding up to the first record, three records, the table and its padding: five
    // sectors.
    assert_eq!(traffic.flash_data_bytes_written + 4 * 64, 5 * 4096);
    // Header and table are metadata; and the frame of the log takes a sector.
    assert_eq!(traffic.flash_metadata_bytes_written, 4 * 64 + 4096);
    cache.flush();
    assert_eq!(cache.traffic(), traffic, "nothing is left to flush");
}

/// The writes of Nitro's four variants (§5.3: D/ND, C/NC). The load is ten reads of ten addresses
/// with five contents.
#[test]
fn variants_store_what_they_should() {
    let size = |number: u64| u64::from(content(number).stored_bytes);
    let compressed: u64 = (1..=5).map(size).sum();
    for (dedup, compress, chunks, payload) in [
        (true, true, 5, compressed),
        (true, false, 5, 5 * 4096),
        (false, true, 10, 2 * compressed),
        (false, false, 10, 10 * 4096),
    ] {
        let fp_entries_max = if dedup { 200 } else { 0 };
        let mut cache = cache(ExecutorOptions { compress, fp_entries_max, ..options(WritePolicy::Through) });
        (0..10).for_each(|lba| assert!(!cache.read(Lba(lba), &content(1 + lba % 5))));
        (0..10).for_each(|lba| assert!(cache.read(Lba(lba), &content(1 + lba % 5))));
        let (traffic, figures) = (cache.traffic(), cache.figures());
        assert_eq!((traffic.chunks_stored, traffic.chunks_deduplicated), (chunks, 10 - chunks));
        assert_eq!((figures.live_chunks, figures.live_stored_bytes), (chunks, payload), "{dedup} {compress}");
        // A hit reads the stored bytes: raw or compressed, one record for both addresses or one
        // each.
        let read: u64 = if compress { 2 * compressed } else { 10 * 4096 };
        assert_eq!((traffic.flash_data_bytes_read, traffic.origin_chunks_read), (read, 10));
    }
}

/// Nitro §3.1: the FP index has a share of the entries, and LRU evicts them. The data is apart,
/// and stays.
#[test]
fn a_small_fp_index_forgets_contents_and_keeps_their_data() {
    let mut cache = cache(ExecutorOptions { fp_entries_max: 2, ..options(WritePolicy::Through) });
    let mut stored = |lba: u64, number: u64| {
        let before = cache.traffic().chunks_stored;
        cache.read(Lba(lba), &content(number));
        cache.traffic().chunks_stored - before
    };
    // By request: a new address, its content, and whether the cache stores it. The index has two
    // contents, the older one first.
    for (lba, number, is_stored) in [
        (0, 1, 1), // 1
        (1, 2, 1), // 1 2
        (2, 1, 0), // 2 1: known, and used
        (3, 3, 1), // 1 3: 2 is forgotten
        (4, 2, 1), // 3 2: stored again
        (5, 3, 0), // 2 3
        (6, 1, 1), // 3 1
    ] {
        assert_eq!(stored(lba, number), is_stored, "chunk {lba}, content {number}");
    }
    (0..7).for_each(|lba| assert_eq!(stored(lba, 100 + lba), 0, "chunk {lba} hits whatever became of its fingerprint"));
    let figures = cache.figures();
    assert_eq!((figures.mapped_chunks, figures.live_chunks, figures.stale_chunks), (7, 5, 0));
}

/// Nitro §3.2: whole WEUs in LRU order, where a hit on any chunk is a use. Beside it the chunks
/// themselves are in LRU order.
#[test]
fn weus_and_extents_are_replaced_in_lru_order() {
    let raw = ExecutorOptions { compress: false, fp_entries_max: 0, slot_count: 3, ..options(WritePolicy::Through) };
    // 64 KiB: a sector with the header, 14 chunks, and the rest for the table.
    let mut weus = cache(raw);
    (0..42).for_each(|lba| assert!(!weus.read(Lba(lba), &content(1 + lba))));
    assert!(weus.read(Lba(5), &content(6)), "the first WEU is used");
    assert!(!weus.read(Lba(42), &content(43)), "another takes the place of the second");
    let hits: Vec<u64> = (0..43).filter(|&lba| weus.design().peek(Lba(lba)) != Lookup::Miss).collect();
    assert_eq!(hits, (0..14).chain(28..43).collect::<Vec<_>>());
    assert_eq!((weus.traffic().chunks_evicted, weus.traffic().chunks_stored), (14, 43));

    let rules = PackingRules { slot_bytes: CHUNK_BYTES, sector_bytes: 4096, header_bytes: 0, entry_bytes: 0 };
    let mut extents = cache(ExecutorOptions { rules, slot_count: 42, ..raw });
    (0..42).for_each(|lba| assert!(!extents.read(Lba(lba), &content(1 + lba))));
    assert!(extents.read(Lba(0), &content(1)), "the first is used");
    (42..45).for_each(|lba| assert!(!extents.read(Lba(lba), &content(1 + lba))));
    let gone: Vec<u64> = (0..45).filter(|&lba| extents.design().peek(Lba(lba)) == Lookup::Miss).collect();
    assert_eq!(gone, [1, 2, 3], "the least recent ones, each alone");
}

#[test]
fn what_is_too_small_is_refused_with_the_least() {
    let refusal = |change: fn(&mut ExecutorOptions)| {
        let mut options = options(WritePolicy::Back);
        change(&mut options);
        Executor::new(nitro, options).err().expect("refused")
    };
    assert!(refusal(|options| options.slot_count = 2).contains("3 is the least"));
    assert!(refusal(|options| options.mappings_max = 15).contains("16 is the least"));
    assert!(refusal(|options| options.chunk_bytes = 64 << 10).contains("does not fit"));
}

/// A ghost hit is a miss by a remembered address, which is inserted. That is the one definition of
/// docs/LAB.md for all designs.
#[test]
fn ghost_hits_are_misses_by_addresses_that_are_remembered() {
    for policy in [WritePolicy::Back, WritePolicy::Through, WritePolicy::Around] {
        // 200 addresses in T1 and T2, as many in B1 and B2; and room for 120 chunks.
        let options = ExecutorOptions { compress: false, ..options(policy) };
        let mut cache = Executor::new(cd_arc, options).expect("large enough");
        let read = |cache: &mut Executor, lba| cache.read(Lba(lba), &content(1 + lba));
        (0..150).for_each(|lba| assert!(!read(&mut cache, lba)));
        assert_eq!(cache.traffic().ghost_hits, 0, "each came for the first time");
        // 0 and 1 were replaced, and are in B1.
        assert!((0..5).all(|lba| cache.design().peek(Lba(lba)) == Lookup::Miss && cache.design().is_ghost(Lba(lba))));
        assert!(!read(&mut cache, 0));
        assert_eq!(cache.traffic().ghost_hits, 1);
        assert!(read(&mut cache, 0) && !cache.design().is_ghost(Lba(0)));
        // Content that comes back with another address makes it a hit.
        assert!(!read(&mut cache, 1) && cache.traffic().ghost_hits == 2);
        assert!(!cache.read(Lba(1000), &content(1 + 2)) && read(&mut cache, 2));
        assert_eq!(cache.traffic().ghost_hits, 2);
        // So is a write that inserts. A chunk that was cached until the origin was written is no
        // ghost, nor is a new address.
        assert!(!cache.write(Lba(3), &content(5000)) && cache.write(Lba(0), &content(5001)));
        assert!(!cache.write(Lba(2000), &content(5002)));
        assert_eq!(cache.traffic().ghost_hits, 2 + u64::from(policy != WritePolicy::Around), "{policy:?}");
    }
}
