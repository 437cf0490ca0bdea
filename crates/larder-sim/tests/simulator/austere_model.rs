//! AustereCache against a model without prefixes, packing and sketch.
//!
//! The model has whole addresses and fingerprints in plain vectors, and counts anew each time. No
//! two addresses or contents of the test have one hash. So each hit, each byte of traffic, each
//! destaged chunk and each slot must be the same.

use std::collections::VecDeque;

use crate::common::{Rng, for_seeds};
use larder_core::{
    Fingerprint, Lba,
    austere::{AustereConfig, keys::KeySpace},
    region::LBAS_MAX,
};
use larder_sim::{
    austere::AustereCache,
    cache::{CacheFigures, Content, ReplayCache, WritePolicy},
    traffic::Traffic,
};

const CHUNK: u32 = 32 << 10;
const SUBCHUNK: u32 = 8 << 10;

#[derive(Clone)]
struct Mapping {
    lba: Lba,
    fingerprint: Fingerprint,
    is_dirty: bool,
}

#[derive(Clone)]
struct Chunk {
    fingerprint: Fingerprint,
    stored_bytes: u32,
    slots: std::ops::Range<usize>,
    /// Oldest first.
    lbas: VecDeque<Lba>,
}

struct Model {
    lba_space: KeySpace,
    fp_space: KeySpace,
    slots: usize,
    policy: WritePolicy,
    /// Most recent first.
    mappings: Vec<Vec<Option<Mapping>>>,
    /// By position.
    chunks: Vec<Vec<Chunk>>,
    /// For each bucket of chunks, the place behind the chunk stored last.
    hands: Vec<usize>,
    traffic: Traffic,
    destaged: Vec<(Lba, Fingerprint)>,
}

impl Model {
    fn new(lba_space: KeySpace, fp_space: KeySpace, slots: usize, policy: WritePolicy) -> Model {
        Model {
            lba_space,
            fp_space,
            slots,
            policy,
            mappings: vec![vec![None; slots]; lba_space.buckets()],
            chunks: vec![Vec::new(); fp_space.buckets()],
            hands: vec![0; fp_space.buckets()],
            traffic: Traffic::default(),
            destaged: Vec::new(),
        }
    }

    fn mapping(&mut self, lba: Lba) -> Option<&mut Mapping> {
        let bucket = self.lba_space.bucket(self.lba_space.of_lba(lba));
        self.mappings[bucket].iter_mut().flatten().find(|mapping| mapping.lba == lba)
    }

    fn chunk(&mut self, fingerprint: &Fingerprint) -> Option<&mut Chunk> {
        let bucket = self.fp_space.bucket(self.fp_space.of_content(fingerprint));
        self.chunks[bucket].iter_mut().find(|chunk| chunk.fingerprint == *fingerprint)
    }

    /// Counts two for each address in a recent slot, one for each in an old one.
    fn references(&self, fingerprint: &Fingerprint) -> usize {
        let of_slot = |(i, slot): (usize, &Option<Mapping>)| match slot {
            Some(mapping) if mapping.fingerprint == *fingerprint => 1 + usize::from(i < self.slots / 2),
            _ => 0,
        };
        self.mappings.iter().map(|bucket| bucket.iter().enumerate().map(of_slot).sum::<usize>()).sum()
    }

    fn bucket_mut(&mut self, lba: Lba) -> &mut Vec<Option<Mapping>> {
        let bucket = self.lba_space.bucket(self.lba_space.of_lba(lba));
        &mut self.mappings[bucket]
    }

    fn map(&mut self, new: Mapping) {
        let bucket = self.bucket_mut(new.lba);
        let same = bucket.iter().position(|slot| slot.as_ref().is_some_and(|mapping| mapping.lba == new.lba));
        let leaves = same.or_else(|| bucket.iter().position(Option::is_none)).unwrap_or(bucket.len() - 1);
        bucket.remove(leaves);
        bucket.insert(0, Some(new));
    }

    fn destage(&mut self, lba: Lba, fingerprint: Fingerprint) {
        let count = self.chunk(&fingerprint).expect("dirty content is there").slots.len();
        self.traffic.flash_data_bytes_read += count as u64 * u64::from(SUBCHUNK);
        self.traffic.origin_chunks_written += 1;
        self.destaged.push((lba, fingerprint));
        if let Some(mapping) = self.mapping(lba) {
            mapping.is_dirty = false;
        }
    }

    fn is_dirty(&mut self, lba: Lba, fingerprint: &Fingerprint) -> bool {
        self.mapping(lba).is_some_and(|mapping| mapping.is_dirty && mapping.fingerprint == *fingerprint)
    }

    fn insert(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        let fingerprint = content.fingerprint;
        let is_duplicate = self.chunk(&fingerprint).is_some();
        self.traffic.flash_metadata_bytes_read += 512 * u64::from(is_duplicate);
        // This mapping gives way: another content of this address, or the least recent of a full
        // bucket.
        let bucket = self.bucket_mut(lba);
        let own = bucket.iter().flatten().find(|mapping| mapping.lba == lba);
        let is_full = bucket.iter().all(Option::is_some);
        let leaving = match own {
            Some(own) if own.fingerprint == fingerprint => None,
            Some(own) => Some(own.clone()),
            None if is_full => bucket[bucket.len() - 1].clone(),
            None => None,
        };
        if let Some(leaving) = leaving.filter(|mapping| mapping.is_dirty) {
            self.traffic.flash_metadata_bytes_read += 512;
            if leaving.lba != lba {
                self.destage(leaving.lba, leaving.fingerprint);
            }
        }
        if is_duplicate { self.share(lba, fingerprint, is_dirty) } else { self.store(lba, content, is_dirty) }
    }

    fn share(&mut self, lba: Lba, fingerprint: Fingerprint, is_dirty: bool) {
        let list = self.chunk(&fingerprint).expect("a duplicate").lbas.clone();
        let is_new = !list.contains(&lba);
        if is_new && list.len() == LBAS_MAX {
            if self.is_dirty(list[0], &fingerprint) {
                self.destage(list[0], fingerprint);
            }
            self.chunk(&fingerprint).expect("a duplicate").lbas.pop_front();
        }
        self.map(Mapping { lba, fingerprint, is_dirty });
        self.traffic.chunks_deduplicated += 1;
        if is_new {
            self.chunk(&fingerprint).expect("a duplicate").lbas.push_back(lba);
            self.traffic.flash_metadata_bytes_written += 512;
        }
    }

    fn store(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        let count = content.stored_bytes.div_ceil(SUBCHUNK) as usize;
        let bucket = self.fp_space.bucket(self.fp_space.of_content(&content.fingerprint));
        self.map(Mapping { lba, fingerprint: content.fingerprint, is_dirty });
        // The chunk with the lowest count goes first, among equals the first from the hand on,
        // until there is room.
        let from_hand = |i: usize| (self.chunks[bucket][i].slots.start + self.slots - self.hands[bucket]) % self.slots;
        let counts: Vec<usize> = self.chunks[bucket].iter().map(|chunk| self.references(&chunk.fingerprint)).collect();
        let mut stays: Vec<usize> = (0..counts.len()).collect();
        let first = loop {
            let is_free = |from: &usize| {
                let is_taken = |&i: &usize| {
                    let slots = &self.chunks[bucket][i].slots;
                    slots.start < from + count && *from < slots.end
                };
                from + count <= self.slots && !stays.iter().any(is_taken)
            };
            match (0..self.slots).find(is_free) {
                Some(first) => break first,
                None => {
                    let least = (0..stays.len())
                        .min_by_key(|&at| (counts[stays[at]], from_hand(stays[at])))
                        .expect("a full bucket");
                    stays.remove(least);
                }
            }
        };
        let old = self.chunks[bucket].clone();
        for (victim, references) in
            old.iter().zip(counts).enumerate().filter(|(i, _)| !stays.contains(i)).map(|(_, v)| v)
        {
            let may_be_dirty = self.policy == WritePolicy::Back && references > 0;
            self.traffic.flash_metadata_bytes_read += 512 * u64::from(may_be_dirty);
            for &lba in &victim.lbas {
                if self.is_dirty(lba, &victim.fingerprint) {
                    self.destage(lba, victim.fingerprint);
                }
            }
            self.traffic.chunks_evicted += 1;
        }
        self.chunks[bucket] = stays.iter().map(|&i| old[i].clone()).collect();
        self.chunks[bucket].push(Chunk {
            fingerprint: content.fingerprint,
            stored_bytes: content.stored_bytes,
            slots: first..first + count,
            lbas: [lba].into(),
        });
        self.chunks[bucket].sort_by_key(|chunk| chunk.slots.start);
        self.hands[bucket] = (first + count) % self.slots;
        self.traffic.chunks_stored += 1;
        self.traffic.flash_data_bytes_written += count as u64 * u64::from(SUBCHUNK);
        self.traffic.flash_metadata_bytes_written += 512;
    }

    fn forget(&mut self, lba: Lba) {
        let is_dirty = self.mapping(lba).is_some_and(|mapping| mapping.is_dirty);
        self.traffic.flash_metadata_bytes_read += 512 * u64::from(is_dirty);
        for slot in self.bucket_mut(lba) {
            if slot.as_ref().is_some_and(|mapping| mapping.lba == lba) {
                *slot = None;
            }
        }
    }

    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        self.destaged.clear();
        if let Some(mapping) = self.mapping(lba).cloned()
            && let Some(chunk) = self.chunk(&mapping.fingerprint).cloned()
        {
            self.traffic.flash_metadata_bytes_read += 512;
            if chunk.lbas.contains(&lba) {
                self.traffic.flash_data_bytes_read += chunk.slots.len() as u64 * u64::from(SUBCHUNK);
                self.map(mapping);
                return true;
            }
        }
        self.traffic.origin_chunks_read += 1;
        self.insert(lba, content, false);
        false
    }

    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        self.destaged.clear();
        let old = self.mapping(lba).map(|mapping| mapping.fingerprint);
        let was_cached = old.is_some_and(|fingerprint| self.chunk(&fingerprint).is_some());
        self.traffic.origin_chunks_written += u64::from(self.policy != WritePolicy::Back);
        match self.policy {
            WritePolicy::Around => self.forget(lba),
            policy => self.insert(lba, content, policy == WritePolicy::Back),
        }
        was_cached
    }

    fn figures(&mut self) -> CacheFigures {
        let mut figures = CacheFigures::default();
        for chunk in self.chunks.concat() {
            let maps = |lba: &&Lba| self.mapping(**lba).is_some_and(|m| m.fingerprint == chunk.fingerprint);
            let mapped = chunk.lbas.iter().filter(maps).count() as u64;
            figures.mapped_chunks += mapped;
            figures.live_chunks += u64::from(mapped > 0);
            figures.stale_chunks += u64::from(mapped == 0);
            figures.live_stored_bytes += if mapped > 0 { u64::from(chunk.stored_bytes) } else { 0 };
        }
        figures
    }
}

/// Returns the first `count` numbers, as addresses and as contents, that have hashes of their own.
fn unique<T: Copy>(count: u64, make: impl Fn(u64) -> T, key: impl Fn(&T) -> u64) -> Vec<T> {
    let mut keys = std::collections::HashSet::new();
    (1..).map(make).filter(|item| keys.insert(key(item))).take(count as usize).collect()
}

fn compare(seed: u64) {
    let mut rng = Rng::new(seed);
    let policy = rng.one_of(&[WritePolicy::Back, WritePolicy::Through, WritePolicy::Around]);
    let bucket_slots = rng.one_of(&[8u32, 16, 128]);
    let (fp_buckets, lba_buckets) = (1 + rng.below(5), 2048 / u64::from(bucket_slots));
    let config = AustereConfig {
        data_bytes: fp_buckets * u64::from(bucket_slots) * u64::from(SUBCHUNK),
        lba_entries: Some(lba_buckets * u64::from(bucket_slots)),
        bucket_slots,
        ..AustereConfig::new(0, CHUNK, true)
    };
    let (lba_space, fp_space) = (KeySpace::new(lba_buckets as u32, 16), KeySpace::new(fp_buckets as u32, 16));
    let mut model = Model::new(lba_space, fp_space, bucket_slots as usize, policy);
    let mut cache = AustereCache::new(config, policy).expect("a cache");
    let lbas = unique(rng.one_of(&[100, 3000]), Lba, |&lba| lba_space.of_lba(lba).0);
    // Few enough for the sketch to be exact: it has 2048 counters in a row.
    let contents = rng.one_of(&[3, 30, 60]);
    let contents = unique(contents, |n| Fingerprint(u128::from(n).to_be_bytes()), |fp| fp_space.of_content(fp).0);
    let mut volume = std::collections::HashMap::new();
    for step in 0..4000 {
        let lba = lbas[rng.skewed(lbas.len() as u64) as usize];
        let stored_bytes = 1 + rng.below(u64::from(CHUNK)) as u32;
        let mut content = Content { fingerprint: contents[rng.skewed(contents.len() as u64) as usize], stored_bytes };
        let (is_hit, expected) = match rng.below(100) {
            0..4 => {
                cache.trim(lba);
                model.destaged.clear();
                model.forget(lba);
                volume.remove(&lba);
                (false, false)
            }
            4..50 => {
                content.fingerprint = *volume.entry(lba).or_insert(content.fingerprint);
                (cache.read(lba, &content), model.read(lba, &content))
            }
            _ => {
                volume.insert(lba, content.fingerprint);
                (cache.write(lba, &content), model.write(lba, &content))
            }
        };
        assert_eq!(is_hit, expected, "step {step}");
        assert_eq!(cache.traffic(), model.traffic, "step {step}");
        assert_eq!(cache.destaged(), model.destaged, "step {step}");
        if step % 100 == 0 {
            cache.core().check();
            let figures = CacheFigures { index_ram_bytes: 0, ..cache.figures() };
            assert_eq!(figures, model.figures(), "step {step}");
            let runs: Vec<_> = cache.core().runs().map(|run| (run.first, run.count)).collect();
            let bucket = |(i, bucket): (usize, &Vec<Chunk>)| {
                let first = (i * bucket_slots as usize) as u32;
                let of = |chunk: &Chunk| (first + chunk.slots.start as u32, chunk.slots.len() as u32);
                bucket.iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(runs, model.chunks.iter().enumerate().flat_map(bucket).collect::<Vec<_>>(), "step {step}");
        }
    }
    assert_eq!(cache.wrong_hits(), 0);
}

#[test]
fn as_the_model_says() {
    for_seeds(0..60, compare);
}
