//! LBA-hashes and FP-hashes (AustereCache §3.1): the bucket, and the prefix that a slot of it keeps.
//!
//! Invariants: a hash is a number below `buckets << PREFIX_BITS`, so that it packs into [`KeySpace::bits`]; the bucket's
//! number is above, the prefix below. Which bits a bucket and a prefix come from are different bits of one 64-bit hash.
//!
//! What it does not do: tell two addresses or contents of one hash apart. Metadata slots on flash do.

use crate::types::{Fingerprint, Lba, mix};

/// Bits of a prefix, the paper's 16 (§3.1).
pub const PREFIX_BITS: u32 = 16;

/// The hash of an address or of a content, as far as the indices keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// How many buckets an index has, and how hashes fall into them.
#[derive(Clone, Copy, Debug)]
pub struct KeySpace {
    buckets: u32,
    prefix_bits: u32,
}

impl KeySpace {
    /// For `buckets` buckets, at least 1, and prefixes of `prefix_bits` bits, 1 to [`PREFIX_BITS`].
    pub fn new(buckets: u32, prefix_bits: u32) -> KeySpace {
        KeySpace { buckets: buckets.max(1), prefix_bits: prefix_bits.clamp(1, PREFIX_BITS) }
    }

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets as usize
    }

    /// Bits of a hash: those of a prefix and those that number the buckets (33 in the paper's example).
    pub fn bits(&self) -> u32 {
        self.prefix_bits + (u32::BITS - (self.buckets - 1).leading_zeros())
    }

    /// The hash of an address.
    #[inline]
    pub fn of_lba(&self, lba: Lba) -> Key {
        self.reduce(mix(lba.0))
    }

    /// The hash of a content. Fingerprints need not be evenly spread: those of a trace may be any numbers.
    #[inline]
    pub fn of_content(&self, fingerprint: &Fingerprint) -> Key {
        let number = u128::from_le_bytes(fingerprint.0);
        self.reduce(mix(number as u64 ^ mix((number >> 64) as u64)))
    }

    /// The hash that slot prefix `prefix` of bucket `bucket` stands for.
    #[inline]
    pub fn key(&self, bucket: usize, prefix: u16) -> Key {
        Key((bucket as u64) << self.prefix_bits | u64::from(prefix))
    }

    /// Whether it can be a hash here.
    pub fn has(&self, key: Key) -> bool {
        key.0 >> self.prefix_bits < u64::from(self.buckets)
    }

    /// The bucket of a hash.
    #[inline]
    pub fn bucket(&self, key: Key) -> usize {
        (key.0 >> self.prefix_bits) as usize
    }

    /// The prefix of a hash.
    #[inline]
    pub fn prefix(&self, key: Key) -> u16 {
        (key.0 & ((1 << self.prefix_bits) - 1)) as u16
    }

    /// The upper half gives the prefix, the lower one the bucket, by multiplication: any number of buckets will do.
    #[inline]
    fn reduce(&self, hash: u64) -> Key {
        let bucket = (u64::from(hash as u32) * u64::from(self.buckets)) >> 32;
        Key(bucket << self.prefix_bits | hash >> (u64::BITS - self.prefix_bits))
    }
}

/// Which of `prefixes` (128 at most) are `prefix`: bit `i` is slot `i`.
#[inline]
pub(super) fn equal_mask(prefixes: &[u16], prefix: u16) -> u128 {
    // Eight at a time: bit `i` of a lane is a slot of group `i`. Few lanes, if any, have a bit in the end.
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

/// The lowest `count` bits.
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
