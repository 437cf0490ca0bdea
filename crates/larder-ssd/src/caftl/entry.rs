//! An entry of the fingerprint store, and the store's options (CAFTL section 3.2).
//!
//! Invariants: an entry means one page.
//!
//! It does not search.

use super::{digest::Digest, location::Location};

/// The order of the buckets of a segment.
///
/// CAFTL section 3.2.3 has three ways to find sooner. These are two of them; the third is
/// [`StoreOptions::range_check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they were allocated; each is searched in turn.
    Allocated,
    /// Hotness-based reorganisation: entries of many references come in the first buckets.
    Hotness,
    /// Fingerprints ascend over all buckets of a segment, so that buckets are found by binary
    /// search.
    ///
    /// It implies the range check, which decides the direction of the search.
    Fingerprint,
}

/// The options of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// N. The paper's evaluation has 256 (section 4.3.3).
    pub segments: u32,
    /// Bytes of a bucket.
    pub bucket_bytes: u32,
    /// The buckets of all segments together.
    pub buckets_max: u32,
    /// True if a bucket is searched only for fingerprints between its smallest and its largest.
    pub range_check: bool,
    /// The order of buckets.
    pub order: Order,
}

impl Default for StoreOptions {
    /// Returns the paper's segments and bucket, and its two suggested accelerations (section
    /// 4.3.3).
    ///
    /// The paper names no size of the store: ours has 16 MiB.
    fn default() -> Self {
        StoreOptions {
            segments: 256,
            bucket_bytes: 4096,
            buckets_max: 4096,
            range_check: true,
            order: Order::Fingerprint,
        }
    }
}

/// A fingerprint of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// The fingerprint.
    pub digest: Digest,
    /// The place of the content.
    pub location: Location,
    /// Logical pages that refer to it, at most 255.
    pub reference: u8,
}
