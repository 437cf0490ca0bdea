//! A part of the LBA index: consecutive buckets under one lock.
//!
//! A slot is a prefix (16 bits), an FP-hash and a valid flag, as in the paper, and in write-back a
//! dirty flag. Each of the four lies in an array of its own, and a bucket's part of it together. A
//! search or a move of a bucket's prefixes by one slot takes many at a time.
//!
//! Invariants: those of the [index](super). Buckets have their numbers in the index.
//!
//! It does not know the other buckets.

use super::entry::{Change, LbaHashEntry};
use crate::austere::{
    keys::{Key, KeySpace, equal_mask, low_bits},
    sketch::Sketch,
};

/// See the module.
pub struct LbaPart {
    space: KeySpace,
    /// The first bucket's number.
    first: usize,
    slots: usize,
    /// Number of recent slots of a bucket, `0..recent`.
    recent: usize,
    fp_bits: usize,
    prefixes: Box<[u16]>,
    /// FP-hashes of `fp_bits` bits, a bucket in `bucket_words` words.
    fp_hashes: Box<[u64]>,
    bucket_words: usize,
    valid: Box<[u128]>,
    /// Empty if nothing is ever dirty.
    dirty: Box<[u128]>,
}

impl LbaPart {
    /// Creates a part of so many buckets from `first` on.
    ///
    /// Each has so many slots, for FP-hashes of so many bits, with dirty flags or without.
    pub fn new(
        space: KeySpace,
        first: usize,
        buckets: usize,
        (slots, fp_bits, has_dirty): (usize, u32, bool),
    ) -> LbaPart {
        let bucket_words = (slots * fp_bits as usize).div_ceil(64);
        LbaPart {
            space,
            first,
            slots,
            recent: slots / 2,
            fp_bits: fp_bits as usize,
            prefixes: vec![0; buckets * slots].into(),
            fp_hashes: vec![0; buckets * bucket_words].into(),
            bucket_words,
            valid: vec![0; buckets].into(),
            dirty: vec![0; if has_dirty { buckets } else { 0 }].into(),
        }
    }

    /// Returns the position of an LBA-hash's bucket in this part.
    #[inline]
    fn bucket(&self, lba_key: Key) -> usize {
        self.space.bucket(lba_key) - self.first
    }

    /// Returns the entry of an LBA-hash.
    #[inline]
    pub fn find(&self, lba_key: Key) -> Option<LbaHashEntry> {
        let bucket = self.bucket(lba_key);
        let prefixes = &self.prefixes[bucket * self.slots..][..self.slots];
        let mask = equal_mask(prefixes, self.space.prefix(lba_key)) & self.valid[bucket];
        (mask != 0).then(|| self.entry(bucket, mask.trailing_zeros() as usize))
    }

    /// Returns the least recent entry of a full bucket, which must go for a new one of `lba_key`.
    pub fn last_of_full(&self, lba_key: Key) -> Option<LbaHashEntry> {
        let bucket = self.bucket(lba_key);
        (self.valid[bucket] == low_bits(self.slots)).then(|| self.entry(bucket, self.slots - 1))
    }

    /// Makes `entry`, as found, the most recent of its bucket. Returns the FP-hash that is not
    /// recent any more, if there is one.
    #[inline]
    pub fn promote(&mut self, entry: &LbaHashEntry, sketch: &Sketch) -> Option<Key> {
        if entry.slot == 0 {
            return None;
        }
        let bucket = self.bucket(entry.lba_key);
        let demoted = (entry.slot >= self.recent).then(|| {
            sketch.add(entry.fp_key);
            self.demote_last_recent(bucket, sketch)
        });
        self.shift(bucket, entry.slot, self.space.prefix(entry.lba_key), entry.fp_key, entry.is_dirty);
        demoted.flatten()
    }

    /// Maps `lba_key` as the most recent of its bucket.
    pub fn map(&mut self, lba_key: Key, fp_key: Key, is_dirty: bool, sketch: &Sketch) -> Change {
        match self.find(lba_key) {
            Some(entry) if entry.fp_key == fp_key && entry.is_dirty == is_dirty => {
                Change { left: None, demoted: self.promote(&entry, sketch) }
            }
            old => self.put(lba_key, old, fp_key, is_dirty, sketch),
        }
    }

    /// Inserts `lba_key` as the most recent of its bucket.
    ///
    /// It replaces `old`, its entry as found, else fills the first free slot, else replaces the
    /// least recent entry.
    fn put(&mut self, lba_key: Key, old: Option<LbaHashEntry>, fp_key: Key, is_dirty: bool, sketch: &Sketch) -> Change {
        let bucket = self.bucket(lba_key);
        let leaving = old.or_else(|| self.last_of_full(lba_key));
        // Additions come first, so a count is 0 in between only if it is 0 in the end.
        sketch.add(fp_key);
        sketch.add(fp_key);
        if let Some(old) = &leaving {
            self.uncount(old, sketch);
        }
        let slot = leaving.as_ref().map_or_else(|| self.valid[bucket].trailing_ones() as usize, |old| old.slot);
        let demoted = (slot >= self.recent).then(|| self.demote_last_recent(bucket, sketch)).flatten();
        self.shift(bucket, slot, self.space.prefix(lba_key), fp_key, is_dirty);
        Change { left: leaving, demoted }
    }

    /// Removes `entry`, as found. Its slot stays in place, invalid.
    pub fn remove(&mut self, entry: &LbaHashEntry, sketch: &Sketch) {
        let bucket = self.bucket(entry.lba_key);
        self.valid[bucket] &= !(1 << entry.slot);
        self.uncount(entry, sketch);
    }

    /// Counts the entries.
    pub fn valid_count(&self) -> u64 {
        self.valid.iter().map(|valid| u64::from(valid.count_ones())).sum()
    }

    /// Removes all entries; the caller updates the sketch.
    pub fn clear(&mut self) {
        self.valid.fill(0);
        self.dirty.fill(0);
    }

    /// Marks the entry of `lba_key`, if there is one, clean, because the origin has its content.
    pub fn clean(&mut self, lba_key: Key) {
        let (entry, bucket) = (self.find(lba_key), self.bucket(lba_key));
        if let (Some(entry), Some(dirty)) = (entry, self.dirty.get_mut(bucket)) {
            *dirty &= !(1 << entry.slot);
        }
    }

    /// Returns the entries of a bucket.
    pub fn entries_in(&self, bucket: usize) -> impl Iterator<Item = (LbaHashEntry, bool)> + '_ {
        let bucket = bucket - self.first;
        let valid = self.valid[bucket];
        let slots = (0..self.slots).filter(move |slot| valid >> slot & 1 == 1);
        slots.map(move |slot| (self.entry(bucket, slot), slot < self.recent))
    }

    /// Adds all references to those in the sketch.
    pub fn count_all(&self, sketch: &Sketch) {
        for bucket in 0..self.valid.len() {
            for (entry, is_recent) in self.entries_in(self.first + bucket) {
                sketch.add(entry.fp_key);
                if is_recent {
                    sketch.add(entry.fp_key);
                }
            }
        }
    }

    /// Returns the bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        size_of_val(&*self.prefixes)
            + size_of_val(&*self.fp_hashes)
            + size_of_val(&*self.valid)
            + size_of_val(&*self.dirty)
    }

    /// Returns the prefix of an LBA-hash.
    pub fn prefix_of(&self, lba_key: Key) -> u16 {
        self.space.prefix(lba_key)
    }

    /// Returns the valid slots of a bucket, as a mask.
    pub fn valid_of(&self, bucket: usize) -> u128 {
        self.valid[bucket - self.first]
    }

    /// Returns LBA-hash and FP-hash of a valid slot.
    pub fn slot(&self, bucket: usize, slot: usize) -> (Key, Key) {
        let entry = self.entry(bucket - self.first, slot);
        (entry.lba_key, entry.fp_key)
    }

    /// Fills an invalid slot, if the bucket lacks the prefix and the numbers are possible. The
    /// caller updates the sketch.
    pub fn set_slot(&mut self, bucket: usize, slot: usize, prefix: u16, fp_key: Key) {
        let lba_key = self.space.key(bucket, prefix);
        let is_possible = self.space.prefix(lba_key) == prefix && self.space.bucket(lba_key) == bucket;
        if !is_possible || self.find(lba_key).is_some() {
            return;
        }
        let bucket = bucket - self.first;
        self.prefixes[bucket * self.slots + slot] = prefix;
        let words = &mut self.fp_hashes[bucket * self.bucket_words..][..self.bucket_words];
        for bit in 0..self.fp_bits {
            let at = slot * self.fp_bits + bit;
            words[at / 64] = words[at / 64] & !(1 << (at % 64)) | (fp_key.0 >> bit & 1) << (at % 64);
        }
        self.valid[bucket] |= 1 << slot;
    }

    #[inline]
    fn entry(&self, bucket: usize, slot: usize) -> LbaHashEntry {
        LbaHashEntry {
            lba_key: self.space.key(self.first + bucket, self.prefixes[bucket * self.slots + slot]),
            fp_key: self.fp_hash(bucket, slot),
            is_dirty: self.dirty.get(bucket).is_some_and(|dirty| dirty >> slot & 1 == 1),
            slot,
        }
    }

    fn uncount(&self, entry: &LbaHashEntry, sketch: &Sketch) {
        sketch.take(entry.fp_key);
        if entry.slot < self.recent {
            sketch.take(entry.fp_key);
        }
    }

    /// Demotes the last recent slot to the first old one; returns its FP-hash.
    #[inline]
    fn demote_last_recent(&self, bucket: usize, sketch: &Sketch) -> Option<Key> {
        let last = self.recent.checked_sub(1).filter(|&last| self.valid[bucket] >> last & 1 == 1)?;
        let demoted = self.fp_hash(bucket, last);
        sketch.take(demoted);
        Some(demoted)
    }

    #[inline]
    fn fp_hash(&self, bucket: usize, slot: usize) -> Key {
        let words = &self.fp_hashes[bucket * self.bucket_words..][..self.bucket_words];
        let (word, bit) = (slot * self.fp_bits / 64, slot * self.fp_bits % 64);
        let mut value = words[word] >> bit;
        if bit + self.fp_bits > 64 {
            value |= words[word + 1] << (64 - bit);
        }
        Key(value & ((1 << self.fp_bits) - 1))
    }

    /// Moves slots `0..slot` up by one, over slot `slot`, and fills slot 0.
    #[inline]
    fn shift(&mut self, bucket: usize, slot: usize, prefix: u16, fp_key: Key, is_dirty: bool) {
        let prefixes = &mut self.prefixes[bucket * self.slots..][..=slot];
        prefixes.copy_within(..slot, 1);
        prefixes[0] = prefix;
        let words = &mut self.fp_hashes[bucket * self.bucket_words..][..self.bucket_words];
        shift_fields(words, slot, self.fp_bits, fp_key.0);
        self.valid[bucket] = shift_flags(self.valid[bucket], slot, true);
        if let Some(dirty) = self.dirty.get_mut(bucket) {
            *dirty = shift_flags(*dirty, slot, is_dirty);
        }
    }
}

/// Moves bits `0..slot` up by one, over bit `slot`, and sets bit 0 to `first`.
#[inline]
fn shift_flags(flags: u128, slot: usize, first: bool) -> u128 {
    let moved = low_bits(slot + 1);
    flags & !moved | flags << 1 & moved | u128::from(first)
}

/// Moves fields `0..slot` of `bits` bits up by one, over field `slot`, and sets field 0 to `first`.
#[inline]
fn shift_fields(words: &mut [u64], slot: usize, bits: usize, first: u64) {
    let end = (slot + 1) * bits;
    let words = &mut words[..end.div_ceil(64)];
    let Some(top) = words.last().copied() else { return };
    let mut below = first << (64 - bits);
    for word in words.iter_mut() {
        let old = *word;
        *word = old << bits | below >> (64 - bits);
        below = old;
    }
    // Bits above field `slot` stay.
    if !end.is_multiple_of(64)
        && let Some(last) = words.last_mut()
    {
        let moved = (1 << (end % 64)) - 1;
        *last = *last & moved | top & !moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_flags_move_up() {
        for bits in [3usize, 16, 17, 33, 48] {
            let slots = 40;
            let mut words = vec![0u64; (slots * bits).div_ceil(64)];
            let mut expected = vec![0u64; slots];
            let mut flags = 0u128;
            for step in 0..500usize {
                let (slot, value) = (step * 7 % slots, crate::types::mix(step as u64) & ((1 << bits) - 1));
                shift_fields(&mut words, slot, bits, value);
                flags = shift_flags(flags, slot, value % 2 == 1);
                expected.remove(slot);
                expected.insert(0, value);
                for (i, &value) in expected.iter().enumerate() {
                    let field = (0..bits).fold(0, |field, bit| {
                        let at = i * bits + bit;
                        field | (words[at / 64] >> (at % 64) & 1) << bit
                    });
                    assert_eq!((field, flags >> i & 1 == 1), (value, value % 2 == 1), "{bits} bits, step {step}");
                }
            }
        }
    }
}
