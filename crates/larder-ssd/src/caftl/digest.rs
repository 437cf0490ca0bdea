//! Stand-ins for the bytes of a page: its SHA-1, its CRC32 and its first four bytes.
//!
//! Role: traces have no bytes of pages, so a [`Digest`] is to the store as CAFTL's fingerprint is.
//! It is as good as random, so that `f mod N` spreads and ranges of values are realistic (CAFTL
//! section 3.2.3). The content's fingerprint in the trace may be anything: a bijection makes it
//! random.
//!
//! Invariants: the map is one to one, so equal contents have equal digests, and distinct contents
//! distinct ones. Unknown content has a unique digest. CRC32 and sample bytes are hashes of the
//! digest, so **synthetic**. They collide as rarely as those of random pages, and do not favour the
//! page of most zeros.
//!
//! It does not hash bytes, or cost time: hashes are told as operations.

use larder_types::Fingerprint;

/// A page's fingerprint, as the drive computes it. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    high: u64,
    low: u64,
}

/// The upper half of unknown contents: a trace has it only by a chance of 2^-64.
const UNKNOWN: u128 = 0x756e_6b6e_6f77_6e20 << 64;

impl Digest {
    /// Makes the digest of the content with this fingerprint.
    pub fn of(content: Fingerprint) -> Digest {
        mixed(u128::from_be_bytes(content.0))
    }

    /// Makes the digest of the unknown content with this number.
    pub fn of_unknown(number: u64) -> Digest {
        mixed(UNKNOWN | u128::from(number))
    }

    /// Returns `f mod N`.
    pub fn modulo(self, n: u32) -> u32 {
        // 64 of the bits are as even as 160.
        (self.low % u64::from(n)) as u32
    }

    /// Estimates the place of this digest among `len` ascending ones, from `first` to `last`.
    ///
    /// The estimate is for evenly spread digests.
    pub(super) fn expected_place(self, first: Digest, last: Digest, len: usize) -> usize {
        let beyond = self.high.saturating_sub(first.high).min(last.high - first.high) as f64;
        // An estimate is enough, and a division of 128 bits takes as long as a miss of the
        // processor's caches.
        let range = (last.high - first.high) as f64 + 1.0;
        ((beyond / range * len as f64) as usize).min(len)
    }

    /// Returns the page's CRC32. Synthetic.
    pub fn crc32(self) -> u32 {
        finished(self.low ^ 0x6372_6333_3263_7263) as u32
    }

    /// Returns the page's first four bytes, as a number. Synthetic.
    pub fn sample_bytes(self) -> u32 {
        finished(self.high ^ 0x7361_6d70_6c65_6279) as u32
    }
}

/// Mixes one to one: shifts that are xored in and products with odd numbers can be undone.
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

/// Mixes the bits, as SplitMix64's finisher does (Steele, Lea and Flood, 2014).
fn finished(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
