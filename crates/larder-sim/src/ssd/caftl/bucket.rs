//! A bucket of the fingerprint store: a sorted run of entries (CAFTL section 3.2.3).
//!
//! Role: [`Bucket`] has a few entries by their fingerprints, and says where one is, would be, or has the fewest
//! references. A drive searches it by halves, and so many comparisons are told. Here a fingerprint is looked for where
//! its value lets expect it, for they are as good as random, which touches less memory. A search by halves compares as
//! often as the place alone says, so that it need not be made to be counted.
//!
//! Invariants: entries ascend by fingerprint. Smallest and largest are those of the entries, where there are any, beside
//! the bucket, so that a range check looks at no entry. No entry has fewer references than `references_min`.
//!
//! What it does not do: know how many entries it may have (`segment.rs`).

use std::collections::{VecDeque, vec_deque};

use super::{digest::Digest, maps::Location, store::Entry};
use crate::ssd::table;

/// See the module.
#[derive(Debug)]
pub(super) struct Bucket {
    entries: VecDeque<Entry>,
    smallest: Digest,
    largest: Digest,
    references_min: u8,
}

/// Where a fingerprint is to a bucket that cannot have it.
pub(super) enum Beyond {
    Below,
    Above,
}

impl Bucket {
    /// Empty, with room for so many.
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

    pub fn iter(&self) -> vec_deque::Iter<'_, Entry> {
        self.entries.iter()
    }

    pub fn entry(&self, place: usize) -> Entry {
        self.entries[place]
    }

    /// Whether its smallest is below `digest`; nothing is where it is empty.
    pub fn begins_below(&self, digest: Digest) -> bool {
        !self.is_empty() && self.smallest < digest
    }

    /// Whether its largest is below `digest`; nothing is where it is empty.
    pub fn ends_below(&self, digest: Digest) -> bool {
        !self.is_empty() && self.largest < digest
    }

    /// Whether `digest` is not below the smallest nor above the largest, and in how many comparisons that was known.
    pub fn in_range(&self, digest: Digest) -> (Result<(), Beyond>, u64) {
        if self.is_empty() || digest < self.smallest {
            return (Err(Beyond::Below), 1);
        }
        if digest > self.largest {
            return (Err(Beyond::Above), 2);
        }
        (Ok(()), 2)
    }

    /// Where `digest` is, or would be, and with how many a search by halves compares it until it is met.
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

    /// Its first and its last will be looked at soon.
    pub fn prefetch_ends(&self) {
        self.entries.front().into_iter().chain(self.entries.back()).for_each(table::prefetch_entry);
    }

    /// `digest` will be searched for soon.
    pub fn prefetch(&self, digest: Digest) {
        let place = digest.expected_place(self.smallest, self.largest, self.len());
        self.entries.get(place).into_iter().for_each(table::prefetch_entry);
    }

    /// The coldest will be looked for soon, from `first` on.
    pub fn prefetch_coldest(&self, first: usize) {
        self.entries.get(first).into_iter().for_each(table::prefetch_entry);
    }

    /// The entry of the fewest references, the first of equals from `first` on and around.
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

    /// Inserts an entry at the place that a search has told.
    pub fn insert(&mut self, place: usize, entry: Entry) {
        if place == 0 {
            self.smallest = entry.digest;
        }
        if place == self.len() {
            self.largest = entry.digest;
        }
        self.references_min = entry.reference.min(self.references_min);
        self.entries.insert(place, entry);
    }

    pub fn remove(&mut self, place: usize) -> Option<Entry> {
        let entry = self.entries.remove(place);
        if place == 0 {
            self.begins_anew();
        }
        if place == self.len() {
            self.ends_anew();
        }
        entry
    }

    /// The largest goes to the next bucket, of which it is the smallest.
    pub fn pass_up(&mut self, next: &mut Bucket) {
        if let Some(largest) = self.entries.pop_back() {
            self.ends_anew();
            next.insert(0, largest);
        }
    }

    /// The smallest goes to the bucket before, of which it is the largest.
    pub fn pass_down(&mut self, before: &mut Bucket) {
        if let Some(smallest) = self.entries.pop_front() {
            self.begins_anew();
            before.insert(before.len(), smallest);
        }
    }

    /// Changes an entry. Whether it is hotter then.
    pub fn change(&mut self, place: usize, location: Location, reference: u8) -> bool {
        let entry = &mut self.entries[place];
        let is_hotter = reference > entry.reference;
        entry.location = location;
        entry.reference = reference;
        self.references_min = reference.min(self.references_min);
        is_hotter
    }

    /// Has these entries alone, which ascend.
    pub fn refill(&mut self, entries: &[Entry]) {
        self.entries.clear();
        self.entries.extend(entries);
        self.references_min = entries.iter().map(|entry| entry.reference).min().unwrap_or(u8::MAX);
        self.begins_anew();
        self.ends_anew();
    }

    /// Bytes that its entries take.
    pub fn ram_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
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

/// Where a search by halves of `len` compares until it knows that something is at `place`, or would be: how often.
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
