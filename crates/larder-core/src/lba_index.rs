//! The LBA index: from a chunk's address to its place (Nitro §3.1, "file index").
//!
//! It has base and duplicate entries of 24 bytes in a hash table of shards. An entry has address
//! (40 bits) and flags, offset (22), length (18) and generation (24 bits of it), slot, CRC.
//!
//! Invariants: at most one entry per address. An entry is dead if its generation is not its slot's.
//! The owner of the slots decides that, and removes a dead entry on sight or in a sweep.
//! Generations are compared modulo 2^24, so a full sweep must happen at least once in 2^24 reuses
//! of a slot. The engine sweeps in the background all the time.
//!
//! It does not count references, and knows dirty state only as a flag.

pub use crate::sharded::SHARDS_USUAL;

use crate::{
    sharded::Sharded,
    types::{Lba, Place, SlotId, mix},
};

/// Entries of a table that a scan passes in the time of one search by address.
pub const GONE_THROUGH: u64 = 16;
/// Addresses that one look may search for singly, which takes a few milliseconds.
const ASKED_MAX: u64 = 1 << 16;
/// Mask of the generations, which are kept modulo 2^24.
pub const GENERATION_MASK: u32 = (1 << 24) - 1;

const LBA_BITS: u32 = 40;
const LBA_MASK: u64 = (1 << LBA_BITS) - 1;
const FLAG_ZERO: u64 = 1 << 40;
const FLAG_DUPLICATE: u64 = 1 << 41;
const FLAG_DIRTY: u64 = 1 << 42;
const FLAG_FRAGMENT: u64 = 1 << 43;
const ENCODING_SHIFT: u32 = 48;
/// Bits of the offset of a record in its slot.
pub const OFFSET_BITS: u32 = 22;
/// Bits of the length of a record as stored.
pub const LEN_BITS: u32 = 18;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A chunk of zeroes, without a place.
    Zero,
    /// A whole chunk. A base entry was stored for this address; a duplicate points at another
    /// address's record.
    Chunk {
        /// False for the base entry.
        duplicate: bool,
    },
    /// Some sectors of a chunk.
    Fragment,
}

/// One entry, 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaEntry {
    key_flags: u64,
    offset_len_generation: u64,
    slot: u32,
    crc: u32,
}

impl LbaEntry {
    /// Creates an entry for `lba`; `place` is ignored for [`EntryKind::Zero`].
    pub fn new(lba: Lba, kind: EntryKind, place: Option<&Place>, dirty: bool) -> Self {
        debug_assert!(lba.0 <= LBA_MASK);
        let mut key_flags = lba.0 & LBA_MASK;
        key_flags |= match kind {
            EntryKind::Zero => FLAG_ZERO,
            EntryKind::Chunk { duplicate: true } => FLAG_DUPLICATE,
            EntryKind::Chunk { duplicate: false } => 0,
            EntryKind::Fragment => FLAG_FRAGMENT,
        };
        if dirty {
            key_flags |= FLAG_DIRTY;
        }
        let Some(place) = place.filter(|_| kind != EntryKind::Zero) else {
            return LbaEntry { key_flags, offset_len_generation: 0, slot: 0, crc: 0 };
        };
        key_flags |= u64::from(place.encoding) << ENCODING_SHIFT;
        let packed = u64::from(place.offset)
            | u64::from(place.stored_len) << OFFSET_BITS
            | u64::from(place.generation & GENERATION_MASK) << (OFFSET_BITS + LEN_BITS);
        LbaEntry { key_flags, offset_len_generation: packed, slot: place.slot.0, crc: place.crc }
    }

    /// Returns the address.
    pub fn lba(&self) -> Lba {
        Lba(self.key_flags & LBA_MASK)
    }

    /// Returns the kind of the entry.
    pub fn kind(&self) -> EntryKind {
        if self.key_flags & FLAG_ZERO != 0 {
            EntryKind::Zero
        } else if self.key_flags & FLAG_FRAGMENT != 0 {
            EntryKind::Fragment
        } else {
            EntryKind::Chunk { duplicate: self.key_flags & FLAG_DUPLICATE != 0 }
        }
    }

    /// Returns whether the origin lacks this data.
    pub fn dirty(&self) -> bool {
        self.key_flags & FLAG_DIRTY != 0
    }

    /// Sets or clears the dirty flag.
    pub fn set_dirty(&mut self, dirty: bool) {
        if dirty { self.key_flags |= FLAG_DIRTY } else { self.key_flags &= !FLAG_DIRTY }
    }

    /// Returns the slot, and the generation modulo 2^24; `None` for zeroes.
    pub fn slot(&self) -> Option<(SlotId, u32)> {
        (self.key_flags & FLAG_ZERO == 0)
            .then_some((SlotId(self.slot), (self.offset_len_generation >> (OFFSET_BITS + LEN_BITS)) as u32))
    }

    /// Returns the place. `generation` is the slot's current one in full, which the entry was
    /// compared with.
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
    entries: Sharded<LbaEntry>,
}

fn hash_of(lba: Lba) -> u64 {
    mix(lba.0)
}

fn hash_of_entry(entry: &LbaEntry) -> u64 {
    hash_of(entry.lba())
}

impl LbaIndex {
    /// Creates an empty index for `entries_max` entries; it does not refuse more.
    pub fn new(entries_max: u64) -> Self {
        LbaIndex { entries: Sharded::new(entries_max) }
    }

    /// Counts the shards.
    pub fn shard_count(&self) -> usize {
        self.entries.shard_count()
    }

    /// Counts the entries, dead ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the index has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.entries.ram_bytes()
    }

    /// Makes room for `entries` more, spread over the shards. No shard gets more than it would by
    /// growing.
    pub fn reserve(&mut self, entries: u64) {
        self.entries.reserve(entries, hash_of_entry);
    }

    /// Returns the entry for `lba`.
    #[inline]
    pub fn get(&self, lba: Lba) -> Option<&LbaEntry> {
        self.entries.find(hash_of(lba), |entry| entry.lba() == lba)
    }

    /// Reads the memory of a search for `lba`, so that the next search finds it in the processor's
    /// caches.
    #[inline]
    pub fn touch(&self, lba: Lba) {
        std::hint::black_box(self.get(lba).is_some());
    }

    /// Returns the entry for `lba`, for a change of its flags.
    pub fn get_mut(&mut self, lba: Lba) -> Option<&mut LbaEntry> {
        self.entries.find_mut(hash_of(lba), |entry| entry.lba() == lba)
    }

    /// Inserts `entry`; returns the replaced entry of its address.
    pub fn insert(&mut self, entry: LbaEntry) -> Option<LbaEntry> {
        if let Some(old) = self.get_mut(entry.lba()) {
            return Some(std::mem::replace(old, entry));
        }
        self.entries.insert(hash_of_entry(&entry), entry, hash_of_entry);
        None
    }

    /// Returns the addresses in a run that have an entry, dead entries included, ascending.
    pub fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        let end = Lba(first.0.saturating_add(count));
        let passed = (self.len() + self.shard_count()) as u64;
        if count <= passed / GONE_THROUGH {
            return (first.0..end.0).map(Lba).filter(|&lba| self.get(lba).is_some()).collect();
        }
        let all = (0..self.shard_count()).flat_map(|shard| self.shard(shard).map(LbaEntry::lba));
        let mut inside: Vec<Lba> = all.filter(|lba| (first..end).contains(lba)).collect();
        inside.sort_unstable();
        inside
    }

    /// Returns how many of `count` chunks from `first` a short look takes.
    ///
    /// At most `entries_max` of them have an entry. The look searches for few addresses, or scans a
    /// small index.
    pub fn span(&self, first: Lba, count: u64, entries_max: usize) -> u64 {
        let count = if self.len() as u64 / GONE_THROUGH <= ASKED_MAX { count } else { count.min(ASKED_MAX) };
        self.in_run(first, count).get(entries_max).map_or(count, |lba| lba.0 - first.0)
    }

    /// Removes the entry for `lba`.
    pub fn remove(&mut self, lba: Lba) -> Option<LbaEntry> {
        self.entries.remove(hash_of(lba), |entry| entry.lba() == lba)
    }

    /// Removes entries of `shard` that `keep` refuses; returns how many.
    pub fn sweep_shard(&mut self, shard: usize, mut keep: impl FnMut(&LbaEntry) -> bool) -> usize {
        self.entries.sweep(shard, |entry| keep(entry), hash_of_entry)
    }

    /// Returns up to `max` chosen addresses of the shard whose turn it is.
    ///
    /// If there are fewer, it is the turn of the next shard.
    pub fn some_in_turn(&self, turn: &mut usize, max: usize, is_chosen: impl Fn(&LbaEntry) -> bool) -> Vec<Lba> {
        let chosen = self.shard(*turn).filter(|entry| is_chosen(entry)).map(LbaEntry::lba).take(max);
        let chosen: Vec<Lba> = chosen.collect();
        if chosen.len() < max {
            *turn = (*turn + 1) % self.shard_count();
        }
        chosen
    }

    /// Returns the entries of `shard`, in no useful order.
    pub fn shard(&self, shard: usize) -> impl Iterator<Item = &LbaEntry> {
        self.entries.shard(shard)
    }
}

/// Checks looks at runs of an index with an entry for each seventh address, a thousand in all.
#[cfg(test)]
pub(crate) fn runs_are_cut(in_run: impl Fn(Lba, u64) -> Vec<Lba>, span: impl Fn(Lba, u64, usize) -> u64) {
    // A look searches for the addresses of a short run, and scans for a long one.
    for count in [60, 7 * 1000, 1 << 40] {
        let end = (30 + count).min(7 * 1000);
        let expected: Vec<Lba> = (30..end).filter(|lba| lba % 7 == 0).map(Lba).collect();
        assert_eq!(in_run(Lba(30), count), expected, "{count}");
        assert_eq!(span(Lba(30), count, 3), 26, "{count}: 35, 42 and 49 come before 56");
        assert_eq!(span(Lba(30), count, 1000), count);
    }
    assert_eq!(span(Lba(7 * 1000), 5, 1), 5);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_24_bytes_and_keep_every_field() {
        assert_eq!(size_of::<LbaEntry>(), 24);
        let place = Place {
            slot: SlotId(u32::MAX),
            generation: 0x0012_3456,
            offset: (4 << 20) - 1,
            stored_len: 128 << 10,
            crc: 0xdead_beef,
            encoding: 2,
        };
        let lba = Lba(LBA_MASK);
        for kind in [EntryKind::Chunk { duplicate: true }, EntryKind::Chunk { duplicate: false }, EntryKind::Fragment] {
            let entry = LbaEntry::new(lba, kind, Some(&place), true);
            assert_eq!((entry.lba(), entry.kind(), entry.dirty()), (lba, kind, true));
            assert_eq!(entry.place(place.generation), place);
            assert_eq!(entry.slot(), Some((place.slot, place.generation)));
        }
        assert_eq!(LbaEntry::new(lba, EntryKind::Zero, Some(&place), false).slot(), None);
    }

    #[test]
    fn a_run_is_cut_where_it_has_many_entries() {
        let mut index = LbaIndex::new(0);
        (0..1000).for_each(|i| _ = index.insert(LbaEntry::new(Lba(i * 7), EntryKind::Zero, None, false)));
        runs_are_cut(|first, count| index.in_run(first, count), |first, count, max| index.span(first, count, max));
    }

    #[test]
    fn insert_replaces_and_sweep_removes() {
        let mut index = LbaIndex::new(10_000);
        for i in 0..10_000 {
            assert!(index.insert(LbaEntry::new(Lba(i), EntryKind::Zero, None, i % 2 == 0)).is_none());
        }
        assert!(index.insert(LbaEntry::new(Lba(7), EntryKind::Zero, None, true)).is_some());
        assert_eq!(index.len(), 10_000);
        let gone: usize = (0..index.shard_count()).map(|shard| index.sweep_shard(shard, |entry| entry.dirty())).sum();
        assert_eq!((gone, index.len()), (4999, 5001));
        assert!(index.remove(Lba(0)).is_some() && index.get(Lba(0)).is_none());
        assert!(index.ram_bytes() > 5000 * 24);
    }
}
