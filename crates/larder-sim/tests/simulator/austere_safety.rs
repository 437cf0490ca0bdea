//! AustereCache among collisions: short prefixes, tiny buckets, overwrites, trims, every policy.
//!
//! Volume and origin are kept beside it, chunk by chunk. A hit must have the content of its
//! address. A chunk that differs from the origin must be dirty, always.

use std::collections::HashMap;

use crate::common::{Rng, for_seeds};
use larder_core::{Fingerprint, Lba, austere::AustereConfig};
use larder_sim::{
    austere::AustereCache,
    cache::{Content, ReplayCache, WritePolicy},
};

const CHUNK: u32 = 32 << 10;

struct World {
    rng: Rng,
    policy: WritePolicy,
    cache: AustereCache,
    lbas: u64,
    contents: u64,
    trims_percent: u64,
    /// The clients' data in `volume`, and the origin's in `origin`. Unwritten chunks are zeroes in
    /// both.
    volume: HashMap<Lba, Fingerprint>,
    origin: HashMap<Lba, Fingerprint>,
    /// Counts of read hits and of destaged chunks.
    hits: u64,
    destaged: u64,
}

const ZEROES: Fingerprint = Fingerprint([0; 16]);

impl World {
    fn new(seed: u64, policy: WritePolicy) -> World {
        let mut rng = Rng::new(seed);
        let bucket_slots = rng.one_of(&[4u32, 5, 8, 32, 128]);
        let subchunk_bytes = rng.one_of(&[CHUNK, CHUNK / 2, CHUNK / 4]);
        let fp_buckets = 1 + rng.below(4);
        let config = AustereConfig {
            data_bytes: fp_buckets * u64::from(bucket_slots) * u64::from(subchunk_bytes),
            subchunk_bytes,
            lba_entries: Some((1 + rng.below(4)) * u64::from(bucket_slots)),
            bucket_slots,
            prefix_bits: rng.one_of(&[1u32, 2, 4, 8, 16]),
            large_counts_bytes_max: rng.one_of(&[None, Some(0), Some(200)]),
            ..AustereConfig::new(0, CHUNK, true)
        };
        World {
            lbas: 2 + rng.below(u64::from(bucket_slots) * 12),
            contents: 1 + rng.below(u64::from(bucket_slots) * 8),
            trims_percent: rng.one_of(&[0, 3, 20]),
            cache: AustereCache::new(config, policy).expect("a cache"),
            rng,
            policy,
            volume: HashMap::new(),
            origin: HashMap::new(),
            hits: 0,
            destaged: 0,
        }
    }

    fn step(&mut self) {
        let lba = Lba(self.rng.skewed(self.lbas));
        let stored_bytes = 1 + self.rng.below(u64::from(CHUNK)) as u32;
        if self.rng.chance(self.trims_percent) {
            self.cache.trim(lba);
            self.destage(None);
            self.volume.remove(&lba);
            self.origin.remove(&lba);
        } else if self.rng.chance(50) {
            let fingerprint = self.volume.get(&lba).copied().unwrap_or(ZEROES);
            self.hits += u64::from(self.cache.read(lba, &Content { fingerprint, stored_bytes }));
            self.destage(None);
        } else {
            let number = 1 + self.rng.skewed(self.contents);
            let fingerprint = Fingerprint(u128::from(number).to_be_bytes());
            self.cache.write(lba, &Content { fingerprint, stored_bytes });
            self.destage(Some(lba));
            self.volume.insert(lba, fingerprint);
            if self.policy != WritePolicy::Back {
                self.origin.insert(lba, fingerprint);
            }
        }
        assert_eq!(self.cache.wrong_hits(), 0, "a hit has the content of its address");
        if self.rng.chance(3) {
            let lba = Lba(self.rng.skewed(self.lbas));
            self.cache.clean(lba);
            self.destage(None);
            assert!(self.cache.dirty().all(|(dirty, _)| dirty != lba), "{lba:?} was destaged");
        }
    }

    /// Checks that a destaged chunk has the volume's content before the request. No overwritten
    /// chunk is destaged.
    fn destage(&mut self, overwritten: Option<Lba>) {
        for &(lba, fingerprint) in self.cache.destaged() {
            assert!(overwritten != Some(lba), "{lba:?} is overwritten and need not be destaged");
            assert_eq!(self.volume.get(&lba), Some(&fingerprint), "{lba:?} is destaged as it is");
            self.origin.insert(lba, fingerprint);
            self.destaged += 1;
        }
    }

    /// Checks that the dirty chunks are all chunks that the origin lacks, with their newest
    /// content.
    fn check(&self) {
        self.cache.core().check();
        let dirty: HashMap<Lba, Fingerprint> = self.cache.dirty().collect();
        for (lba, fingerprint) in &dirty {
            assert_eq!(self.volume.get(lba), Some(fingerprint), "{lba:?} is dirty with what it has");
        }
        for (lba, fingerprint) in &self.volume {
            let is_safe = self.origin.get(lba) == Some(fingerprint) || dirty.contains_key(lba);
            assert!(is_safe, "{lba:?} is neither dirty nor on the origin");
        }
    }
}

fn run(policy: WritePolicy) -> (u64, u64) {
    let sums = std::cell::Cell::new((0, 0));
    for_seeds(0..120, |seed| {
        let mut world = World::new(seed, policy);
        for step in 0..2500 {
            world.step();
            if step % 10 == 0 {
                world.check();
            }
        }
        let (hits, destaged) = sums.get();
        sums.set((hits + world.hits, destaged + world.destaged));
    });
    sums.get()
}

#[test]
fn write_back_among_collisions() {
    let (hits, destaged) = run(WritePolicy::Back);
    assert!(hits > 10_000 && destaged > 10_000, "{hits} hits and {destaged} destaged chunks show little");
}

#[test]
fn write_through_among_collisions() {
    let (hits, destaged) = run(WritePolicy::Through);
    assert!(hits > 10_000 && destaged == 0, "{hits} hits, {destaged} destaged");
}

#[test]
fn write_around_among_collisions() {
    let (hits, destaged) = run(WritePolicy::Around);
    assert!(hits > 5_000 && destaged == 0, "{hits} hits, {destaged} destaged");
}
