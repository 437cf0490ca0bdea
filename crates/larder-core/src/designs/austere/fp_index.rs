//! The FP index of AustereCache (§3.1, §3.2): the FP-hash of the content in each data slot.
//!
//! A slot has a prefix (16 bits) and a valid flag: 17 bits. A bucket has one byte more, its *hand*:
//! among equals, eviction takes the first run from the hand on. Slot `i` here is slot `i` of the
//! metadata region and of the data region. A chunk of several subchunks has as many consecutive
//! slots of one bucket, all with its prefix.
//!
//! Its buckets lie in [parts](super::parts), each behind a lock.
//!
//! Invariants: a prefix has at most one run of slots in a bucket, so runs end where the prefix
//! does. Runs do not overlap.
//!
//! It does not count references; it asks for them.

mod part;
mod run;

pub use part::Victims;

use super::{
    keys::{Key, KeySpace},
    parts::{Division, Parts},
};
pub(super) use part::FpPart;
pub use run::SlotRun;
use std::ops::DerefMut;

/// Minimum slots of a part, so that a part's own memory is a sixtieth.
const PART_SLOTS_MIN: usize = 4096;

/// The index.
pub struct FpHashIndex {
    space: KeySpace,
    slots: usize,
    parts: Parts<FpPart>,
}

fn division(buckets: usize, slots: usize) -> Division {
    Division { buckets, slots, part_slots_min: PART_SLOTS_MIN }
}

impl FpHashIndex {
    /// Creates an index with buckets of `slots` slots, 128 at most.
    pub fn new(space: KeySpace, slots: usize) -> FpHashIndex {
        let part = |first, count| FpPart::new(space, first, count, slots);
        FpHashIndex { space, slots, parts: Parts::new(division(space.buckets(), slots), part) }
    }

    /// Counts the slots.
    pub fn slot_count(&self) -> usize {
        self.space.buckets() * self.slots
    }

    /// Counts the free slots.
    pub fn free_count(&self) -> u64 {
        self.slot_count() as u64 - self.parts.sum(FpPart::used_count)
    }

    /// Counts the runs in use.
    pub fn run_count(&self) -> u64 {
        self.parts.sum(FpPart::run_count)
    }

    /// Returns the run of an FP-hash.
    #[inline]
    pub fn find(&self, fp_key: Key) -> Option<SlotRun> {
        self.parts.lock(self.space.bucket(fp_key)).find(fp_key)
    }

    /// Returns the runs to evict so that the bucket of an FP-hash has `count` consecutive free
    /// slots.
    ///
    /// Runs with the fewest references come first, and among equals the first from the bucket's
    /// hand on. Empty when there is room. `references` returns the references of a run, by its
    /// first slot and its hash, and calls nothing of this index.
    pub fn victims(&self, fp_key: Key, count: u32, references: impl Fn(u32, Key) -> u32) -> Victims {
        self.parts.lock(self.space.bucket(fp_key)).victims(fp_key, count, references)
    }

    /// Gives an FP-hash without a run the first `count` consecutive free slots of its bucket.
    ///
    /// The bucket's hand moves behind them. Returns `None` when the bucket has no such slots.
    pub fn store(&self, fp_key: Key, count: u32) -> Option<SlotRun> {
        self.parts.lock(self.space.bucket(fp_key)).store(fp_key, count)
    }

    /// Frees the slots of `run`.
    pub fn clear(&self, run: SlotRun) {
        self.parts.lock(self.bucket_of(run.first)).clear(run);
    }

    /// Returns the run in use that begins at slot `first`.
    pub fn run_from(&self, first: u32) -> Option<SlotRun> {
        let bucket = self.bucket_of(first);
        (bucket < self.space.buckets()).then(|| self.parts.lock(bucket).run_from(first))?
    }

    /// Gives the slots of `run` to that hash; replaces other runs there, and another run of the
    /// hash.
    ///
    /// Returns false if the slots are not all in the bucket of the hash.
    pub fn replace(&self, fp_key: Key, run: SlotRun) -> bool {
        self.parts.lock(self.space.bucket(fp_key)).replace(fp_key, run)
    }

    /// Gives the slots of `run` to an unused hash of their bucket, and returns the hash.
    ///
    /// It replaces other runs there. Returns `None` if the slots are not in one bucket, or every
    /// hash of the bucket has a run.
    pub fn reserve(&self, run: SlotRun) -> Option<Key> {
        let bucket = self.bucket_of(run.first);
        (bucket < self.space.buckets()).then(|| self.parts.lock(bucket).reserve(run))?
    }

    /// Returns the FP-hash of a run.
    pub fn key_of(&self, run: SlotRun) -> Key {
        self.parts.lock(self.bucket_of(run.first)).key_of(run)
    }

    /// Returns all runs, in order, each with its hash.
    pub fn all_runs(&self) -> impl Iterator<Item = (SlotRun, Key)> + '_ {
        let runs_in = |bucket| self.parts.lock(bucket).runs_in(bucket).collect::<Vec<_>>();
        (0..self.space.buckets()).flat_map(runs_in)
    }

    /// Returns the bytes of the parts of so many buckets of so many slots, without the slots.
    pub fn parts_bytes(buckets: usize, slots: usize) -> usize {
        Parts::<FpPart>::bytes_for(division(buckets, slots))
    }

    /// Returns the bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.parts.sum(|part| part.ram_bytes() as u64) as usize + self.parts.ram_bytes()
    }

    /// Counts the buckets.
    pub(super) fn bucket_count(&self) -> usize {
        self.space.buckets()
    }

    /// Locks the part of a bucket for a moment.
    pub(super) fn part_of(&self, bucket: usize) -> impl DerefMut<Target = FpPart> + '_ {
        self.parts.lock(bucket)
    }

    #[inline]
    fn bucket_of(&self, slot: u32) -> usize {
        slot as usize / self.slots
    }
}
