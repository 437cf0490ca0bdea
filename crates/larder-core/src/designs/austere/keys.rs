//! LBA-hashes and FP-hashes (AustereCache §3.1): a bucket, and the prefix that a slot of it keeps.
//!
//! Invariants: a hash is a number below `buckets << PREFIX_BITS`, so that it packs into
//! [`KeySpace::bits`]. The bucket's number is above, the prefix below. Bucket and prefix come from
//! different bits of one 64-bit hash.
//!
//! It leaves the difference between two addresses or contents of one hash to the metadata slots on
//! flash.

use crate::types::{Fingerprint, Lba, mix};

/// Bits of a prefix, the paper's 16 (§3.1).
pub const PREFIX_BITS: u32 = 16;

/// The hash of an address or of a content, as the indices keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// The number of buckets of an index, and the mapping of hashes to them.
#[derive(Clone, Copy, Debug)]
pub struct KeySpace {
    buckets: u32,
    prefix_bits: u32,
}

impl KeySpace {
    /// Creates a space of `buckets` buckets, at least 1.
    ///
    /// Prefixes have `prefix_bits` bits, 1 to [`PREFIX_BITS`].
    pub fn new(buckets: u32, prefix_bits: u32) -> KeySpace {
        KeySpace { buckets: buckets.max(1), prefix_bits: prefix_bits.clamp(1, PREFIX_BITS) }
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets as usize
    }

    /// Returns the bits of a hash: of prefix and bucket number (33 in the paper's example).
    pub fn bits(&self) -> u32 {
        self.prefix_bits + (u32::BITS - (self.buckets - 1).leading_zeros())
    }

    /// Returns the hash of an address.
    #[inline]
    pub fn of_lba(&self, lba: Lba) -> Key {
        self.reduce(mix(lba.0))
    }

    /// Returns the hash of a content. Fingerprints may be uneven: those of a trace can be any
    /// numbers.
    #[inline]
    pub fn of_content(&self, fingerprint: &Fingerprint) -> Key {
        let number = u128::from_le_bytes(fingerprint.0);
        self.reduce(mix(number as u64 ^ mix((number >> 64) as u64)))
    }

    /// Returns the hash of prefix `prefix` in bucket `bucket`.
    #[inline]
    pub fn key(&self, bucket: usize, prefix: u16) -> Key {
        Key((bucket as u64) << self.prefix_bits | u64::from(prefix))
    }

    /// Returns whether it can be a hash here.
    pub fn has(&self, key: Key) -> bool {
        key.0 >> self.prefix_bits < u64::from(self.buckets)
    }

    /// Returns the bucket of a hash.
    #[inline]
    pub fn bucket(&self, key: Key) -> usize {
        (key.0 >> self.prefix_bits) as usize
    }

    /// Returns the prefix of a hash.
    #[inline]
    pub fn prefix(&self, key: Key) -> u16 {
        (key.0 & ((1 << self.prefix_bits) - 1)) as u16
    }

    /// Reduces a hash: the upper half gives the prefix, the lower one the bucket.
    ///
    /// The bucket comes from a multiplication, so any number of buckets will do.
    #[inline]
    fn reduce(&self, hash: u64) -> Key {
        let bucket = (u64::from(hash as u32) * u64::from(self.buckets)) >> 32;
        Key(bucket << self.prefix_bits | hash >> (u64::BITS - self.prefix_bits))
    }
}

/// Returns the positions of `prefix` in `prefixes` (128 at most): bit `i` is slot `i`.
#[inline]
pub(super) fn equal_mask(prefixes: &[u16], prefix: u16) -> u128 {
    // Eight at a time: bit `i` of a lane is a slot of group `i`. Few lanes have a bit in the end.
    let (groups, rest) = prefixes.as_chunks::<8>();
    let mut lanes = [0u16; 8];
    let mut bit = 1u16;
    for group in groups {
        for (lane, &slot) in lanes.iter_mut().zip(group) {
            *lane |= if slot == prefix { bit } else { 0 };
        }
        bit <<= 1;
    }
    let mut mask = 0u128;
    if lanes != [0; 8] {
        for (i, &lane) in lanes.iter().enumerate() {
            let mut left = lane;
            while left != 0 {
                mask |= 1 << (8 * left.trailing_zeros() as usize + i);
                left &= left - 1;
            }
        }
    }
    for (j, &slot) in rest.iter().enumerate() {
        mask |= u128::from(slot == prefix) << (8 * groups.len() + j);
    }
    mask
}

/// Returns a mask of the lowest `count` bits.
#[inline]
pub(super) fn low_bits(count: usize) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_the_bits_of_the_paper_and_come_apart_again() {
        assert_eq!(KeySpace::new(1 << 17, 16).bits(), 33);
        assert_eq!(KeySpace::new(1 << 20, 16).bits(), 36);
        assert_eq!(KeySpace::new(1, 16).bits(), 16);
        assert_eq!(KeySpace::new(3, 2).bits(), 4);
        for buckets in [1, 2, 3, 100, 1 << 17] {
            let space = KeySpace::new(buckets, 5);
            for lba in 0..1000 {
                let key = space.of_lba(Lba(lba));
                assert!(space.bucket(key) < buckets as usize && key.0 < 1 << space.bits());
                assert_eq!(space.key(space.bucket(key), space.prefix(key)), key);
            }
        }
    }

    #[test]
    fn masks_name_the_equal_slots() {
        for len in [1, 3, 16, 17, 40, 128] {
            let prefixes: Vec<u16> = (0..len).map(|i| i % 5).collect();
            let expected = (0..len).filter(|i| i % 5 == 3).fold(0u128, |mask, i| mask | 1 << i);
            assert_eq!(equal_mask(&prefixes, 3), expected, "{len}");
        }
        assert_eq!((low_bits(0), low_bits(3), low_bits(128)), (0, 7, u128::MAX));
    }
}
