//! The fingerprint index: from content to its place, limited, evicted in LRU order (Nitro §3.1).
//!
//! A slab holds entries of 40 bytes on a list by last use ([`recency`](crate::recency)), and hash
//! tables hold 4-byte slab numbers. The slab grows by segments and the tables are sharded. Callers
//! hold a lock, and growth of a single table would take seconds.
//!
//! Recovery adds entries by the hundred thousand. They enter slab and list at once, and wait in
//! their shard until its first use or a sweep. In their order of arrival each insertion into a
//! table would wait for memory. An opening need not wait for unused tables.
//!
//! Invariants: at most `entries_max` entries, waiting ones included. A shard's table is used only
//! while nothing waits in the shard. An entry may be dead because its slot was reused: the owner of
//! the slots checks the generation and removes it.
//!
//! It does not read flash to compare contents; 128 bits of a keyed BLAKE3 are the comparison.

mod export;

use crate::{
    lba_index::GENERATION_MASK,
    recency::{NONE, Neighbours, Nodes, Recency},
    sharded::SHARDS_MAX,
    types::{Fingerprint, Place, SlotId},
    walk::Walk,
};
use hashbrown::HashTable;

/// Entries of a segment of the slab, a power of two.
const SEGMENT_ENTRIES: usize = 1 << SEGMENT_SHIFT;
const SEGMENT_SHIFT: u32 = 12;
/// Entries of a shard in a small index.
const SHARD_ENTRIES: usize = 4096;

#[derive(Clone, Copy)]
struct FpEntry {
    fingerprint: [u8; 16],
    /// Offset (22 bits), stored length (18), generation modulo 2^24.
    packed: u64,
    slot: u32,
    crc: u32,
    newer: u32,
    /// Slab number. Its top 2 bits are unused; the encoding lives there.
    older: u32,
}

const ENCODING_SHIFT: u32 = 30;
const LINK_MASK: u32 = (1 << ENCODING_SHIFT) - 1;

impl FpEntry {
    fn older(&self) -> u32 {
        match self.older & LINK_MASK {
            LINK_MASK => NONE,
            link => link,
        }
    }
    fn set_older(&mut self, link: u32) {
        self.older = (self.older & !LINK_MASK) | (link & LINK_MASK);
    }
}

/// Entries by number, in segments that never move.
#[derive(Default)]
struct Slab {
    segments: Vec<Vec<FpEntry>>,
    len: usize,
}

impl Slab {
    #[inline]
    fn get(&self, i: u32) -> Option<&FpEntry> {
        self.segments.get((i >> SEGMENT_SHIFT) as usize)?.get(i as usize % SEGMENT_ENTRIES)
    }

    #[inline]
    fn get_mut(&mut self, i: u32) -> Option<&mut FpEntry> {
        self.segments.get_mut((i >> SEGMENT_SHIFT) as usize)?.get_mut(i as usize % SEGMENT_ENTRIES)
    }

    /// Appends `entry` to a slab of at most `entries_max` entries; returns its number.
    fn push(&mut self, entry: FpEntry, entries_max: usize) -> u32 {
        let i = self.len;
        if i.is_multiple_of(SEGMENT_ENTRIES) {
            self.segments.push(Vec::with_capacity(SEGMENT_ENTRIES.min(entries_max - i)));
        }
        self.segments[i >> SEGMENT_SHIFT].push(entry);
        self.len += 1;
        i as u32
    }

    fn ram_bytes(&self) -> usize {
        let full = self.segments.iter().rev().skip(1).len() * SEGMENT_ENTRIES;
        let last = self.segments.last().map_or(0, Vec::capacity);
        self.segments.capacity() * size_of::<Vec<FpEntry>>() + (full + last) * size_of::<FpEntry>()
    }
}

impl Nodes for Slab {
    #[inline]
    fn neighbours(&self, i: u32) -> Neighbours {
        let entry = &self[i];
        Neighbours { newer: entry.newer, older: entry.older() }
    }

    #[inline]
    fn set(&mut self, i: u32, to: Neighbours) {
        let entry = &mut self[i];
        entry.newer = to.newer;
        entry.set_older(to.older);
    }

    #[inline]
    fn set_newer(&mut self, i: u32, newer: u32) -> bool {
        self.get_mut(i).map(|entry| entry.newer = newer).is_some()
    }

    #[inline]
    fn set_older(&mut self, i: u32, older: u32) -> bool {
        self.get_mut(i).map(|entry| entry.set_older(older)).is_some()
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = FpEntry;
    #[inline]
    fn index(&self, i: u32) -> &FpEntry {
        &self.segments[(i >> SEGMENT_SHIFT) as usize][i as usize % SEGMENT_ENTRIES]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, i: u32) -> &mut FpEntry {
        &mut self.segments[(i >> SEGMENT_SHIFT) as usize][i as usize % SEGMENT_ENTRIES]
    }
}

/// A fingerprint's entry in the slab, stable while the entry lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpHandle(pub u32);

/// The index.
pub struct FpIndex {
    /// A power of two of shards; none without deduplication.
    shards: Vec<Shard>,
    len: usize,
    slab: Slab,
    /// First unused slab entry; `newer` links the unused ones.
    free: u32,
    by_use: Recency,
    entries_max: usize,
    evictions: u64,
    /// Entries that wait in all shards.
    waiting: usize,
    /// The shard of the next sweep.
    sweep_at: usize,
    /// A walk along the list, for a checkpoint.
    walk: Walk,
    /// True until the requested walk begins: nothing may wait then.
    walk_begins: bool,
}

/// Numbers of slab entries.
#[derive(Default)]
struct Shard {
    table: HashTable<u32>,
    /// Entries that are not in the table yet, in order of arrival. The last one of a fingerprint
    /// counts.
    waiting: Vec<u32>,
}

/// Returns the number by which a table finds a fingerprint.
pub(crate) fn hash_of(fingerprint: &[u8; 16]) -> u64 {
    // A fingerprint is a keyed hash already.
    let mut eight = [0; 8];
    eight.copy_from_slice(&fingerprint[..8]);
    u64::from_le_bytes(eight)
}

fn shard_count(entries_max: usize) -> usize {
    if entries_max == 0 { 0 } else { (entries_max / SHARD_ENTRIES).clamp(1, SHARDS_MAX).next_power_of_two() }
}

impl FpIndex {
    /// Returns the shard of `fingerprint`, from bytes that its hash does not use.
    #[inline]
    fn shard_of(&self, fingerprint: &[u8; 16]) -> usize {
        usize::from(u16::from_le_bytes([fingerprint[8], fingerprint[9]])) & self.shards.len().saturating_sub(1)
    }

    /// Creates an index of at most `entries_max` entries (0: no deduplication; at most 2^30 - 2).
    pub fn new(entries_max: usize) -> Self {
        FpIndex {
            shards: (0..shard_count(entries_max)).map(|_| Shard::default()).collect(),
            len: 0,
            slab: Slab::default(),
            free: NONE,
            by_use: Recency::default(),
            entries_max: entries_max.min(LINK_MASK as usize - 1),
            evictions: 0,
            waiting: 0,
            sweep_at: 0,
            walk: Walk::default(),
            walk_begins: false,
        }
    }

    /// Counts the entries, with dead ones and with waiting duplicates.
    pub fn len(&self) -> usize {
        self.len + self.waiting
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the limit.
    pub fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Counts the evictions from a full index.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Returns the bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        let shards = self.shards.iter();
        self.shards.capacity() * size_of::<Shard>()
            + shards
                .map(|shard| shard.table.allocation_size() + shard.waiting.capacity() * size_of::<u32>())
                .sum::<usize>()
            + self.slab.ram_bytes()
            + self.walk.ram_bytes()
    }

    /// Makes room for `entries` more waiting entries, spread over the shards.
    pub fn reserve(&mut self, entries: u64) {
        let each = (entries as usize).min(self.entries_max) / self.shards.len().max(1);
        // Half of the shards get more than the mean, few of them much more.
        let each = each + each.isqrt();
        self.shards.iter_mut().for_each(|shard| shard.waiting.reserve_exact(each));
    }

    fn find(&mut self, fingerprint: &Fingerprint) -> Option<u32> {
        let at = self.shard_of(&fingerprint.0);
        self.merge_shard(at);
        let slab = &self.slab;
        let found = self.shards.get(at)?.table.find(hash_of(&fingerprint.0), |&i| slab[i].fingerprint == fingerprint.0);
        found.copied()
    }

    /// Returns the place and handle of `fingerprint`, and makes it the most recent.
    ///
    /// `generation_of` gives a slot's current generation, or `None` if the slot takes no new
    /// references. An entry of another generation is removed.
    pub fn lookup(
        &mut self,
        fingerprint: &Fingerprint,
        generation_of: impl Fn(SlotId) -> Option<u32>,
    ) -> Option<(FpHandle, Place)> {
        let i = self.find(fingerprint)?;
        let entry = self.slab[i];
        let generation = generation_of(SlotId(entry.slot))?;
        if (entry.packed >> 40) as u32 != generation & GENERATION_MASK {
            self.remove_at(i);
            return None;
        }
        self.make_newest(i);
        Some((FpHandle(i), Self::place_of(&entry, generation)))
    }

    /// Returns as [`FpIndex::lookup`], but changes nothing.
    pub fn peek(&self, fingerprint: &Fingerprint, generation_of: impl Fn(SlotId) -> Option<u32>) -> Option<Place> {
        let shard = self.shards.get(self.shard_of(&fingerprint.0))?;
        let is_it = |i: &u32| self.slab[*i].fingerprint == fingerprint.0;
        let waiting = shard.waiting.iter().rev().find(|&i| is_it(i));
        let entry = &self.slab[*waiting.or_else(|| shard.table.find(hash_of(&fingerprint.0), is_it))?];
        let generation = generation_of(SlotId(entry.slot))?;
        let is_current = (entry.packed >> 40) as u32 == generation & GENERATION_MASK;
        is_current.then(|| Self::place_of(entry, generation))
    }

    fn place_of(entry: &FpEntry, generation: u32) -> Place {
        Place {
            slot: SlotId(entry.slot),
            generation,
            offset: (entry.packed & ((1 << 22) - 1)) as u32,
            stored_len: (entry.packed >> 22 & ((1 << 18) - 1)) as u32,
            crc: entry.crc,
            encoding: (entry.older >> ENCODING_SHIFT) as u8,
        }
    }

    /// Makes `fingerprint` known at `place`, as the most recent. A full index evicts the least
    /// recent.
    pub fn insert(&mut self, fingerprint: &Fingerprint, place: &Place) -> Option<FpHandle> {
        if self.entries_max == 0 {
            return None;
        }
        if let Some(i) = self.find(fingerprint) {
            self.remove_at(i);
        }
        // Settles only the shard of the least recent entry, which may make room. All shards would
        // block every caller.
        while self.len() >= self.entries_max {
            self.evictions += u64::from(self.remove_at(self.by_use.oldest()));
        }
        let i = self.add(fingerprint, place);
        let (shard, slab) = (self.shard_of(&fingerprint.0), &self.slab);
        self.shards[shard].table.insert_unique(hash_of(&fingerprint.0), i, |&i| hash_of(&slab[i].fingerprint));
        self.len += 1;
        Some(FpHandle(i))
    }

    /// Recovery: inserts as [`FpIndex::insert`], but the entry waits in its shard.
    pub fn insert_later(&mut self, fingerprint: &Fingerprint, place: &Place) -> Option<FpHandle> {
        if self.len() >= self.entries_max {
            // Waiting duplicates count twice; they must not evict an entry.
            self.merge_waiting();
            return self.insert(fingerprint, place);
        }
        let i = self.add(fingerprint, place);
        let shard = self.shard_of(&fingerprint.0);
        self.shards[shard].waiting.push(i);
        self.waiting += 1;
        Some(FpHandle(i))
    }

    /// Recovery: inserts as [`FpIndex::insert_later`]. If `fingerprint` is visibly known at `place`
    /// already, it becomes the most recent instead, and the answer is `None`.
    pub fn restore(&mut self, fingerprint: &Fingerprint, place: &Place) -> Option<FpHandle> {
        let is_merged = self.shards.get(self.shard_of(&fingerprint.0)).is_some_and(|shard| shard.waiting.is_empty());
        if is_merged && let Some(i) = self.find(fingerprint) {
            let entry = &self.slab[i];
            let is_here = (entry.packed >> 40) as u32 == place.generation & GENERATION_MASK
                && Self::place_of(entry, place.generation) == *place;
            if is_here {
                self.make_newest(i);
                return None;
            }
        }
        self.insert_later(fingerprint, place)
    }

    /// Moves all waiting entries into the tables.
    pub fn merge_waiting(&mut self) {
        if self.waiting > 0 {
            (0..self.shards.len()).for_each(|at| self.merge_shard(at));
        }
    }

    /// Moves the waiting entries of one shard into its table, the next shard with each call.
    pub fn merge_some(&mut self) {
        if self.waiting > 0 {
            self.merge_shard(self.sweep_at);
            self.sweep_at = (self.sweep_at + 1) % self.shards.len().max(1);
        }
    }

    #[inline]
    fn merge_shard(&mut self, at: usize) {
        if self.waiting > 0 && self.shards.get(at).is_some_and(|shard| !shard.waiting.is_empty()) {
            self.merge_waiting_of(at);
        }
    }

    #[cold]
    fn merge_waiting_of(&mut self, at: usize) {
        let Some(shard) = self.shards.get_mut(at) else { return };
        let (waiting, mut superseded) = (std::mem::take(&mut shard.waiting), Vec::new());
        let slab = &self.slab;
        let fingerprint = |i: u32| slab[i].fingerprint;
        let hash = |i: u32| hash_of(&fingerprint(i));
        shard.table.reserve(waiting.len(), |&i| hash(i));
        for &i in &waiting {
            match shard.table.find_mut(hash(i), |&known| fingerprint(known) == fingerprint(i)) {
                Some(known) => superseded.push(std::mem::replace(known, i)),
                None => {
                    shard.table.insert_unique(hash(i), i, |&i| hash(i));
                }
            }
        }
        self.waiting -= waiting.len();
        self.len += waiting.len() - superseded.len();
        for older in superseded {
            self.unlink(older);
            self.slab[older].newer = std::mem::replace(&mut self.free, older);
        }
    }

    /// Adds an entry to slab and list, as the most recent; returns its number. There must be room.
    fn add(&mut self, fingerprint: &Fingerprint, place: &Place) -> u32 {
        let packed = u64::from(place.offset)
            | u64::from(place.stored_len) << 22
            | u64::from(place.generation & GENERATION_MASK) << 40;
        let entry = FpEntry {
            fingerprint: fingerprint.0,
            packed,
            slot: place.slot.0,
            crc: place.crc,
            newer: NONE,
            older: LINK_MASK | u32::from(place.encoding) << ENCODING_SHIFT,
        };
        let i = self.free;
        let i = match self.slab.get_mut(i) {
            Some(unused) => {
                self.free = unused.newer;
                *unused = entry;
                i
            }
            None => self.slab.push(entry, self.entries_max),
        };
        self.walk.passes(i);
        self.by_use.link(&mut self.slab, i);
        i
    }

    /// Returns whether the entry of `handle` points into generation `generation` of `slot`. A
    /// removed entry may still match.
    pub fn leads_to(&self, handle: FpHandle, slot: SlotId, generation: u32) -> bool {
        let entry = self.slab.get(handle.0);
        entry.is_some_and(|it| it.slot == slot.0 && (it.packed >> 40) as u32 == generation & GENERATION_MASK)
    }

    /// Removes the entry of `handle` if it still points into generation `generation` of `slot`.
    pub fn remove_handle(&mut self, handle: FpHandle, slot: SlotId, generation: u32) {
        // A freed slab entry may still match, but `remove_at` leaves it alone because it is in no
        // table.
        if self.leads_to(handle, slot, generation) {
            self.remove_at(handle.0);
        }
    }

    /// Removes `fingerprint` if it is known.
    pub fn remove(&mut self, fingerprint: &Fingerprint) {
        if let Some(i) = self.find(fingerprint) {
            self.remove_at(i);
        }
    }

    /// Removes entry `i`. Returns false if it is in no table, or if a waiting newer entry replaces
    /// it.
    fn remove_at(&mut self, i: u32) -> bool {
        let fingerprint = self.slab[i].fingerprint;
        let shard = self.shard_of(&fingerprint);
        self.merge_shard(shard);
        if let Ok(found) = self.shards[shard].table.find_entry(hash_of(&fingerprint), |&other| other == i) {
            found.remove();
            self.len -= 1;
            self.unlink(i);
            self.slab[i].newer = std::mem::replace(&mut self.free, i);
            return true;
        }
        false
    }

    fn unlink(&mut self, i: u32) {
        let left = self.by_use.unlink(&mut self.slab, i);
        self.walk.unlinks(i, left.newer);
    }

    fn make_newest(&mut self, i: u32) {
        if self.by_use.newest() != i {
            self.unlink(i);
            self.by_use.link(&mut self.slab, i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::HashSet;

    fn fp(i: u32) -> Fingerprint {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&i.to_le_bytes());
        Fingerprint(bytes)
    }

    fn place(slot: u32, generation: u32) -> Place {
        Place { slot: SlotId(slot), generation, offset: 64, stored_len: 4096, crc: 1, encoding: 1 }
    }

    #[test]
    fn evicts_the_least_recent() {
        assert_eq!(size_of::<FpEntry>(), 40);
        let mut index = FpIndex::new(3);
        for i in 0..3 {
            index.insert(&fp(i), &place(i, 1));
        }
        assert_eq!(index.lookup(&fp(0), |_| Some(1)).map(|(_, p)| p), Some(place(0, 1)));
        index.insert(&fp(3), &place(3, 1));
        assert!(index.lookup(&fp(1), |_| Some(1)).is_none(), "1 was the least recent");
        let order: Vec<_> = index.iter_oldest_first().map(|(f, _)| f).collect();
        assert_eq!(order, [fp(2), fp(0), fp(3)]);
        assert_eq!(index.evictions(), 1);
    }

    #[test]
    fn stale_generations_are_removed_and_handles_are_checked() {
        let mut index = FpIndex::new(10);
        let handle = index.insert(&fp(1), &place(5, 7)).unwrap();
        index.remove_handle(handle, SlotId(5), 8);
        assert_eq!(index.len(), 1);
        assert!(index.lookup(&fp(1), |_| None).is_none(), "a slot that takes no references keeps its entry");
        assert_eq!(index.len(), 1);
        assert!(index.lookup(&fp(1), |_| Some(8)).is_none());
        assert_eq!(index.len(), 0);
        let handle = index.insert(&fp(2), &place(5, 8)).unwrap();
        index.remove_handle(handle, SlotId(5), 8);
        index.remove_handle(handle, SlotId(5), 8);
        assert!(index.is_empty());
    }

    #[test]
    fn what_waits_ends_as_if_it_had_not_waited() {
        for (entries_max, contents) in [(64, 40), (64, 64), (16, 60), (20_000, 300)] {
            let (mut plain, mut waiting) = (FpIndex::new(entries_max), FpIndex::new(entries_max));
            waiting.reserve(10);
            let mut state = 0x5eed_u64;
            for step in 0..4000_u32 {
                state = crate::types::mix(state);
                let (content, slot) = ((state % contents) as u32, (state >> 32) as u32 % 50);
                plain.insert(&fp(content), &place(slot, step));
                waiting.insert_later(&fp(content), &place(slot, step)).expect("deduplication is on");
                assert!(waiting.len() <= entries_max);
                match state % 97 {
                    0 => waiting.merge_waiting(),
                    1..9 => waiting.merge_some(),
                    _ => {}
                }
            }
            let all = |index: &FpIndex| index.iter_oldest_first().collect::<Vec<_>>();
            assert_eq!(all(&waiting), all(&plain), "{contents} contents in {entries_max} entries");
            waiting.merge_waiting();
            assert_eq!(all(&waiting), all(&plain), "in the tables");
            assert_eq!(waiting.len(), plain.len());
            for content in 0..contents as u32 {
                assert_eq!(waiting.find(&fp(content)).is_some(), plain.find(&fp(content)).is_some());
            }
        }
    }

    /// A walk tells each lasting fingerprint once, however the list changes between two pieces.
    #[test]
    fn a_walk_tells_each_fingerprint_once() {
        for (seed, steps) in [(1_u64, 30), (2, 300), (3, 2000)] {
            let mut index = FpIndex::new(12_000);
            let mut state = seed;
            // All entries wait, as after a crash, and some have duplicates.
            for step in 0..10_000 {
                state = crate::types::mix(state);
                index.insert_later(&fp((state % 8000) as u32), &place(step % 50, 1));
            }
            index.begin_walk();
            let whole: Vec<_> = index.iter_oldest_first().collect();
            let mut pieces = Vec::new();
            while let Some(piece) = index.walk() {
                pieces.extend(piece);
            }
            assert_eq!(pieces, whole, "at rest");
            let stays = |known: &Fingerprint| known.0[0].is_multiple_of(3);
            let mut told = HashSet::new();
            index.begin_walk();
            while let Some(piece) = index.walk() {
                for (known, _) in piece {
                    assert!(told.insert(known.0), "{known:?} is told twice");
                }
                for _ in 0..steps {
                    state = crate::types::mix(state);
                    let content = fp((state >> 8) as u32 % 9000);
                    match state % 4 {
                        // Removes also the fingerprint that the walk visits next.
                        0 => {
                            let next = index.walk.at().map(|i| Fingerprint(index.slab[i].fingerprint));
                            let gone = next.unwrap_or(content);
                            if !stays(&gone) {
                                index.remove(&gone);
                                index.insert(&gone, &place(7, 1));
                            }
                        }
                        1 if !stays(&content) => index.remove(&content),
                        2 if !stays(&content) => {
                            index.insert(&content, &place(8, 1));
                        }
                        _ => {
                            index.lookup(&content, |_| Some(1));
                        }
                    }
                }
            }
            let left_out = whole.iter().filter(|(known, _)| stays(known) && !told.contains(&known.0)).count();
            assert_eq!(left_out, 0, "of those that stayed, {steps} steps after each piece");
        }
    }

    #[test]
    fn a_full_index_takes_new_content_while_most_of_it_waits() {
        for (seed, entries_max) in [(1_u64, 16), (2, 500), (3, 20_000)] {
            let mut index = FpIndex::new(entries_max);
            let mut state = seed;
            for step in 0..entries_max as u32 {
                state = crate::types::mix(state);
                index.insert_later(&fp((state % (entries_max as u64 / 2)) as u32), &place(step % 50, step));
            }
            assert_eq!(index.len(), entries_max, "duplicates that wait count, too");
            for new in 0..entries_max as u32 / 2 {
                let content = 1_000_000 + new;
                index.insert(&fp(content), &place(new % 50, 1)).expect("deduplication is on");
                assert!(index.len() <= entries_max && index.find(&fp(content)).is_some());
            }
            let all: Vec<_> = index.iter_oldest_first().map(|(fingerprint, _)| fingerprint.0).collect();
            let distinct: HashSet<_> = all.iter().collect();
            assert_eq!(all.len(), distinct.len(), "each content once");
            index.merge_waiting();
            assert_eq!(all.len(), index.len());
        }
    }

    #[test]
    fn known_content_that_a_log_names_again_becomes_the_most_recent() {
        let mut index = FpIndex::new(10);
        for i in 0..3 {
            assert!(index.restore(&fp(i), &place(i, 1)).is_some());
        }
        assert!(index.restore(&fp(0), &place(0, 1)).is_some(), "nobody sees yet that it waits");
        index.merge_waiting();
        assert!(index.restore(&fp(0), &place(0, 1)).is_none(), "at this very place");
        assert!(index.restore(&fp(1), &place(1, 2)).is_some(), "at another");
        let order: Vec<_> = index.iter_oldest_first().map(|(fingerprint, _)| fingerprint).collect();
        assert_eq!(order, [fp(2), fp(0), fp(1)]);
        index.merge_waiting();
        assert_eq!(index.len(), 3);
    }

    #[test]
    fn off_means_empty() {
        let mut index = FpIndex::new(0);
        assert!(index.insert(&fp(1), &place(1, 1)).is_none());
        assert_eq!(index.ram_bytes(), 0);
    }
}
