//! A bucket of the fingerprint store: a sorted run of entries (CAFTL section 3.2.3).
//!
//! Role: [`Bucket`] has a few entries by their fingerprints. It finds the place of an entry, the
//! place for a new one, and the entry with the fewest references. A drive searches a bucket by
//! halves, and the counts are those of that search. The search here begins at the place that the
//! fingerprint's value suggests, because fingerprints are as good as random; this touches less
//! memory. The comparisons of a search by halves follow from the place alone.
//!
//! Invariants: entries ascend by fingerprint. If there are entries, their smallest and largest
//! stand beside the bucket, so that a range check looks at no entry. No entry has fewer references
//! than `references_min`.
//!
//! It leaves the number of its entries to `segment.rs`.

use std::collections::{VecDeque, vec_deque};

use super::{digest::Digest, entry::StoreEntry, location::Location};
use crate::table;

/// A bucket; see the module.
#[derive(Debug)]
pub(super) struct Bucket {
    entries: VecDeque<StoreEntry>,
    smallest: Digest,
    largest: Digest,
    references_min: u8,
}

/// The side of a bucket on which a fingerprint outside its range lies.
pub(super) enum Beyond {
    Below,
    Above,
}

impl Bucket {
    /// Makes an empty bucket with room for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Self {
        Bucket {
            entries: VecDeque::with_capacity(capacity),
            smallest: Digest::default(),
            largest: Digest::default(),
            references_min: u8::MAX,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> vec_deque::Iter<'_, StoreEntry> {
        self.entries.iter()
    }

    pub fn entry(&self, place: usize) -> StoreEntry {
        self.entries[place]
    }

    /// Returns true if its smallest is below `digest`; false if it is empty.
    pub fn begins_below(&self, digest: Digest) -> bool {
        !self.is_empty() && self.smallest < digest
    }

    /// Returns true if its largest is below `digest`; false if it is empty.
    pub fn ends_below(&self, digest: Digest) -> bool {
        !self.is_empty() && self.largest < digest
    }

    /// Checks that `digest` is not below the smallest nor above the largest, and counts
    /// comparisons.
    pub fn in_range(&self, digest: Digest) -> (Result<(), Beyond>, u64) {
        if self.is_empty() || digest < self.smallest {
            return (Err(Beyond::Below), 1);
        }
        if digest > self.largest {
            return (Err(Beyond::Above), 2);
        }
        (Ok(()), 2)
    }

    /// Finds the place of `digest`, or the place for it, and counts comparisons.
    ///
    /// They are those of a search by halves, up to the one that meets it.
    pub fn search(&self, digest: Digest) -> (Result<usize, usize>, u64) {
        let mut place = digest.expected_place(self.smallest, self.largest, self.len());
        while place > 0 && self.entries[place - 1].digest >= digest {
            place -= 1;
        }
        while place < self.len() && self.entries[place].digest < digest {
            place += 1;
        }
        let is_there = self.entries.get(place).is_some_and(|entry| entry.digest == digest);
        let comparisons = comparisons_by_halves(self.len(), place, is_there);
        (if is_there { Ok(place) } else { Err(place) }, comparisons)
    }

    /// Prefetches the first and the last entry.
    pub fn prefetch_ends(&self) {
        self.entries.front().into_iter().chain(self.entries.back()).for_each(table::prefetch_entry);
    }

    /// Prefetches the entries for a search of `digest`.
    pub fn prefetch(&self, digest: Digest) {
        let place = digest.expected_place(self.smallest, self.largest, self.len());
        self.entries.get(place).into_iter().for_each(table::prefetch_entry);
    }

    /// Prefetches the entries for a search of the coldest, from `first` on.
    pub fn prefetch_coldest(&self, first: usize) {
        self.entries.get(first).into_iter().for_each(table::prefetch_entry);
    }

    /// Finds the entry of the fewest references, the first of equals from `first` on and around.
    pub fn coldest(&mut self, first: usize) -> Option<usize> {
        let mut coldest: Option<(u8, usize)> = None;
        for place in (first..self.len()).chain(0..first) {
            let reference = self.entries[place].reference;
            if coldest.is_none_or(|(fewest, _)| reference < fewest) {
                coldest = Some((reference, place));
                if reference == self.references_min {
                    break;
                }
            }
        }
        let (fewest, place) = coldest?;
        self.references_min = fewest;
        Some(place)
    }

    /// Inserts an entry at the place that a search has found.
    pub fn insert(&mut self, place: usize, entry: StoreEntry) {
        if place == 0 {
            self.smallest = entry.digest;
        }
        if place == self.len() {
            self.largest = entry.digest;
        }
        self.references_min = entry.reference.min(self.references_min);
        self.entries.insert(place, entry);
    }

    pub fn remove(&mut self, place: usize) -> Option<StoreEntry> {
        let entry = self.entries.remove(place);
        if place == 0 {
            self.begins_anew();
        }
        if place == self.len() {
            self.ends_anew();
        }
        entry
    }

    /// Moves the largest entry to the next bucket, of which it is the smallest.
    pub fn pass_up(&mut self, next: &mut Bucket) {
        if let Some(largest) = self.entries.pop_back() {
            self.ends_anew();
            next.insert(0, largest);
        }
    }

    /// Moves the smallest entry to the bucket before, of which it is the largest.
    pub fn pass_down(&mut self, before: &mut Bucket) {
        if let Some(smallest) = self.entries.pop_front() {
            self.begins_anew();
            before.insert(before.len(), smallest);
        }
    }

    /// Changes an entry; returns true if it is hotter then.
    pub fn change(&mut self, place: usize, location: Location, reference: u8) -> bool {
        let entry = &mut self.entries[place];
        let is_hotter = reference > entry.reference;
        entry.location = location;
        entry.reference = reference;
        self.references_min = reference.min(self.references_min);
        is_hotter
    }

    /// Replaces all entries by these, which ascend.
    pub fn refill(&mut self, entries: &[StoreEntry]) {
        self.entries.clear();
        self.entries.extend(entries);
        self.references_min = entries.iter().map(|entry| entry.reference).min().unwrap_or(u8::MAX);
        self.begins_anew();
        self.ends_anew();
    }

    /// Returns the bytes that its entries take.
    pub fn ram_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<StoreEntry>()
    }

    pub fn check(&self, capacity: usize) {
        assert!(!self.is_empty() && self.len() <= capacity, "a bucket of {} entries", self.len());
        assert!(self.iter().is_sorted_by(|one, next| one.digest < next.digest), "a bucket is sorted");
        let ends = self.entries.front().zip(self.entries.back()).map(|(first, last)| (first.digest, last.digest));
        assert_eq!(ends, Some((self.smallest, self.largest)), "the range of a bucket");
        assert!(self.iter().all(|entry| entry.reference >= self.references_min), "no entry is colder");
    }

    fn begins_anew(&mut self) {
        if let Some(first) = self.entries.front() {
            self.smallest = first.digest;
        }
    }

    fn ends_anew(&mut self) {
        if let Some(last) = self.entries.back() {
            self.largest = last.digest;
        }
    }
}

/// Counts the comparisons of a search by halves of `len` entries that ends at `place`.
fn comparisons_by_halves(len: usize, place: usize, is_there: bool) -> u64 {
    let (mut from, mut to, mut comparisons) = (0, len, 0);
    while from < to {
        let middle = usize::midpoint(from, to);
        comparisons += 1;
        if is_there && middle == place {
            break;
        }
        if middle < place {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    comparisons
}
