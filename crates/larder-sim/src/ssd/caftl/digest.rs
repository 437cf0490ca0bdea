//! What stands for the bytes of a page where a trace has none: its SHA-1, its CRC32 and its first four bytes.
//!
//! Role: a [`Digest`] is what CAFTL's fingerprint is to its store: as good as random, so that `f mod N` spreads and
//! ranges of values are as they would be (CAFTL section 3.2.3). The content's fingerprint in the trace may be anything:
//! a bijection makes it so.
//!
//! Invariants: equal contents have equal digests and distinct ones distinct, for the map is one to one. Unknown content
//! has a digest that no other has. CRC32 and sample bytes are hashes of the digest, so **synthetic**: they collide as
//! rarely as those of random pages, and the page of most zeros is none of their favourites.
//!
//! What it does not do: hash bytes, or cost time: what hashes cost is told as operations.

use larder_core::Fingerprint;

/// A page's fingerprint, as the drive computes it. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    high: u64,
    low: u64,
}

/// What unknown contents have in the upper half: no trace has it but by a chance of 2^-64.
const UNKNOWN: u128 = 0x756e_6b6e_6f77_6e20 << 64;

impl Digest {
    /// Of the content with this fingerprint.
    pub fn of(content: Fingerprint) -> Digest {
        mixed(u128::from_be_bytes(content.0))
    }

    /// Of the unknown content with this number.
    pub fn of_unknown(number: u64) -> Digest {
        mixed(UNKNOWN | u128::from(number))
    }

    /// `f mod N`.
    pub fn modulo(self, n: u32) -> u32 {
        // 64 of the bits are as even as 160.
        (self.low % u64::from(n)) as u32
    }

    /// At which place of `len` ascending ones, the first and the last of which these are, this lies if they are spread
    /// evenly.
    pub(super) fn expected_place(self, first: Digest, last: Digest, len: usize) -> usize {
        let beyond = self.high.saturating_sub(first.high).min(last.high - first.high) as f64;
        // About is enough, and a division of 128 bits takes as long as a miss of the processor's caches.
        let range = (last.high - first.high) as f64 + 1.0;
        ((beyond / range * len as f64) as usize).min(len)
    }

    /// The page's CRC32. Synthetic.
    pub fn crc32(self) -> u32 {
        finished(self.low ^ 0x6372_6333_3263_7263) as u32
    }

    /// The page's first four bytes, as a number. Synthetic.
    pub fn sample_bytes(self) -> u32 {
        finished(self.high ^ 0x7361_6d70_6c65_6279) as u32
    }
}

/// One to one: shifts that are xored in and products with odd numbers can be undone.
fn mixed(value: u128) -> Digest {
    let mut mixed = value ^ value >> 64;
    mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    mixed ^= mixed >> 67;
    mixed = mixed.wrapping_mul(0xda94_2042_e4dd_58b5_bf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 61;
    mixed = mixed.wrapping_mul(0x94d0_49bb_1331_11eb_9fb2_1c65_1e98_df25);
    mixed ^= mixed >> 64;
    Digest { high: (mixed >> 64) as u64, low: mixed as u64 }
}

/// SplitMix64's finisher (Steele, Lea and Flood, 2014).
fn finished(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
