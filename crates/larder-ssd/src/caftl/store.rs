//! The fingerprint store: the most referenced fingerprints, in the drive's RAM (CAFTL section
//! 3.2.3).
//!
//! Role: fingerprints are spread over *segments* (`f mod N`), each a list of *buckets* of 4 KiB. A
//! bucket is a sorted run of entries {fingerprint, location, reference}. [`Store`] finds, inserts,
//! changes and removes; `segment.rs` keeps the buckets of a segment.
//!
//! Invariants: a fingerprint is in at most one entry. Buckets are allocated while there are free
//! ones. Then a new entry replaces the coldest of a bucket taken in turn, unless it is colder than
//! all of it. References stop at 255.
//!
//! An entry counts with the paper's 25 bytes (20 + 4 + 1), or 29 with a CRC32 beside each
//! fingerprint (section 3.4.2). So a bucket of 4 KiB has 163 or 141. Here an entry takes 24,
//! because the trace's fingerprints have 128 bits.
//!
//! It does not know pages. The owner of the store tells it the places of contents and their
//! references.

use hashbrown::HashMap;

use super::{
    digest::Digest,
    entry::{Order, StoreEntry, StoreOptions},
    location::Location,
    segment::{Found, Segment},
};
use crate::geometry::{OutOfRange, within};

/// Bytes of an entry: 160 bits of fingerprint, 32 of location, 8 of reference.
const ENTRY_BYTES: u32 = 25;
/// Bytes of a CRC32 beside it.
const CRC_BYTES: u32 = 4;

/// Counts of the store's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Fingerprints looked up for pages that are written or fingerprinted out of line.
    pub lookups: u64,
    /// Looked-up fingerprints that were there.
    pub found: u64,
    /// Comparisons of fingerprints for all lookups (CAFTL Figure 12).
    pub comparisons: u64,
    /// Comparisons with the smallest and the largest fingerprint of a bucket.
    pub range_comparisons: u64,
    /// Comparisons of fingerprints to find entries that change, or places for new ones.
    pub comparisons_of_changes: u64,
    /// Entries that were inserted, in free room or for another.
    pub inserted: u64,
    /// Entries that gave way to others.
    pub replaced: u64,
    /// Fingerprints that were colder than the entry to replace, or whose segment had no bucket.
    pub refused: u64,
    /// Segments reorganised by hotness.
    pub reorganised: u64,
    /// Entries that went from a bucket to its neighbour to keep fingerprints ascending.
    pub passed_on: u64,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The entry is there.
    Added,
    /// The entry is there in place of this one.
    Replaced(StoreEntry),
    /// The entry is not there.
    Refused,
}

/// The fingerprint store; see the module.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    segments: Vec<Segment>,
    entries_per_bucket: u32,
    buckets: u32,
    len: u32,
    /// The number of entries of each CRC32, if these are kept.
    crcs: Option<HashMap<u32, u32>>,
    counts: StoreCounts,
}

impl Store {
    /// Makes a store without a bucket.
    ///
    /// # Errors
    /// If there is no segment or no bucket, or a bucket holds fewer than 2 entries.
    pub fn new(options: StoreOptions, keeps_crcs: bool) -> Result<Self, OutOfRange> {
        within("segments", options.segments, 1, 1 << 24)?;
        within("buckets_max", options.buckets_max, 1, 1 << 24)?;
        let entry_bytes = ENTRY_BYTES + if keeps_crcs { CRC_BYTES } else { 0 };
        within("bucket_bytes", options.bucket_bytes, 2 * entry_bytes, 1 << 20)?;
        let mut segments = Vec::new();
        segments.resize_with(options.segments as usize, Segment::default);
        Ok(Store {
            options,
            segments,
            entries_per_bucket: options.bucket_bytes / entry_bytes,
            buckets: 0,
            len: 0,
            crcs: keeps_crcs.then(HashMap::new),
            counts: StoreCounts::default(),
        })
    }

    /// Counts the fingerprints.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Counts the buckets in use.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Returns the counts until now.
    pub fn counts(&self) -> &StoreCounts {
        &self.counts
    }

    /// Prefetches the bucket of `digest`.
    pub fn prefetch(&self, digest: Digest) {
        self.segments[self.segment(digest)].prefetch(digest, &self.options);
    }

    /// Looks `digest` up, and counts the lookup.
    pub fn look_up(&mut self, digest: Digest) -> Option<StoreEntry> {
        let segment = &self.segments[self.segment(digest)];
        segment.prefetch_coldest();
        let (found, compared) = segment.find(digest, &self.options);
        self.counts.lookups += 1;
        self.counts.comparisons += compared.all;
        self.counts.range_comparisons += compared.ranges;
        let entry = match found {
            Found::At(at) => Some(self.segments[self.segment(digest)].entry(at)),
            Found::No => None,
        };
        self.counts.found += u64::from(entry.is_some());
        entry
    }

    /// Returns true if some fingerprint's page has this CRC32.
    pub fn has_crc(&self, crc: u32) -> bool {
        self.crcs.as_ref().is_some_and(|crcs| crcs.contains_key(&crc))
    }

    /// Inserts an entry whose fingerprint is not there.
    pub fn insert(&mut self, entry: StoreEntry) -> Inserted {
        let at = self.segment(entry.digest);
        let capacity = self.entries_per_bucket as usize;
        let segment = &mut self.segments[at];
        let mut replaced = None;
        if !segment.has_room(capacity) {
            if self.buckets < self.options.buckets_max {
                segment.add_bucket(capacity);
                self.buckets += 1;
            } else {
                replaced = segment.take_coldest(entry.reference);
                if replaced.is_none() {
                    self.counts.refused += 1;
                    return Inserted::Refused;
                }
            }
        }
        let cost = segment.insert(entry, capacity, self.options.order);
        self.counts.comparisons_of_changes += cost.comparisons;
        self.counts.passed_on += cost.passed_on;
        self.counts.inserted += 1;
        self.len += 1;
        if let Some(crcs) = &mut self.crcs {
            *crcs.entry(entry.digest.crc32()).or_insert(0) += 1;
        }
        if let Some(replaced) = replaced {
            self.counts.replaced += 1;
            self.gone(replaced.digest);
        }
        self.changed(at);
        match replaced {
            Some(replaced) => Inserted::Replaced(replaced),
            None => Inserted::Added,
        }
    }

    /// Changes location and reference of an entry that is there.
    ///
    /// # Panics
    /// If it is not.
    pub fn change(&mut self, digest: Digest, location: Location, reference: u8) {
        let at = self.segment(digest);
        let (found, compared) = self.segments[at].find(digest, &self.options);
        self.counts.comparisons_of_changes += compared.all;
        let Found::At(place) = found else { panic!("{digest:?} is not there to be changed") };
        let is_hotter = self.segments[at].change(place, location, reference);
        if is_hotter {
            self.changed(at);
        }
    }

    /// Removes an entry that is there.
    ///
    /// # Panics
    /// If it is not.
    pub fn remove(&mut self, digest: Digest) -> StoreEntry {
        let at = self.segment(digest);
        let (found, compared) = self.segments[at].find(digest, &self.options);
        self.counts.comparisons_of_changes += compared.all;
        let Found::At(place) = found else { panic!("{digest:?} is not there to be removed") };
        let (entry, bucket_is_gone) = self.segments[at].remove(place);
        self.buckets -= u32::from(bucket_is_gone);
        self.gone(digest);
        entry
    }

    /// Lists all entries, segment by segment.
    pub fn entries(&self) -> impl Iterator<Item = &StoreEntry> {
        self.segments.iter().flat_map(Segment::entries)
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let segments = self.segments.capacity() * size_of::<Segment>();
        let crcs = self.crcs.as_ref().map_or(0, HashMap::allocation_size);
        self.segments.iter().map(Segment::ram_bytes).sum::<u64>() + (segments + crcs) as u64
    }

    /// Checks each fingerprint's segment, the [`Order`] of buckets, and the counts.
    ///
    /// # Panics
    /// If one is wrong.
    pub fn check(&self) {
        let capacity = self.entries_per_bucket as usize;
        let (mut len, mut buckets) = (0, 0);
        for (at, segment) in self.segments.iter().enumerate() {
            segment.check(capacity, self.options.order);
            buckets += segment.buckets() as u32;
            for entry in segment.entries() {
                assert_eq!(self.segment(entry.digest), at, "{entry:?} is in its segment");
                if let Some(crcs) = &self.crcs {
                    assert!(crcs.contains_key(&entry.digest.crc32()), "{entry:?} has its CRC32 beside it");
                }
                len += 1;
            }
        }
        assert_eq!((len, buckets), (self.len, self.buckets), "entries and buckets");
        assert!(self.buckets <= self.options.buckets_max, "no more buckets than there are");
        if let Some(crcs) = &self.crcs {
            assert_eq!(crcs.values().sum::<u32>(), self.len, "a CRC32 for each entry");
        }
    }

    fn segment(&self, digest: Digest) -> usize {
        digest.modulo(self.options.segments) as usize
    }

    /// Counts an entry that has left.
    fn gone(&mut self, digest: Digest) {
        self.len -= 1;
        if let Some(crcs) = &mut self.crcs {
            let crc = digest.crc32();
            let left = crcs.get_mut(&crc).map(|entries| {
                *entries -= 1;
                *entries
            });
            assert!(left.is_some(), "{digest:?} had its CRC32 beside it");
            if left == Some(0) {
                crcs.remove(&crc);
            }
        }
    }

    /// Reorganises a segment with a new or a hotter entry, if it is time.
    fn changed(&mut self, at: usize) {
        if self.options.order != Order::Hotness {
            return;
        }
        if let Some(emptied) = self.segments[at].reorganise_by_hotness(self.entries_per_bucket as usize) {
            self.buckets -= emptied;
            self.counts.reorganised += 1;
        }
    }
}
