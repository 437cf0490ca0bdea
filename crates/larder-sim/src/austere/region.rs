//! The metadata region of a simulated AustereCache, in little RAM.
//!
//! A slot is 512 bytes on flash, and most have one address in them.
//!
//! The region is an arena of cells of 32 bytes. A slot in use has a cell with its fingerprint, the
//! length of its chunk and its oldest address. Behind that comes a chain of cells with three
//! addresses each, the oldest first. Slots are found by the FP-hash of their content, which is
//! unique. The table of the numbers of their cells is in shards that grow one after the other.
//!
//! Memory: only for slots in use. A slot with one address takes 32 bytes and 6 to 12 of the table;
//! each three addresses more, 32 bytes. Cells that are given back are used again. That is less than
//! 48 bytes for each content on flash if few addresses share one. `docs/LAB.md` has the figures for
//! long lists.
//!
//! Invariants: a slot comes back as it was written: fingerprint, length, and addresses in their
//! order.
//!
//! It does not count the cost of reads and writes of slots, or decide on their contents.

use hashbrown::HashTable;
use larder_core::{
    Fingerprint, Lba,
    austere::keys::{Key, KeySpace},
    region::{ListChange, RunMetadata},
    types::mix,
};

/// A cell. In a slot: half of the fingerprint, the other half, the oldest address, length and next
/// cell.
///
/// In a chain: addresses, and the next cell.
type Cell = [u64; 4];
/// Words of a cell.
const OLDEST: usize = 2;
const LINK: usize = 3;
/// Cells that are allocated together.
const CELLS_AT_ONCE: usize = 1024;
/// No cell.
const NONE: u32 = u32::MAX;
/// No address: larger than any.
const NO_LBA: u64 = u64::MAX;
/// Parts of the table. One that grows is there twice, so each is small.
const SHARDS: usize = 64;

/// Cells by number.
struct Arena {
    cells: Vec<Box<[Cell]>>,
    /// The first unused cell; each names the next.
    free: u32,
}

impl Arena {
    fn get(&self, i: u32) -> &Cell {
        &self.cells[i as usize / CELLS_AT_ONCE][i as usize % CELLS_AT_ONCE]
    }

    fn get_mut(&mut self, i: u32) -> &mut Cell {
        &mut self.cells[i as usize / CELLS_AT_ONCE][i as usize % CELLS_AT_ONCE]
    }

    /// Returns the cell that follows `i`.
    fn next(&self, i: u32) -> u32 {
        self.get(i)[LINK] as u32
    }

    fn take(&mut self) -> u32 {
        if self.free == NONE {
            let first = (self.cells.len() * CELLS_AT_ONCE) as u32;
            let mut more = vec![[0; 4]; CELLS_AT_ONCE].into_boxed_slice();
            for (cell, number) in more.iter_mut().zip(first + 1..) {
                cell[LINK] = u64::from(number);
            }
            if let Some(last) = more.last_mut() {
                last[LINK] = u64::from(NONE);
            }
            self.cells.push(more);
            self.free = first;
        }
        let i = self.free;
        self.free = self.next(i);
        i
    }

    /// Gives back `i` and all that follow it.
    fn give_back(&mut self, mut i: u32) {
        while i != NONE {
            let next = self.next(i);
            self.get_mut(i)[LINK] = u64::from(std::mem::replace(&mut self.free, i));
            i = next;
        }
    }

    fn fingerprint(&self, i: u32) -> Fingerprint {
        let [low, high, ..] = *self.get(i);
        Fingerprint((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
    }

    /// Returns `i` and the cells that follow it.
    fn from(&self, i: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |i: u32| (i != NONE).then_some(i);
        std::iter::successors(some(i), move |&at| some(self.next(at)))
    }

    /// Returns the addresses behind the oldest.
    fn chain(&self, i: u32) -> impl Iterator<Item = u64> + '_ {
        let cells = self.from(self.next(i)).map(|at| &self.get(at)[..LINK]);
        cells.flatten().copied().take_while(|&lba| lba != NO_LBA)
    }
}

/// See the module.
pub(super) struct Region {
    arena: Arena,
    table: Vec<HashTable<u32>>,
    contents: KeySpace,
}

impl Region {
    /// Makes an empty region. `contents` makes the FP-hashes.
    pub fn new(contents: KeySpace) -> Region {
        let arena = Arena { cells: Vec::new(), free: NONE };
        Region { arena, table: (0..SHARDS).map(|_| HashTable::new()).collect(), contents }
    }

    /// Returns the cell of the slot of the content with this FP-hash.
    #[inline]
    fn find(&self, key: Key) -> Option<u32> {
        let hash = hash_of(key);
        let is_it = |&i: &u32| self.contents.of_content(&self.arena.fingerprint(i)) == key;
        self.table[shard_of(hash)].find(hash, is_it).copied()
    }

    /// Reads the slot of the content with this FP-hash into `slot`. Returns false if there is none.
    #[inline]
    pub fn read(&self, key: Key, slot: &mut RunMetadata) -> bool {
        let Some(i) = self.find(key) else { return false };
        let cell = self.arena.get(i);
        slot.reset(self.arena.fingerprint(i), (cell[LINK] >> 32) as u32, Lba(cell[OLDEST]));
        self.arena.chain(i).for_each(|lba| slot.apply(Lba(lba), ListChange::Added));
        true
    }

    /// Writes `slot`, over that of a content with the same FP-hash if there is one.
    pub fn write(&mut self, slot: &RunMetadata) {
        let key = self.contents.of_content(slot.fingerprint());
        let (first, is_new) = match self.find(key) {
            Some(i) => {
                self.arena.give_back(self.arena.next(i));
                (i, false)
            }
            None => (self.arena.take(), true),
        };
        let mut lbas = slot.lbas().map(|lba| lba.0);
        let oldest = lbas.next().unwrap_or(NO_LBA);
        let number = u128::from_le_bytes(slot.fingerprint().0);
        let mut last = first;
        let mut cell = [number as u64, (number >> 64) as u64, oldest, u64::from(slot.stored_bytes()) << 32];
        while let Some(lba) = lbas.next() {
            let next = self.arena.take();
            cell[LINK] |= u64::from(next);
            *self.arena.get_mut(last) = cell;
            cell = [lba, lbas.next().unwrap_or(NO_LBA), lbas.next().unwrap_or(NO_LBA), 0];
            last = next;
        }
        cell[LINK] |= u64::from(NONE);
        *self.arena.get_mut(last) = cell;
        if is_new {
            let Region { arena, table, contents } = self;
            let hash_at = |&i: &u32| hash_of(contents.of_content(&arena.fingerprint(i)));
            table[shard_of(hash_of(key))].insert_unique(hash_of(key), first, hash_at);
        }
    }

    /// Frees the slot of the content with this FP-hash.
    pub fn remove(&mut self, key: Key) {
        let hash = hash_of(key);
        let Region { arena, table, contents } = self;
        let is_it = |&i: &u32| contents.of_content(&arena.fingerprint(i)) == key;
        if let Ok(found) = table[shard_of(hash)].find_entry(hash, is_it) {
            let (i, _) = found.remove();
            arena.give_back(i);
        }
    }

    /// Returns the allocated bytes.
    #[cfg(test)]
    fn ram_bytes(&self) -> usize {
        let cells = self.arena.cells.len() * CELLS_AT_ONCE * size_of::<Cell>();
        let table = self.table.capacity() * size_of::<HashTable<u32>>();
        cells + table + self.table.iter().map(HashTable::allocation_size).sum::<usize>()
    }
}

fn hash_of(key: Key) -> u64 {
    mix(key.0)
}

fn shard_of(hash: u64) -> usize {
    // Bits that the table inside the shard uses neither for the bucket (low) nor for the tag (top
    // seven).
    (hash >> 40) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn fingerprint(number: u64) -> Fingerprint {
        Fingerprint((u128::from(mix(number)) << 64 | u128::from(number)).to_le_bytes())
    }

    fn slot_of(number: u64, lbas: impl Iterator<Item = u64>) -> RunMetadata {
        let mut slot = RunMetadata::EMPTY;
        for (at, lba) in lbas.enumerate() {
            match at {
                0 => slot.reset(fingerprint(number), number as u32 % 5000, Lba(lba)),
                _ => slot.apply(Lba(lba), slot.change(Lba(lba), |_| false)),
            }
        }
        slot
    }

    fn same(a: &RunMetadata, b: &RunMetadata) -> bool {
        (a.fingerprint(), a.stored_bytes()) == (b.fingerprint(), b.stored_bytes()) && a.lbas().eq(b.lbas())
    }

    #[test]
    fn a_slot_comes_back_as_it_was_written() {
        // Few buckets and short prefixes: some contents have one FP-hash, and take each other's
        // slot.
        let contents = KeySpace::new(64, 3);
        let mut region = Region::new(contents);
        let mut model: HashMap<Key, RunMetadata> = HashMap::new();
        let mut read = RunMetadata::EMPTY;
        for step in 0..60_000u64 {
            let bits = mix(step);
            let (number, count) = (bits % 900, 1 + (bits >> 20) % 100);
            let key = contents.of_content(&fingerprint(number));
            if bits >> 40 & 3 == 0 {
                region.remove(key);
                model.remove(&key);
            } else {
                // More addresses than there is room for: a full list does not begin with its
                // oldest.
                let slot = slot_of(number, (0..count).map(|at| (bits >> 8 & 0xffff) + at));
                region.write(&slot);
                model.insert(key, slot);
            }
            let other = contents.of_content(&fingerprint(bits >> 30 & 511));
            assert_eq!(region.read(other, &mut read), model.contains_key(&other), "step {step}");
            assert!(model.get(&other).is_none_or(|slot| same(slot, &read)), "step {step}");
        }
        let cells: usize = model.values().map(|slot| 1 + (slot.lbas().count() - 1).div_ceil(3)).sum();
        let free = region.arena.from(region.arena.free).count();
        assert_eq!(free + cells, region.arena.cells.len() * CELLS_AT_ONCE, "no cell is lost");
    }

    #[test]
    fn contents_take_44_bytes_and_three_addresses_more_take_32() {
        for (contents, lbas) in [(1 << 18, 1), ((7 << 15) + 1, 1), (100_000, 4), (20_000, 60)] {
            let mut region = Region::new(KeySpace::new(1 << 12, 16));
            for number in 0..contents {
                region.write(&slot_of(number, (0..lbas).map(|at| number * lbas + at)));
            }
            // Two contents in 2^28 have one FP-hash.
            let cells = contents * (1 + (lbas - 1).div_ceil(3));
            let most = (cells * 32 + contents * 12) as usize + CELLS_AT_ONCE * size_of::<Cell>() + (4 << 10);
            let bytes = region.ram_bytes();
            println!("{contents} contents of {lbas} addresses: {:.1} bytes each", bytes as f64 / contents as f64);
            assert!(bytes <= most, "{contents} contents of {lbas} addresses: {bytes} bytes, not {most}");
        }
    }
}
