//! The FP index of AustereCache (§3.1, §3.2): which slots of the data region hold a content of which FP-hash.
//!
//! A slot has a prefix (16 bits) and a valid flag: 17 bits. A bucket has one byte more, its *hand*: among equals, eviction takes
//! the first run from the hand on. Slot `i` here is slot `i` of the metadata region and of the data region. A chunk of several
//! subchunks has as many consecutive slots of one bucket, all with its prefix.
//!
//! Its buckets lie in [parts](super::parts), each behind a lock.
//!
//! Invariants: a prefix has one run of slots in a bucket at most; so runs end where the prefix does. Runs do not overlap.
//!
//! What it does not do: know what refers to a content; it asks.

mod part;

pub use part::Victims;

use super::{
    keys::{Key, KeySpace},
    parts::{Division, Parts},
};
pub(super) use part::Part;
use std::ops::DerefMut;

/// Slots of a part at least: what a part takes beside them is then a sixtieth.
const PART_SLOTS_MIN: usize = 4096;

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
    parts: Parts<Part>,
}

fn division(buckets: usize, slots: usize) -> Division {
    Division { buckets, slots, part_slots_min: PART_SLOTS_MIN }
}

impl FpIndex {
    /// With buckets of `slots` slots, 128 at most.
    pub fn new(space: KeySpace, slots: usize) -> FpIndex {
        let part = |first, count| Part::new(space, first, count, slots);
        FpIndex { space, slots, parts: Parts::new(division(space.buckets(), slots), part) }
    }

    /// Number of slots.
    pub fn slot_count(&self) -> usize {
        self.space.buckets() * self.slots
    }

    /// Number of free slots.
    pub fn free_count(&self) -> u64 {
        self.slot_count() as u64 - self.parts.sum(Part::used_count)
    }

    /// Runs in use.
    pub fn run_count(&self) -> u64 {
        self.parts.sum(Part::run_count)
    }

    /// The run of an FP-hash.
    #[inline]
    pub fn find(&self, fp_key: Key) -> Option<Run> {
        self.parts.lock(self.space.bucket(fp_key)).find(fp_key)
    }

    /// The runs to evict so that the bucket of an FP-hash has `count` consecutive free slots: the runs with the fewest references
    /// first, and among equals the first from the bucket's hand on. Empty when there is room. `references` returns the references
    /// of a run, by its first slot and its hash, and calls nothing of this index.
    pub fn victims(&self, fp_key: Key, count: u32, references: impl Fn(u32, Key) -> u32) -> Victims {
        self.parts.lock(self.space.bucket(fp_key)).victims(fp_key, count, references)
    }

    /// Gives an FP-hash without a run the first `count` consecutive free slots of its bucket, and moves the bucket's hand behind
    /// them. `None` when the bucket has no such slots.
    pub fn store(&self, fp_key: Key, count: u32) -> Option<Run> {
        self.parts.lock(self.space.bucket(fp_key)).store(fp_key, count)
    }

    /// Frees the slots of `run`.
    pub fn clear(&self, run: Run) {
        self.parts.lock(self.bucket_of(run.first)).clear(run);
    }

    /// The run in use that begins at slot `first`.
    pub fn run_from(&self, first: u32) -> Option<Run> {
        let bucket = self.bucket_of(first);
        (bucket < self.space.buckets()).then(|| self.parts.lock(bucket).run_from(first))?
    }

    /// Gives the slots of `run` to that hash, whatever runs had them, or was the hash's. False where they are not all
    /// in the bucket of the hash.
    pub fn replace(&self, fp_key: Key, run: Run) -> bool {
        self.parts.lock(self.space.bucket(fp_key)).replace(fp_key, run)
    }

    /// Gives the slots of `run`, whatever runs had them, to a hash of their bucket that has no other run: that hash. `None` where
    /// they are not all in one bucket, or every hash of the bucket has a run.
    pub fn reserve(&self, run: Run) -> Option<Key> {
        let bucket = self.bucket_of(run.first);
        (bucket < self.space.buckets()).then(|| self.parts.lock(bucket).reserve(run))?
    }

    /// The FP-hash of a run.
    pub fn key_of(&self, run: Run) -> Key {
        self.parts.lock(self.bucket_of(run.first)).key_of(run)
    }

    /// All runs, in order, each with its hash.
    pub fn all_runs(&self) -> impl Iterator<Item = (Run, Key)> + '_ {
        let runs_in = |bucket| self.parts.lock(bucket).runs_in(bucket).collect::<Vec<_>>();
        (0..self.space.buckets()).flat_map(runs_in)
    }

    /// Bytes that the parts of so many buckets of so many slots take beside the slots.
    pub fn parts_bytes(buckets: usize, slots: usize) -> usize {
        Parts::<Part>::bytes_for(division(buckets, slots))
    }

    /// Bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.parts.sum(|part| part.ram_bytes() as u64) as usize + self.parts.ram_bytes()
    }

    /// Number of buckets.
    pub(super) fn bucket_count(&self) -> usize {
        self.space.buckets()
    }

    /// The part that a bucket is in, for a moment.
    pub(super) fn part_of(&self, bucket: usize) -> impl DerefMut<Target = Part> + '_ {
        self.parts.lock(bucket)
    }

    #[inline]
    fn bucket_of(&self, slot: u32) -> usize {
        slot as usize / self.slots
    }
}
