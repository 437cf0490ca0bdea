//! A segment of the fingerprint store: its buckets, and the search in them (CAFTL section 3.2.3).
//!
//! Role: [`Segment`] searches its buckets one after the other, or by binary search if fingerprints
//! ascend over all of them. Within a bucket it always searches by halves. It counts comparisons of
//! fingerprints: one for each probe, and one or two for a range check. A bucket by itself is
//! `bucket.rs`.
//!
//! Invariants: each bucket is sorted by fingerprint and not empty. Under [`Order::Fingerprint`] the
//! last entry of a bucket is below the first of the next. The paper brings that order about by
//! merge sorts now and then. Here each entry goes to its place at once. If its bucket is full, each
//! bucket on the way to the nearest with room passes one entry on. So lookups between two sorts
//! need no rule of their own.
//!
//! It leaves the limit of buckets to `store.rs`.

use super::{
    bucket::{Beyond, Bucket},
    digest::Digest,
    entry::{Order, StoreEntry, StoreOptions},
    location::Location,
};

/// The place of an entry: bucket, and place in it.
pub(super) type EntryPlace = (usize, usize);

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    At(EntryPlace),
    No,
}

/// The fingerprints that a search compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compared {
    /// All compared fingerprints.
    pub all: u64,
    /// Compared fingerprints that are the smallest or the largest of a bucket.
    pub ranges: u64,
}

impl Compared {
    fn range(&mut self, comparisons: u64) {
        self.ranges += comparisons;
        self.all += comparisons;
    }
}

/// The cost of an insertion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub comparisons: u64,
    pub passed_on: u64,
}

/// A segment; see the module.
#[derive(Debug, Default)]
pub(super) struct Segment {
    buckets: Vec<Bucket>,
    len: u32,
    /// The turn of the bucket that gives way next.
    turn: u32,
    /// Insertions and rises of references since it was reorganised.
    changes: u32,
}

impl Segment {
    /// Finds `digest`, and counts the fingerprints that it was compared with.
    pub fn find(&self, digest: Digest, options: &StoreOptions) -> (Found, Compared) {
        if options.order == Order::Fingerprint {
            return self.find_bucket_and_entry(digest);
        }
        let mut compared = Compared::default();
        for (at, bucket) in self.buckets.iter().enumerate() {
            if options.range_check {
                let (is_within, more) = bucket.in_range(digest);
                compared.range(more);
                if is_within.is_err() {
                    continue;
                }
            }
            let (place, more) = bucket.search(digest);
            compared.all += more;
            if let Ok(place) = place {
                return (Found::At((at, place)), compared);
            }
        }
        (Found::No, compared)
    }

    /// Searches buckets by halves: a range check of the middle bucket decides the direction.
    fn find_bucket_and_entry(&self, digest: Digest) -> (Found, Compared) {
        let mut compared = Compared::default();
        let (mut from, mut to) = (0, self.buckets.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            let (is_within, more) = self.buckets[middle].in_range(digest);
            compared.range(more);
            match is_within {
                Err(Beyond::Below) => to = middle,
                Err(Beyond::Above) => from = middle + 1,
                Ok(()) => {
                    let (place, more) = self.buckets[middle].search(digest);
                    compared.all += more;
                    return (place.map_or(Found::No, |place| Found::At((middle, place))), compared);
                }
            }
        }
        (Found::No, compared)
    }

    pub fn entry(&self, (bucket, place): EntryPlace) -> StoreEntry {
        self.buckets[bucket].entry(place)
    }

    pub fn has_room(&self, capacity: usize) -> bool {
        (self.len as usize) < self.buckets.len() * capacity
    }

    /// Adds a bucket for the entry that comes next.
    pub fn add_bucket(&mut self, capacity: usize) {
        self.buckets.push(Bucket::with_capacity(capacity));
    }

    /// Prefetches the bucket of `digest`.
    pub fn prefetch(&self, digest: Digest, options: &StoreOptions) {
        if options.order == Order::Fingerprint {
            let after = self.buckets.partition_point(|bucket| bucket.begins_below(digest));
            if let Some(bucket) = self.buckets.get(after.saturating_sub(1)) {
                bucket.prefetch(digest);
            }
        }
    }

    /// Prefetches the entries for a search of the coldest.
    pub fn prefetch_coldest(&self) {
        if let Some((bucket, first)) = self.next_to_give_way() {
            self.buckets[bucket].prefetch_coldest(first);
        }
    }

    /// Finds the bucket whose turn it is, and the place at which the search for its coldest begins.
    fn next_to_give_way(&self) -> Option<EntryPlace> {
        let turn = self.turn as usize;
        let bucket = turn.checked_rem(self.buckets.len())?;
        let first = (turn / self.buckets.len()).checked_rem(self.buckets[bucket].len())?;
        Some((bucket, first))
    }

    /// Takes the coldest entry out of the bucket whose turn it is.
    ///
    /// Equals go one after the other in turn, so that none stays for the value of its fingerprint.
    /// The result is `None` if there is no bucket or nothing in it, or all of it is hotter than
    /// `reference`.
    pub fn take_coldest(&mut self, reference: u8) -> Option<StoreEntry> {
        let (bucket, first) = self.next_to_give_way()?;
        let bucket = &mut self.buckets[bucket];
        let coldest = bucket.coldest(first)?;
        self.turn = self.turn.wrapping_add(1);
        if reference < bucket.entry(coldest).reference {
            return None;
        }
        self.len -= 1;
        bucket.remove(coldest)
    }

    /// Inserts an entry; there is room somewhere.
    pub fn insert(&mut self, entry: StoreEntry, capacity: usize, order: Order) -> Cost {
        self.len += 1;
        self.changes += 1;
        match order {
            Order::Fingerprint => self.insert_ascending(entry, capacity),
            Order::Allocated | Order::Hotness => {
                let at = self.buckets.iter().rposition(|bucket| bucket.len() < capacity);
                let Some(at) = at else { panic!("a bucket with room") };
                let (place, comparisons) = self.buckets[at].search(entry.digest);
                self.buckets[at].insert(vacant(place), entry);
                Cost { comparisons, passed_on: 0 }
            }
        }
    }

    fn insert_ascending(&mut self, entry: StoreEntry, capacity: usize) -> Cost {
        let mut comparisons = 0;
        // The last bucket that begins below the entry; an empty one, just added, is the last of
        // all.
        let begins_below = |bucket: &Bucket| {
            comparisons += 1;
            bucket.begins_below(entry.digest)
        };
        let mut target = self.buckets.partition_point(begins_below).saturating_sub(1);
        let has_room = |bucket: &Bucket| bucket.len() < capacity;
        let mut room = target;
        if !has_room(&self.buckets[target]) {
            let above = (target + 1..self.buckets.len()).find(|&at| has_room(&self.buckets[at]));
            let below = (0..target).rev().find(|&at| has_room(&self.buckets[at]));
            room = match (above, below) {
                (Some(above), Some(below)) => {
                    if above - target <= target - below {
                        above
                    } else {
                        below
                    }
                }
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => panic!("a bucket with room"),
            };
            comparisons += 1;
            if room > target && self.buckets[target].ends_below(entry.digest) {
                target += 1;
            }
        }
        if room != target {
            self.buckets[target.min(room)..=target.max(room)].iter().for_each(Bucket::prefetch_ends);
        }
        for at in (target..room).rev() {
            let [bucket, next] = &mut self.buckets[at..at + 2] else { panic!("a bucket and the next") };
            bucket.pass_up(next);
        }
        for at in room..target {
            let [before, bucket] = &mut self.buckets[at..at + 2] else { panic!("a bucket and the next") };
            bucket.pass_down(before);
        }
        let (place, more) = self.buckets[target].search(entry.digest);
        self.buckets[target].insert(vacant(place), entry);
        Cost { comparisons: comparisons + more, passed_on: room.abs_diff(target) as u64 }
    }

    /// Changes an entry; returns true if it is hotter then.
    pub fn change(&mut self, (bucket, place): EntryPlace, location: Location, reference: u8) -> bool {
        let is_hotter = self.buckets[bucket].change(place, location, reference);
        self.changes += u32::from(is_hotter);
        is_hotter
    }

    /// Removes an entry; returns true if its bucket went, too, because it was the last.
    pub fn remove(&mut self, (bucket, place): EntryPlace) -> (StoreEntry, bool) {
        let Some(entry) = self.buckets[bucket].remove(place) else { panic!("an entry at its place") };
        self.len -= 1;
        let is_empty = self.buckets[bucket].is_empty();
        if is_empty {
            self.buckets.remove(bucket);
        }
        (entry, is_empty)
    }

    /// Sorts entries over the buckets, the hottest first, if it is time.
    ///
    /// It is time when at least a bucket's entries and an eighth of the segment's have changed.
    /// Returns the number of emptied buckets, if it was time.
    pub fn reorganise_by_hotness(&mut self, capacity: usize) -> Option<u32> {
        if (self.changes as usize) < capacity.max(self.len as usize / 8) {
            return None;
        }
        self.changes = 0;
        let mut entries: Vec<StoreEntry> = self.entries().copied().collect();
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.reference), entry.digest));
        let before = self.buckets.len();
        self.buckets.truncate(entries.len().div_ceil(capacity));
        for (bucket, entries) in self.buckets.iter_mut().zip(entries.chunks_mut(capacity)) {
            entries.sort_by_key(|entry| entry.digest);
            bucket.refill(entries);
        }
        Some((before - self.buckets.len()) as u32)
    }

    pub fn entries(&self) -> impl Iterator<Item = &StoreEntry> {
        self.buckets.iter().flat_map(Bucket::iter)
    }

    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    pub fn ram_bytes(&self) -> u64 {
        let entries: usize = self.buckets.iter().map(Bucket::ram_bytes).sum();
        (entries + self.buckets.capacity() * size_of::<Bucket>()) as u64
    }

    pub fn check(&self, capacity: usize, order: Order) {
        let mut len = 0;
        for bucket in &self.buckets {
            bucket.check(capacity);
            len += bucket.len();
        }
        assert_eq!(len, self.len as usize, "the entries of a segment");
        if order == Order::Fingerprint {
            assert!(self.entries().is_sorted_by(|one, next| one.digest < next.digest), "a segment is sorted");
        }
    }
}

/// Returns the place for a digest that is not there.
fn vacant(place: Result<usize, usize>) -> usize {
    match place {
        Err(place) => place,
        Ok(_) => panic!("a fingerprint is inserted once"),
    }
}
