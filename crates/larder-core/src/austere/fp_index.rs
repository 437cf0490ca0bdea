//! The FP index of AustereCache (§3.1, §3.2): which slots of the data region hold a content of which FP-hash.
//!
//! A slot is a prefix (16 bits) and a valid flag: 17 bits. Slot `i` here is slot `i` of the metadata region and of the data
//! region. A chunk of several subchunks has as many consecutive slots of one bucket, all with its prefix.
//!
//! Invariants: a prefix has one run of slots in a bucket at most; so runs end where the prefix does. Runs do not overlap.
//!
//! What it does not do: choose what to evict.

use super::keys::{Key, KeySpace, equal_mask, low_bits};

/// Consecutive slots of one bucket: where a chunk is on flash. The metadata slot of `first` is the chunk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the first slot.
    pub first: u32,
    /// How many slots, one for each subchunk.
    pub count: u32,
}

/// The index.
pub struct FpIndex {
    space: KeySpace,
    slots: usize,
    prefixes: Vec<u16>,
    valid: Vec<u128>,
}

impl FpIndex {
    /// With buckets of `slots` slots, 128 at most.
    pub fn new(space: KeySpace, slots: usize) -> FpIndex {
        let buckets = space.buckets();
        FpIndex { space, slots, prefixes: vec![0; buckets * slots], valid: vec![0; buckets] }
    }

    /// Number of slots.
    pub fn slot_count(&self) -> usize {
        self.prefixes.len()
    }

    /// The run of an FP-hash.
    #[inline]
    pub fn find(&self, fp_key: Key) -> Option<Run> {
        let bucket = self.space.bucket(fp_key);
        let prefixes = &self.prefixes[bucket * self.slots..][..self.slots];
        let mask = equal_mask(prefixes, self.space.prefix(fp_key)) & self.valid[bucket];
        (mask != 0).then(|| self.run(bucket, mask.trailing_zeros() as usize, mask.count_ones()))
    }

    /// The first `count` consecutive free slots in the bucket of an FP-hash.
    pub fn room(&self, fp_key: Key, count: u32) -> Option<Run> {
        let bucket = self.space.bucket(fp_key);
        let free = !self.valid[bucket] & low_bits(self.slots);
        let starts = (1..count).fold(free, |starts, i| starts & free >> i);
        (starts != 0).then(|| self.run(bucket, starts.trailing_zeros() as usize, count))
    }

    /// Gives the slots of `run`, which are free and in the bucket of `fp_key`, to that hash.
    pub fn set(&mut self, fp_key: Key, run: Run) {
        let bucket = self.space.bucket(fp_key);
        let mask = self.mask(run);
        assert!(self.valid[bucket] & mask == 0 && self.bucket_of(run) == bucket, "the slots of a new chunk are free");
        self.valid[bucket] |= mask;
        self.prefixes[run.first as usize..][..run.count as usize].fill(self.space.prefix(fp_key));
    }

    /// Frees the slots of `run`.
    pub fn clear(&mut self, run: Run) {
        let (bucket, mask) = (self.bucket_of(run), self.mask(run));
        self.valid[bucket] &= !mask;
    }

    /// The FP-hash of a run.
    pub fn key_of(&self, run: Run) -> Key {
        self.space.key(self.bucket_of(run), self.prefixes[run.first as usize])
    }

    /// All runs in the bucket of an FP-hash, in order, each with its hash.
    #[inline]
    pub fn runs(&self, fp_key: Key) -> impl Iterator<Item = (Run, Key)> + '_ {
        self.runs_in(self.space.bucket(fp_key))
    }

    /// All runs, in order, each with its hash.
    pub fn all_runs(&self) -> impl Iterator<Item = (Run, Key)> + '_ {
        (0..self.space.buckets()).flat_map(|bucket| self.runs_in(bucket))
    }

    /// Bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.prefixes.capacity() * size_of::<u16>() + self.valid.capacity() * size_of::<u128>()
    }

    #[inline]
    fn runs_in(&self, bucket: usize) -> impl Iterator<Item = (Run, Key)> + '_ {
        let prefixes = &self.prefixes[bucket * self.slots..][..self.slots];
        let mut left = self.valid[bucket];
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let slot = left.trailing_zeros() as usize;
            let prefix = prefixes[slot];
            let valid = (left >> slot).trailing_ones() as usize;
            let count = prefixes[slot..slot + valid].iter().take_while(|&&other| other == prefix).count();
            left &= !low_bits(slot + count);
            Some((self.run(bucket, slot, count as u32), self.space.key(bucket, prefix)))
        })
    }

    #[inline]
    fn run(&self, bucket: usize, slot: usize, count: u32) -> Run {
        Run { first: (bucket * self.slots + slot) as u32, count }
    }

    fn bucket_of(&self, run: Run) -> usize {
        run.first as usize / self.slots
    }

    fn mask(&self, run: Run) -> u128 {
        low_bits(run.count as usize) << (run.first as usize % self.slots)
    }
}
