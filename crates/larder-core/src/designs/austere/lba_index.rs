//! The LBA index of AustereCache (§3.1, §3.3): from LBA-hash to FP-hash, in buckets by recency.
//!
//! Its buckets lie in [parts](super::parts), each behind a lock.
//!
//! Invariants: in a bucket no prefix is valid twice. Slot 0 is the most recent. The sketch counts
//! two for each valid slot in the recent half of its bucket and one for each in the old half. Every
//! function that moves slots keeps that so.
//!
//! It does not know addresses, or the contents of the FP index.

mod entry;
mod part;

use super::{
    keys::{Key, KeySpace},
    parts::{Division, HeldPart, Parts},
    sketch::Sketch,
};
pub use entry::{Change, LbaHashEntry};
pub(super) use part::LbaPart;
use std::ops::DerefMut;

/// Minimum slots of a part, so that a part's own memory is a fiftieth.
const PART_SLOTS_MIN: usize = 1024;

/// The index.
pub struct LbaHashIndex {
    space: KeySpace,
    slots: usize,
    parts: Parts<LbaPart>,
}

/// A lock of the part of an LBA-hash: other users of that part wait until this is dropped.
pub struct HeldBucket {
    part: HeldPart<LbaPart>,
    lba_key: Key,
}

fn division(buckets: usize, slots: usize) -> Division {
    Division { buckets, slots, part_slots_min: PART_SLOTS_MIN }
}

impl HeldBucket {
    /// Maps the held LBA-hash as [`LbaHashIndex::map`].
    pub fn map(&mut self, fp_key: Key, is_dirty: bool, sketch: &Sketch) -> Change {
        self.part.map(self.lba_key, fp_key, is_dirty, sketch)
    }

    /// Returns the held LBA-hash.
    pub fn lba_key(&self) -> Key {
        self.lba_key
    }
}

impl LbaHashIndex {
    /// Creates an index with buckets of `slots` slots (128 at most). An FP-hash has `fp_bits` bits
    /// (48 at most).
    pub fn new(space: KeySpace, slots: usize, fp_bits: u32, has_dirty: bool) -> LbaHashIndex {
        let part = |first, count| LbaPart::new(space, first, count, (slots, fp_bits, has_dirty));
        LbaHashIndex { space, slots, parts: Parts::new(division(space.buckets(), slots), part) }
    }

    /// Holds the part of an LBA-hash.
    pub fn hold(&self, lba_key: Key) -> HeldBucket {
        HeldBucket { part: self.parts.hold(self.space.bucket(lba_key)), lba_key }
    }

    /// Returns the entry of an LBA-hash.
    #[inline]
    pub fn find(&self, lba_key: Key) -> Option<LbaHashEntry> {
        self.parts.lock(self.space.bucket(lba_key)).find(lba_key)
    }

    /// Returns the least recent entry of a full bucket, which must go for a new one of `lba_key`.
    pub fn last_of_full(&self, lba_key: Key) -> Option<LbaHashEntry> {
        self.parts.lock(self.space.bucket(lba_key)).last_of_full(lba_key)
    }

    /// Makes the entry of `lba_key`, if there is one, the most recent of its bucket.
    #[inline]
    pub fn promote(&self, lba_key: Key, sketch: &Sketch) {
        let mut part = self.parts.lock(self.space.bucket(lba_key));
        if let Some(entry) = part.find(lba_key) {
            part.promote(&entry, sketch);
        }
    }

    /// Maps `lba_key` as the most recent of its bucket. It replaces the entry of `lba_key`, else
    /// fills the first free slot, else replaces the least recent entry.
    pub fn map(&self, lba_key: Key, fp_key: Key, is_dirty: bool, sketch: &Sketch) -> Change {
        self.parts.lock(self.space.bucket(lba_key)).map(lba_key, fp_key, is_dirty, sketch)
    }

    /// Removes the entry of `lba_key`, if there is one. Its slot stays in place, invalid.
    pub fn remove(&self, lba_key: Key, sketch: &Sketch) {
        let mut part = self.parts.lock(self.space.bucket(lba_key));
        if let Some(entry) = part.find(lba_key) {
            part.remove(&entry, sketch);
        }
    }

    /// Counts the entries.
    pub fn valid_count(&self) -> u64 {
        self.parts.sum(LbaPart::valid_count)
    }

    /// Removes all entries, and their references.
    pub fn clear(&self, sketch: &Sketch) {
        let mut parts = self.parts.lock_all();
        parts.iter_mut().for_each(|part| part.clear());
        sketch.clear();
    }

    /// Marks the entry of `lba_key`, if there is one, clean, because the origin has its content.
    pub fn clean(&self, lba_key: Key) {
        self.parts.lock(self.space.bucket(lba_key)).clean(lba_key);
    }

    /// Returns all entries, by bucket and recency, with a flag for the recent half.
    pub fn entries(&self) -> impl Iterator<Item = (LbaHashEntry, bool)> + '_ {
        (0..self.space.buckets()).flat_map(move |bucket| self.entries_in(bucket))
    }

    /// Returns the entries of a bucket.
    pub fn entries_in(&self, bucket: usize) -> impl Iterator<Item = (LbaHashEntry, bool)> + use<> {
        let entries: Vec<(LbaHashEntry, bool)> = self.parts.lock(bucket).entries_in(bucket).collect();
        entries.into_iter()
    }

    /// Counts all references anew. The caller holds no part.
    pub fn recount(&self, sketch: &Sketch) {
        let parts = self.parts.lock_all();
        sketch.clear();
        parts.iter().for_each(|part| part.count_all(sketch));
        sketch.end_recount();
    }

    /// Returns the maximum number of references that the sketch counts at a time. There are two for
    /// a recent entry and one for another. Each part adds two for an entry that comes before
    /// another leaves.
    pub fn references_max(&self) -> u64 {
        LbaHashIndex::references_of(self.space.buckets() as u64, self.slots as u64)
    }

    /// Returns as [`LbaHashIndex::references_max`], for so many buckets of so many slots.
    pub fn references_of(buckets: u64, slots: u64) -> u64 {
        buckets * (slots + slots / 2) + 2 * division(buckets as usize, slots as usize).parts() as u64
    }

    /// Returns the bytes of the parts of so many buckets of so many slots, without the slots.
    pub fn parts_bytes(buckets: usize, slots: usize) -> usize {
        Parts::<LbaPart>::bytes_for(division(buckets, slots))
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
    pub(super) fn part_of(&self, bucket: usize) -> impl DerefMut<Target = LbaPart> + '_ {
        self.parts.lock(bucket)
    }
}
