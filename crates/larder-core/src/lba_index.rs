//! The LBA index: from a chunk's address to its place (Nitro §3.1, "file index", with base and duplicate entries).
//!
//! Entries are 24 bytes in hash tables that are sharded, so that growing or sweeping one shard is short:
//! address (40 bits) and flags, offset (22), length (18) and generation (24 bits of it), slot, CRC.
//!
//! Invariants: at most one entry an address. An entry whose generation is not its slot's is dead; whoever owns
//! the slots decides that, and removes it on sight or in a sweep. Generations are compared modulo 2^24, so a
//! full sweep must happen at least once in 2^24 reuses of a slot: the engine sweeps in the background all the time.
//!
//! What it does not do: count references or know what is dirty beyond a flag.

use crate::types::{Lba, Place, SlotId, mix};
use hashbrown::HashTable;

/// Shards of an index, or more, where one of them could come to hold more than [`SHARD_ENTRIES`]. Powers of two.
pub const SHARDS_MIN: usize = 256;
const SHARDS_MAX: usize = 1 << 16;
/// Entries of a shard on average, at most: as many as are gone through, or moved to a larger table, in a few milliseconds.
const SHARD_ENTRIES: u64 = 1 << 15;
/// A look passes this many entries of a table in the time in which it finds one address.
pub const GONE_THROUGH: u64 = 16;
/// Addresses that one look may ask for, one by one: they take a few milliseconds.
const ASKED_MAX: u64 = 1 << 16;
/// Generations are kept modulo this.
pub const GENERATION_MASK: u32 = (1 << 24) - 1;

const LBA_BITS: u32 = 40;
const LBA_MASK: u64 = (1 << LBA_BITS) - 1;
const FLAG_ZERO: u64 = 1 << 40;
const FLAG_DUPLICATE: u64 = 1 << 41;
const FLAG_DIRTY: u64 = 1 << 42;
const FLAG_FRAGMENT: u64 = 1 << 43;
const ENCODING_SHIFT: u32 = 48;
const OFFSET_BITS: u32 = 22;
const LEN_BITS: u32 = 18;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A chunk of zeroes; it has no place.
    Zero,
    /// A whole chunk. A base entry was stored for this address, a duplicate points at another's record.
    Chunk {
        /// False for the base entry.
        duplicate: bool,
    },
    /// Some sectors of a chunk.
    Fragment,
}

/// One entry, 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    key_flags: u64,
    offset_len_generation: u64,
    slot: u32,
    crc: u32,
}

impl Entry {
    /// An entry for `lba`; `place` is ignored for [`Kind::Zero`].
    pub fn new(lba: Lba, kind: Kind, place: Option<&Place>, dirty: bool) -> Self {
        debug_assert!(lba.0 <= LBA_MASK);
        let mut key_flags = lba.0 & LBA_MASK;
        key_flags |= match kind {
            Kind::Zero => FLAG_ZERO,
            Kind::Chunk { duplicate: true } => FLAG_DUPLICATE,
            Kind::Chunk { duplicate: false } => 0,
            Kind::Fragment => FLAG_FRAGMENT,
        };
        if dirty {
            key_flags |= FLAG_DIRTY;
        }
        let Some(place) = place.filter(|_| kind != Kind::Zero) else {
            return Entry { key_flags, offset_len_generation: 0, slot: 0, crc: 0 };
        };
        key_flags |= u64::from(place.encoding) << ENCODING_SHIFT;
        let packed = u64::from(place.offset)
            | u64::from(place.stored_len) << OFFSET_BITS
            | u64::from(place.generation & GENERATION_MASK) << (OFFSET_BITS + LEN_BITS);
        Entry { key_flags, offset_len_generation: packed, slot: place.slot.0, crc: place.crc }
    }

    /// The address.
    pub fn lba(&self) -> Lba {
        Lba(self.key_flags & LBA_MASK)
    }

    /// What the entry says.
    pub fn kind(&self) -> Kind {
        if self.key_flags & FLAG_ZERO != 0 {
            Kind::Zero
        } else if self.key_flags & FLAG_FRAGMENT != 0 {
            Kind::Fragment
        } else {
            Kind::Chunk { duplicate: self.key_flags & FLAG_DUPLICATE != 0 }
        }
    }

    /// Whether the origin does not have this yet.
    pub fn dirty(&self) -> bool {
        self.key_flags & FLAG_DIRTY != 0
    }

    /// Sets or clears the dirty flag.
    pub fn set_dirty(&mut self, dirty: bool) {
        if dirty { self.key_flags |= FLAG_DIRTY } else { self.key_flags &= !FLAG_DIRTY }
    }

    /// The slot, and the generation modulo 2^24; `None` for zeroes.
    pub fn slot(&self) -> Option<(SlotId, u32)> {
        (self.key_flags & FLAG_ZERO == 0)
            .then_some((SlotId(self.slot), (self.offset_len_generation >> (OFFSET_BITS + LEN_BITS)) as u32))
    }

    /// The place, given the slot's current (full) generation, to which the entry's was compared before.
    pub fn place(&self, generation: u32) -> Place {
        Place {
            slot: SlotId(self.slot),
            generation,
            offset: (self.offset_len_generation & ((1 << OFFSET_BITS) - 1)) as u32,
            stored_len: (self.offset_len_generation >> OFFSET_BITS & ((1 << LEN_BITS) - 1)) as u32,
            crc: self.crc,
            encoding: (self.key_flags >> ENCODING_SHIFT) as u8,
        }
    }
}

/// The index.
pub struct LbaIndex {
    /// A power of two of them.
    shards: Vec<HashTable<Entry>>,
    len: usize,
    /// Bytes of all the tables, counted as they change: thousands of them are too many to ask whenever somebody wants a status.
    table_bytes: usize,
}

fn hash_of(lba: Lba) -> u64 {
    mix(lba.0)
}

impl LbaIndex {
    /// An empty index that is to hold so many entries at most; it does not refuse more.
    pub fn new(entries_max: u64) -> Self {
        let shards = (entries_max / SHARD_ENTRIES).clamp(SHARDS_MIN as u64, SHARDS_MAX as u64).next_power_of_two();
        LbaIndex { shards: (0..shards).map(|_| HashTable::new()).collect(), len: 0, table_bytes: 0 }
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        // Bits that the table inside the shard uses neither for the bucket (low) nor for the tag (top seven).
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    /// Number of shards.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Number of entries, dead ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.shards.capacity() * size_of::<HashTable<Entry>>() + self.table_bytes
    }

    /// Changes a table's size, and counts what that makes of its bytes.
    fn resize(table_bytes: &mut usize, table: &mut HashTable<Entry>, change: impl FnOnce(&mut HashTable<Entry>)) {
        *table_bytes -= table.allocation_size();
        change(table);
        *table_bytes += table.allocation_size();
    }

    /// Makes room for `entries` more, as they would spread over the shards: no shard gets more than it would by growing.
    pub fn reserve(&mut self, entries: u64) {
        let each = (entries / self.shards.len() as u64) as usize;
        if each == 0 {
            return;
        }
        for shard in &mut self.shards {
            Self::resize(&mut self.table_bytes, shard, |shard| shard.reserve(each, |entry| hash_of(entry.lba())));
        }
    }

    /// The entry for `lba`.
    #[inline]
    pub fn get(&self, lba: Lba) -> Option<&Entry> {
        let hash = hash_of(lba);
        self.shards[self.shard_of(hash)].find(hash, |entry| entry.lba() == lba)
    }

    /// Reads what a search for `lba` reads, so that the next one finds it in the processor's caches.
    #[inline]
    pub fn touch(&self, lba: Lba) {
        std::hint::black_box(self.get(lba).is_some());
    }

    /// The entry for `lba`, to change its flags.
    pub fn get_mut(&mut self, lba: Lba) -> Option<&mut Entry> {
        let hash = hash_of(lba);
        let at = self.shard_of(hash);
        self.shards[at].find_mut(hash, |entry| entry.lba() == lba)
    }

    /// Puts `entry` in, in place of what its address had before.
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let hash = hash_of(entry.lba());
        let at = self.shard_of(hash);
        let shard = &mut self.shards[at];
        match shard.find_mut(hash, |old| old.lba() == entry.lba()) {
            Some(old) => Some(std::mem::replace(old, entry)),
            None => {
                if shard.len() == shard.capacity() {
                    Self::resize(&mut self.table_bytes, shard, |shard| shard.reserve(1, |entry| hash_of(entry.lba())));
                }
                shard.insert_unique(hash, entry, |entry| hash_of(entry.lba()));
                self.len += 1;
                None
            }
        }
    }

    /// The addresses in a run that have an entry, dead entries included, ascending.
    pub fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        let end = Lba(first.0.saturating_add(count));
        if count <= self.len as u64 / GONE_THROUGH {
            return (first.0..end.0).map(Lba).filter(|&lba| self.get(lba).is_some()).collect();
        }
        let all = (0..self.shard_count()).flat_map(|shard| self.shard(shard).map(Entry::lba));
        let mut inside: Vec<Lba> = all.filter(|lba| (first..end).contains(lba)).collect();
        inside.sort_unstable();
        inside
    }

    /// The number of chunks, of `count` from `first`, that a short look takes: at most `entries_max` of them have an entry. The
    /// look asks for few addresses, or scans a small index.
    pub fn span(&self, first: Lba, count: u64, entries_max: usize) -> u64 {
        let count = if self.len as u64 / GONE_THROUGH <= ASKED_MAX { count } else { count.min(ASKED_MAX) };
        self.in_run(first, count).get(entries_max).map_or(count, |lba| lba.0 - first.0)
    }

    /// Takes the entry for `lba` out.
    pub fn remove(&mut self, lba: Lba) -> Option<Entry> {
        let hash = hash_of(lba);
        let at = self.shard_of(hash);
        match self.shards[at].find_entry(hash, |entry| entry.lba() == lba) {
            Ok(found) => {
                self.len -= 1;
                Some(found.remove().0)
            }
            Err(_) => None,
        }
    }

    /// Removes from shard `shard` what `keep` refuses; returns how many went.
    pub fn sweep_shard(&mut self, shard: usize, mut keep: impl FnMut(&Entry) -> bool) -> usize {
        let shards = self.shards.len();
        let table = &mut self.shards[shard % shards];
        let before = table.len();
        table.retain(|entry| keep(entry));
        let gone = before - table.len();
        self.len -= gone;
        // A table that shrank much gives its memory back.
        if table.len() < table.capacity() / 8 {
            let entries = table.len() * 2;
            Self::resize(&mut self.table_bytes, table, |table| table.shrink_to(entries, |entry| hash_of(entry.lba())));
        }
        gone
    }

    /// The entries of shard `shard`, in no useful order.
    pub fn shard(&self, shard: usize) -> impl Iterator<Item = &Entry> {
        let table = &self.shards[shard % self.shards.len()];
        // Whoever goes through all shards of a small index would wait for the memory of many tables with nothing in them.
        (!table.is_empty()).then(|| table.iter()).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_24_bytes_and_keep_every_field() {
        assert_eq!(size_of::<Entry>(), 24);
        let place = Place {
            slot: SlotId(u32::MAX),
            generation: 0x0012_3456,
            offset: (4 << 20) - 1,
            stored_len: 128 << 10,
            crc: 0xdead_beef,
            encoding: 2,
        };
        let lba = Lba(LBA_MASK);
        for kind in [Kind::Chunk { duplicate: true }, Kind::Chunk { duplicate: false }, Kind::Fragment] {
            let entry = Entry::new(lba, kind, Some(&place), true);
            assert_eq!((entry.lba(), entry.kind(), entry.dirty()), (lba, kind, true));
            assert_eq!(entry.place(place.generation), place);
            assert_eq!(entry.slot(), Some((place.slot, place.generation)));
        }
        assert_eq!(Entry::new(lba, Kind::Zero, Some(&place), false).slot(), None);
    }

    #[test]
    fn a_run_is_cut_where_it_has_many_entries() {
        let mut index = LbaIndex::new(0);
        (0..1000).for_each(|i| _ = index.insert(Entry::new(Lba(i * 7), Kind::Zero, None, false)));
        // A look goes by address over a short run, by entry over a long one.
        for count in [60, 7 * 1000, 1 << 40] {
            let end = (30 + count).min(7 * 1000);
            let expected: Vec<Lba> = (30..end).filter(|lba| lba % 7 == 0).map(Lba).collect();
            assert_eq!(index.in_run(Lba(30), count), expected, "{count}");
            assert_eq!(index.span(Lba(30), count, 3), 26, "{count}: 35, 42 and 49 come before 56");
            assert_eq!(index.span(Lba(30), count, 1000), count);
        }
        assert_eq!(index.span(Lba(7 * 1000), 5, 1), 5);
    }

    #[test]
    fn insert_replaces_and_sweep_removes() {
        let mut index = LbaIndex::new(0);
        let counts_its_bytes = |index: &LbaIndex| {
            let tables = index.shards.iter().map(|shard| shard.allocation_size()).sum::<usize>();
            assert_eq!(index.table_bytes, tables);
            tables
        };
        for i in 0..10_000 {
            assert!(index.insert(Entry::new(Lba(i), Kind::Zero, None, i % 2 == 0)).is_none());
        }
        assert!(index.insert(Entry::new(Lba(7), Kind::Zero, None, true)).is_some());
        assert_eq!(index.len(), 10_000);
        let grown = counts_its_bytes(&index);
        let gone: usize = (0..SHARDS_MIN).map(|shard| index.sweep_shard(shard, |entry| entry.dirty())).sum();
        assert_eq!((gone, index.len()), (4999, 5001));
        assert!(index.remove(Lba(0)).is_some() && index.get(Lba(0)).is_none());
        assert!(index.ram_bytes() > 5000 * 24);
        (0..SHARDS_MIN).for_each(|shard| _ = index.sweep_shard(shard, |entry| entry.lba().0 % 64 == 1));
        let shrunk = counts_its_bytes(&index);
        assert!(shrunk < grown / 4, "{shrunk} of {grown} bytes");
        index.reserve(20_000);
        assert!(counts_its_bytes(&index) > grown);
    }
}
