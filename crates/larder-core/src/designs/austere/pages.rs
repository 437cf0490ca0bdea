//! The indices as bytes, for a checkpoint: a few buckets to a page, by number.
//!
//! A page of the LBA index has, for each of its buckets, a mask of valid slots (16 bytes). The
//! valid slots' prefixes (2 bytes each) and FP-hashes (8 bytes each) follow, most recent first. A
//! page of the FP index has two things for each of its buckets: a mask of slots in use (16 bytes),
//! and their prefixes (2 bytes each). The hands follow its buckets, each in as many bits as number
//! a slot, from the lowest bit of a byte on. An older page has no hands, and they stand at the
//! first slot. All numbers are little-endian.
//!
//! Invariants: restored indices keep their invariants for any bytes. A page is restored whole or
//! not at all.
//!
//! It leaves the layout's identity and the integrity of pages to the checkpoint, and the count of
//! references to [`Austere::end_restore`].

use super::{
    Austere, AustereConfig, fp_index,
    keys::{Key, KeySpace},
    lba_index,
};
use std::ops::Range;

/// Maximum bytes of a page without its hands.
pub const PAGE_BYTES_MAX: usize = 4032;
/// Room for the hands of a page, in bytes.
///
/// Longer hands are left out. Only small buckets whose slots are no power of two have them, and no
/// engine makes those.
const HANDS_BYTES_MAX: usize = 52;

const MASK_BYTES: usize = size_of::<u128>();
const PREFIX_BYTES: usize = size_of::<u16>();
const HASH_BYTES: usize = size_of::<u64>();

impl Austere {
    /// Counts the pages of the indices.
    pub fn page_count(&self) -> usize {
        self.lba_pages() + self.fp_pages()
    }

    fn lba_pages(&self) -> usize {
        self.lba_index.bucket_count().div_ceil(self.lba_buckets_a_page())
    }

    fn fp_pages(&self) -> usize {
        self.fp_index.bucket_count().div_ceil(self.fp_buckets_a_page())
    }

    fn lba_buckets_a_page(&self) -> usize {
        let slots = self.config.bucket_slots as usize;
        (PAGE_BYTES_MAX / (MASK_BYTES + slots * (PREFIX_BYTES + HASH_BYTES))).max(1)
    }

    fn fp_buckets_a_page(&self) -> usize {
        (PAGE_BYTES_MAX / (MASK_BYTES + self.config.bucket_slots as usize * PREFIX_BYTES)).max(1)
    }

    /// Returns page `page`, empty beyond the last.
    ///
    /// It leaves out suspended LBA-hashes, and runs that count as free, by their first slots.
    pub fn export_page(
        &self,
        page: usize,
        is_forgotten: impl Fn(Key) -> bool,
        is_freed: impl Fn(u32) -> bool,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(page) = page.checked_sub(self.lba_pages()) {
            let buckets = self.fp_buckets_a_page();
            let end = ((page + 1) * buckets).min(self.fp_index.bucket_count());
            (page * buckets..end).for_each(|bucket| {
                self.fp_index.part_of(bucket).export_bucket(bucket, &is_freed, &mut bytes);
            });
            self.export_hands(page * buckets..end, &mut bytes);
        } else {
            let buckets = self.lba_buckets_a_page();
            let end = ((page + 1) * buckets).min(self.lba_index.bucket_count());
            (page * buckets..end).for_each(|bucket| {
                self.lba_index.part_of(bucket).export_bucket(bucket, &is_forgotten, &mut bytes);
            });
        }
        bytes
    }

    /// Restores page `page` in new indices. Returns false and changes nothing for an invalid page.
    pub fn restore_page(&self, page: usize, bytes: &[u8]) -> bool {
        let slots = self.config.bucket_slots as usize;
        if let Some(page) = page.checked_sub(self.lba_pages()) {
            let first = page * self.fp_buckets_a_page();
            let end = (first + self.fp_buckets_a_page()).min(self.fp_index.bucket_count());
            let Some((buckets, hands)) = parts(bytes, end.saturating_sub(first), slots, PREFIX_BYTES) else {
                return false;
            };
            let Some(hands) = self.hands_in(hands, buckets.len()) else { return false };
            for ((bucket, part), hand) in (first..end).zip(buckets).zip(hands) {
                let mut index = self.fp_index.part_of(bucket);
                index.restore_bucket(bucket, &part);
                index.set_hand(bucket, hand);
            }
        } else {
            let first = page * self.lba_buckets_a_page();
            let end = (first + self.lba_buckets_a_page()).min(self.lba_index.bucket_count());
            let Some((buckets, [])) = parts(bytes, end.saturating_sub(first), slots, PREFIX_BYTES + HASH_BYTES) else {
                return false;
            };
            (first..end).zip(buckets).for_each(|(bucket, part)| {
                self.lba_index.part_of(bucket).restore_bucket(bucket, &part, &self.fp_space);
            });
        }
        true
    }

    /// Returns the bits of a hand.
    fn hand_bits(&self) -> usize {
        self.config.bucket_slots.next_power_of_two().trailing_zeros() as usize
    }

    /// Appends the hands of these buckets.
    fn export_hands(&self, buckets: Range<usize>, bytes: &mut Vec<u8>) {
        let bits = self.hand_bits();
        let mut packed = vec![0u8; (buckets.len() * bits).div_ceil(u8::BITS as usize)];
        for (at, bucket) in buckets.enumerate() {
            let hand = self.fp_index.part_of(bucket).hand(bucket);
            for bit in (0..bits).filter(|bit| hand >> bit & 1 == 1) {
                let at = at * bits + bit;
                packed[at / u8::BITS as usize] |= 1 << (at % u8::BITS as usize);
            }
        }
        if packed.len() <= HANDS_BYTES_MAX {
            bytes.append(&mut packed);
        }
    }

    /// Reads the hands behind the buckets of a page; `None` if `packed` is neither empty nor of
    /// that size.
    fn hands_in(&self, packed: &[u8], buckets: usize) -> Option<Vec<u8>> {
        let bits = self.hand_bits();
        if packed.is_empty() {
            return Some(vec![0; buckets]);
        }
        if packed.len() != (buckets * bits).div_ceil(u8::BITS as usize) {
            return None;
        }
        let bit = |at: usize| packed[at / u8::BITS as usize] >> (at % u8::BITS as usize) & 1;
        let hand = |at: usize| (0..bits).fold(0, |hand, of| hand | bit(at * bits + of) << of);
        let hands: Vec<u8> = (0..buckets).map(hand).collect();
        hands.iter().all(|&hand| u32::from(hand) < self.config.bucket_slots).then_some(hands)
    }

    /// Counts the references after all pages and later entries were restored.
    pub fn end_restore(&self) {
        self.lba_index.recount(&self.sketch);
    }
}

/// Returns the number of pages of this layout's indices; none for an impossible layout.
pub(super) fn pages_max(config: &AustereConfig) -> Option<usize> {
    let (fp_buckets, lba_buckets) = config.buckets().ok()?;
    let slots = config.bucket_slots as usize;
    let lba_a_page = (PAGE_BYTES_MAX / (MASK_BYTES + slots * (PREFIX_BYTES + HASH_BYTES))).max(1);
    let fp_a_page = (PAGE_BYTES_MAX / (MASK_BYTES + slots * PREFIX_BYTES)).max(1);
    Some((lba_buckets as usize).div_ceil(lba_a_page) + (fp_buckets as usize).div_ceil(fp_a_page))
}

/// A bucket's part of a page.
struct Part<'a> {
    valid: u128,
    /// Bytes of each valid slot.
    slots: &'a [u8],
}

/// Reads the parts of so many buckets from the front of `bytes`, and returns the rest.
///
/// A slot takes `slot_bytes`.
fn parts(mut bytes: &[u8], buckets: usize, slots: usize, slot_bytes: usize) -> Option<(Vec<Part<'_>>, &[u8])> {
    let mut parts = Vec::with_capacity(buckets);
    for _ in 0..buckets {
        let (mask, rest) = bytes.split_first_chunk::<MASK_BYTES>()?;
        let valid = u128::from_le_bytes(*mask);
        if slots < u128::BITS as usize && valid >> slots != 0 {
            return None;
        }
        let (slots, rest) = rest.split_at_checked(valid.count_ones() as usize * slot_bytes)?;
        parts.push(Part { valid, slots });
        bytes = rest;
    }
    Some((parts, bytes))
}

/// Returns the set slots of a mask.
fn set_slots(mask: u128) -> impl Iterator<Item = usize> {
    (0..u128::BITS as usize).filter(move |slot| mask >> slot & 1 == 1)
}

impl lba_index::LbaPart {
    fn export_bucket(&self, bucket: usize, is_forgotten: impl Fn(Key) -> bool, bytes: &mut Vec<u8>) {
        let kept = set_slots(self.valid_of(bucket)).filter(|&slot| !is_forgotten(self.slot(bucket, slot).0));
        let valid = kept.fold(0u128, |valid, slot| valid | 1 << slot);
        bytes.extend_from_slice(&valid.to_le_bytes());
        for slot in set_slots(valid) {
            let (lba_key, fp_key) = self.slot(bucket, slot);
            let prefix = self.prefix_of(lba_key);
            bytes.extend_from_slice(&prefix.to_le_bytes());
            bytes.extend_from_slice(&fp_key.0.to_le_bytes());
        }
    }

    /// Restores a bucket, without repeated prefixes and impossible FP-hashes.
    fn restore_bucket(&mut self, bucket: usize, part: &Part<'_>, contents: &KeySpace) {
        let (slots, _) = part.slots.as_chunks::<{ PREFIX_BYTES + HASH_BYTES }>();
        for (slot, [p0, p1, hash @ ..]) in set_slots(part.valid).zip(slots) {
            let fp_key = Key(u64::from_le_bytes(*hash));
            if contents.has(fp_key) {
                self.set_slot(bucket, slot, u16::from_le_bytes([*p0, *p1]), fp_key);
            }
        }
    }
}

impl fp_index::FpPart {
    fn export_bucket(&self, bucket: usize, is_freed: impl Fn(u32) -> bool, bytes: &mut Vec<u8>) {
        let valid = self.valid_but(bucket, is_freed);
        bytes.extend_from_slice(&valid.to_le_bytes());
        for slot in set_slots(valid) {
            bytes.extend_from_slice(&self.prefix_of(bucket, slot).to_le_bytes());
        }
    }

    /// Restores a bucket, without the second of two runs of one prefix.
    fn restore_bucket(&mut self, bucket: usize, part: &Part<'_>) {
        let (slots, _) = part.slots.as_chunks::<PREFIX_BYTES>();
        let mut run: Option<(usize, u32, u16)> = None;
        for (slot, prefix) in set_slots(part.valid).zip(slots) {
            let prefix = u16::from_le_bytes(*prefix);
            match &mut run {
                Some((first, count, of)) if *of == prefix && *first + *count as usize == slot => *count += 1,
                _ => {
                    if let Some((first, count, of)) = run.replace((slot, 1, prefix)) {
                        self.set_if_new(bucket, first, count, of);
                    }
                }
            }
        }
        if let Some((first, count, of)) = run {
            self.set_if_new(bucket, first, count, of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        austere::AustereConfig,
        types::{Fingerprint, Lba, mix},
    };

    fn filled(seed: u64) -> Austere {
        let config = AustereConfig { bucket_slots: 16, prefix_bits: 4, ..AustereConfig::new(32 << 20, 32 << 10, true) };
        let austere = Austere::new(config).expect("a layout");
        for step in 0..20_000 {
            let bits = mix(seed << 32 | step);
            let fingerprint = Fingerprint(u128::from(bits % 3000).to_le_bytes());
            let lba = Lba(bits >> 20 & 0xfff);
            if austere.find_content(&fingerprint).is_none() {
                let count = 1 + (bits >> 40) as u32 % 4;
                austere.victims(&fingerprint, count).for_each(|victim| austere.evict(victim.run));
                austere.store(&fingerprint, count).expect("room was made");
            }
            austere.map(lba, &fingerprint, false);
            if bits >> 50 & 7 == 0 {
                austere.forget(Lba(bits >> 30 & 0xfff));
            }
        }
        austere
    }

    #[test]
    fn indices_come_back_as_they_were() {
        for seed in 0..20 {
            let before = filled(seed);
            let after = Austere::new(*before.config()).expect("a layout");
            assert!(before.page_count() > 2);
            for page in 0..before.page_count() {
                let bytes = before.export_page(page, |_| false, |_| false);
                assert!(bytes.len() <= PAGE_BYTES_MAX + HANDS_BYTES_MAX);
                assert!(after.restore_page(page, &bytes), "page {page}");
            }
            after.end_restore();
            after.check();
            assert!(before.lba_index.entries().eq(after.lba_index.entries()), "seed {seed}");
            assert!(before.fp_index.all_runs().eq(after.fp_index.all_runs()), "seed {seed}");
            assert_eq!(hands(&before), hands(&after), "seed {seed}");
            assert!(hands(&before).iter().any(|&hand| hand > 0), "seed {seed}");
            assert_eq!(before.export_page(before.page_count(), |_| false, |_| false), []);
        }
    }

    fn hands(austere: &Austere) -> Vec<u8> {
        let buckets = 0..austere.fp_index.bucket_count();
        buckets.map(|bucket| austere.fp_index.part_of(bucket).hand(bucket)).collect()
    }

    /// An older page ends with its buckets.
    #[test]
    fn hands_that_a_page_lacks_stand_at_the_first_slot() {
        let before = filled(7);
        let after = Austere::new(*before.config()).expect("a layout");
        for page in 0..before.page_count() {
            let mut bytes = before.export_page(page, |_| false, |_| false);
            if let Some(page) = page.checked_sub(before.lba_pages()) {
                let first = page * before.fp_buckets_a_page();
                let buckets = before.fp_buckets_a_page().min(before.fp_index.bucket_count() - first);
                bytes.truncate(bytes.len() - (buckets * before.hand_bits()).div_ceil(8));
            }
            assert!(after.restore_page(page, &bytes), "page {page}");
        }
        assert!(before.fp_index.all_runs().eq(after.fp_index.all_runs()));
        assert!(hands(&after).iter().all(|&hand| hand == 0));
    }

    /// The buckets of an engine have a power of two of slots.
    #[test]
    fn the_hands_of_each_page_have_room() {
        for bucket_slots in (2..=7).map(|bits| 1 << bits) {
            let config = AustereConfig { bucket_slots, ..AustereConfig::new(32 << 20, 32 << 10, true) };
            let austere = Austere::new(config).expect("a layout");
            let hands = (austere.fp_buckets_a_page() * austere.hand_bits()).div_ceil(8);
            assert!(hands <= HANDS_BYTES_MAX, "{bucket_slots} slots: {hands} bytes");
        }
    }

    #[test]
    fn damaged_pages_break_no_index() {
        for seed in 0..40u64 {
            let before = filled(seed % 5);
            let after = Austere::new(*before.config()).expect("a layout");
            for page in 0..before.page_count() {
                let mut bytes = before.export_page(page, |_| false, |_| false);
                for hit in 0..3 {
                    let bits = mix(seed << 20 | (page as u64) << 4 | hit);
                    let at = bits as usize % bytes.len();
                    match bits >> 60 & 3 {
                        0 => bytes.truncate(at),
                        1 => bytes.push(bits as u8),
                        _ => bytes[at] ^= (bits >> 40) as u8,
                    }
                    if bytes.is_empty() {
                        break;
                    }
                }
                let unchanged: Vec<_> = after.export_page(page, |_| false, |_| false);
                if !after.restore_page(page, &bytes) {
                    assert_eq!(after.export_page(page, |_| false, |_| false), unchanged);
                }
            }
            after.end_restore();
            after.check();
        }
    }
}
