//! The LBA index of AustereCache (§3.1, §3.3): from LBA-hash to FP-hash, in buckets that are sorted by recency.
//!
//! Its buckets lie in parts, each behind a lock of its own, which is the paper's locking of buckets (§4: "we implement bucket-level
//! concurrency"): requests of other parts go on. Who has the index for himself passes the locks by.
//!
//! Invariants: in a bucket no prefix is valid twice. Slot 0 is the most recent. The sketch counts two for each valid slot
//! in the recent half of its bucket and one for each in the old half; every function here that moves slots keeps that so. A lock is
//! held for a moment, and nobody who holds one asks for another.
//!
//! What it does not do: know addresses, or whether an FP-hash is in the FP index.

mod part;

use super::{
    keys::{Key, KeySpace},
    sketch::Sketch,
};
use parking_lot::Mutex;
use part::Part;

/// Parts at most.
const PARTS_MAX: usize = 256;
/// Slots of a part at least: what a part takes beside them is then a fortieth.
const PART_SLOTS_MIN: usize = 1024;

/// The index.
pub struct LbaIndex {
    space: KeySpace,
    slots: usize,
    /// A part has so many buckets, to this power of two.
    buckets_a_part_log2: u32,
    parts: Box<[Mutex<Part>]>,
}

/// A valid slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The LBA-hash.
    pub lba_key: Key,
    /// The FP-hash.
    pub fp_key: Key,
    /// Whether the origin lacks what the address has.
    pub is_dirty: bool,
    slot: usize,
}

/// What lost references to a new entry, or to one that is recent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The entry that left for it: its own, or another one that the index lost.
    pub left: Option<Entry>,
    /// The FP-hash of one that is not recent any more.
    pub demoted: Option<Key>,
}

fn buckets_a_part(buckets: usize, slots: usize) -> usize {
    (PART_SLOTS_MIN / slots.max(1)).max(buckets.div_ceil(PARTS_MAX)).max(1).next_power_of_two()
}

impl LbaIndex {
    /// With buckets of `slots` slots (128 at most) for FP-hashes of `fp_bits` bits (48 at most).
    pub fn new(space: KeySpace, slots: usize, fp_bits: u32, has_dirty: bool) -> LbaIndex {
        let buckets = space.buckets();
        let a_part = buckets_a_part(buckets, slots);
        let part = |first: usize| {
            let count = a_part.min(buckets - first);
            Mutex::new(Part::new(space, first, count, (slots, fp_bits, has_dirty)))
        };
        let parts = (0..buckets).step_by(a_part).map(part).collect();
        LbaIndex { space, slots, buckets_a_part_log2: a_part.trailing_zeros(), parts }
    }

    #[inline]
    fn part_of(&self, bucket: usize) -> &Mutex<Part> {
        &self.parts[bucket >> self.buckets_a_part_log2]
    }

    #[inline]
    fn part_mut(&mut self, bucket: usize) -> &mut Part {
        self.parts[bucket >> self.buckets_a_part_log2].get_mut()
    }

    /// The slot of an LBA-hash.
    #[inline]
    pub fn find(&self, lba_key: Key) -> Option<Entry> {
        self.part_of(self.space.bucket(lba_key)).lock().find(lba_key)
    }

    /// As [`LbaIndex::find`].
    #[inline]
    pub fn find_alone(&mut self, lba_key: Key) -> Option<Entry> {
        self.part_mut(self.space.bucket(lba_key)).find(lba_key)
    }

    /// The entry that has to go for a new one of `lba_key`, which has none: the least recent of a full bucket.
    pub fn last_of_full(&mut self, lba_key: Key) -> Option<Entry> {
        self.part_mut(self.space.bucket(lba_key)).last_of_full(lba_key)
    }

    /// Makes `entry`, as found, the most recent of its bucket. Returns the FP-hash of what is not recent any more, if that is so.
    #[inline]
    pub fn promote(&mut self, entry: &Entry, sketch: &mut Sketch) -> Option<Key> {
        self.part_mut(self.space.bucket(entry.lba_key)).promote(entry, sketch)
    }

    /// Makes the entry of `lba_key`, if there is one, the most recent of its bucket, beside others who do so. False, and nothing
    /// changed, where that needs the sketch for oneself.
    #[inline]
    pub fn promote_beside_others(&self, lba_key: Key, sketch: &Sketch) -> bool {
        self.part_of(self.space.bucket(lba_key)).lock().promote_beside_others(lba_key, sketch)
    }

    /// Puts `lba_key` in as the most recent of its bucket: in place of `old`, what it has, as found; else in the first slot
    /// that is not valid; else in place of the least recent.
    pub fn put(
        &mut self,
        lba_key: Key,
        old: Option<Entry>,
        fp_key: Key,
        is_dirty: bool,
        sketch: &mut Sketch,
    ) -> Change {
        self.part_mut(self.space.bucket(lba_key)).put(lba_key, old, fp_key, is_dirty, sketch)
    }

    /// Takes `entry`, as found, out. Its slot stays where it is, not valid.
    pub fn remove(&mut self, entry: &Entry, sketch: &mut Sketch) {
        self.part_mut(self.space.bucket(entry.lba_key)).remove(entry, sketch);
    }

    /// Number of entries.
    pub fn valid_count(&self) -> u64 {
        self.parts.iter().map(|part| part.lock().valid_count()).sum()
    }

    /// Takes all entries out; the sketch has to be told.
    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(|part| part.get_mut().clear());
    }

    /// The origin has what `entry`, as found, stands for.
    pub fn clean(&mut self, entry: &Entry) {
        self.part_mut(self.space.bucket(entry.lba_key)).clean(entry);
    }

    /// All entries, by bucket and recency, with whether they are recent.
    pub fn entries(&self) -> impl Iterator<Item = (Entry, bool)> + '_ {
        (0..self.space.buckets()).flat_map(move |bucket| self.entries_in(bucket))
    }

    /// Those of a bucket.
    pub fn entries_in(&self, bucket: usize) -> impl Iterator<Item = (Entry, bool)> + use<> {
        let entries: Vec<(Entry, bool)> = self.part_of(bucket).lock().entries_in(bucket).collect();
        entries.into_iter()
    }

    /// Counts all references anew.
    pub fn recount(&mut self, sketch: &mut Sketch) {
        sketch.clear();
        for part in &mut self.parts {
            part.get_mut().count_all(sketch);
        }
        sketch.end_recount();
    }

    /// References that the sketch counts at a time, at most: two of a recent entry and one of another, and two of one that comes
    /// before another leaves.
    pub fn references_max(&self) -> u64 {
        LbaIndex::references_of(self.space.buckets() as u64, self.slots as u64)
    }

    /// The same, of so many buckets of so many slots.
    pub fn references_of(buckets: u64, slots: u64) -> u64 {
        buckets * (slots + slots / 2) + 2
    }

    /// Bytes that the locks of so many buckets of so many slots take, with the numbers beside each.
    pub fn locks_bytes(buckets: usize, slots: usize) -> usize {
        buckets.div_ceil(buckets_a_part(buckets, slots)) * size_of::<Mutex<Part>>()
    }

    /// Bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| part.lock().ram_bytes());
        parts.sum::<usize>() + size_of_val(&*self.parts)
    }

    /// Number of buckets.
    pub(super) fn bucket_count(&self) -> usize {
        self.space.buckets()
    }

    /// Which slots of a bucket are valid.
    pub(super) fn valid_of(&self, bucket: usize) -> u128 {
        self.part_of(bucket).lock().valid_of(bucket)
    }

    /// LBA-hash and FP-hash of a valid slot.
    pub(super) fn slot(&self, bucket: usize, slot: usize) -> (Key, Key) {
        self.part_of(bucket).lock().slot(bucket, slot)
    }

    /// The prefix of an LBA-hash.
    pub(super) fn prefix_of(&self, lba_key: Key) -> u16 {
        self.space.prefix(lba_key)
    }

    /// Fills a slot that is not valid, if the bucket has no such prefix and the numbers are such as could be. The sketch
    /// has to be told.
    pub(super) fn set_slot(&mut self, bucket: usize, slot: usize, prefix: u16, fp_key: Key) {
        self.part_mut(bucket).set_slot(bucket, slot, prefix, fp_key);
    }
}
