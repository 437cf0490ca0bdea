//! Exact places of an AustereCache: those of dirty chunks and fragments, with full addresses.
//!
//! The origin lacks them, so no hash may decide about them.
//!
//! Invariants: [`Exact::in_slot`] names exactly the addresses whose place is in the slot. All of it
//! is dirty.
//!
//! It does not know clean chunks, and leaves the bound on its size to the writers, which ask for
//! room before.

use crate::{
    design::{ExportedMapping, Lookup},
    lba_index::LEN_BITS,
    ledger::{DIRTY_BYTES_MAX, DIRTY_SHARE},
    pages::{PageMap, key_bytes_max},
    types::{Lba, Place, SectorMap, SlotId},
};
use std::collections::BTreeSet;

/// Number of pieces of an export, by address.
pub const PIECES: u64 = 64;

/// Maximum bytes of RAM for each chunk, without fragments and the share of the ledger. Other
/// designs have that share.
///
/// It decides the sizes of a new cache. Present places need less.
pub const CHUNK_BYTES_MAX: usize = 136;
/// A place, and that in the list of its slot, a half-full B-tree.
const PLACE_BYTES_MAX: usize = key_bytes_max(size_of::<ExactEntry>()) + 2 * size_of::<(SlotId, Lba)>() + 8;
// Each chunk is dirty here, not one in a share of the entries.
const _: () = assert!(PLACE_BYTES_MAX + DIRTY_BYTES_MAX - DIRTY_BYTES_MAX / DIRTY_SHARE <= CHUNK_BYTES_MAX);

const FRAGMENT: u32 = 1 << 31;

/// A dirty chunk or fragment.
#[derive(Clone, Copy, Default)]
struct ExactEntry {
    slot: u32,
    generation: u32,
    offset: u32,
    crc: u32,
    /// Stored length (18 bits), encoding (8), and the flag of a fragment.
    form: u32,
}

impl ExactEntry {
    fn new(place: &Place, is_fragment: bool) -> ExactEntry {
        let Place { slot, generation, offset, stored_len, crc, encoding } = *place;
        let flag = if is_fragment { FRAGMENT } else { 0 };
        let form = stored_len & ((1 << LEN_BITS) - 1) | u32::from(encoding) << LEN_BITS | flag;
        ExactEntry { slot: slot.0, generation, offset, crc, form }
    }

    fn is_fragment(&self) -> bool {
        self.form & FRAGMENT != 0
    }

    fn place(&self) -> Place {
        let ExactEntry { slot, generation, offset, crc, form } = *self;
        let (stored_len, encoding) = (form & ((1 << LEN_BITS) - 1), (form >> LEN_BITS) as u8);
        Place { slot: SlotId(slot), generation, offset, stored_len, crc, encoding }
    }
}

/// See the module.
pub struct Exact {
    kept: PageMap<ExactEntry>,
    fragments: PageMap<SectorMap>,
    by_slot: BTreeSet<(SlotId, Lba)>,
    chunk_count: u64,
}

impl Exact {
    /// Creates an empty set for a volume of so many chunks.
    pub fn new(chunk_count: u64) -> Exact {
        let (kept, fragments) = (PageMap::default(), PageMap::default());
        Exact { kept, fragments, by_slot: BTreeSet::new(), chunk_count }
    }

    /// Returns the mapping of `lba`; a miss if it has none.
    pub fn get(&self, lba: Lba) -> Lookup {
        match self.kept.get(lba.0) {
            Some(kept) if kept.is_fragment() => {
                Lookup::Fragment { place: kept.place(), sectors: self.fragments.get(lba.0).unwrap_or_default() }
            }
            Some(kept) => Lookup::Chunk { place: kept.place(), duplicate: false },
            None => Lookup::Miss,
        }
    }

    /// Keeps `lba`: a chunk at `place`, or some sectors of one.
    pub fn put(&mut self, lba: Lba, place: &Place, sectors: Option<SectorMap>) {
        self.remove(lba);
        self.kept.insert(lba.0, ExactEntry::new(place, sectors.is_some()));
        if let Some(sectors) = sectors {
            self.fragments.insert(lba.0, sectors);
        }
        self.by_slot.insert((place.slot, lba));
    }

    /// Returns whether `lba` is kept.
    pub fn has(&self, lba: Lba) -> bool {
        self.kept.get(lba.0).is_some()
    }

    /// Forgets `lba`; returns whether it was kept.
    pub fn remove(&mut self, lba: Lba) -> bool {
        let Some(kept) = self.kept.remove(lba.0) else { return false };
        if kept.is_fragment() {
            self.fragments.remove(lba.0);
        }
        self.by_slot.remove(&(SlotId(kept.slot), lba));
        true
    }

    /// Forgets a run of chunks.
    pub fn remove_run(&mut self, first: Lba, count: u64) {
        for lba in self.kept_in(first, count) {
            self.remove(lba);
        }
    }

    /// Returns the chunks and fragments in a run, ascending.
    pub fn kept_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        let end = first.0.saturating_add(count);
        self.kept.iter_from(first.0).map(|(lba, _)| Lba(lba)).take_while(|lba| lba.0 < end).collect()
    }

    /// Returns up to `max` chunks and fragments from `from` on.
    pub fn from(&self, from: Lba, max: usize) -> Vec<Lba> {
        self.kept.iter_from(from.0).take(max).map(|(lba, _)| Lba(lba)).collect()
    }

    /// Returns the addresses whose place is in `slot`.
    pub fn in_slot(&self, slot: SlotId) -> impl Iterator<Item = Lba> + '_ {
        self.by_slot.range((slot, Lba(0))..=(slot, Lba(u64::MAX))).map(|&(_, lba)| lba)
    }

    /// Returns the chunks of the volume.
    pub fn chunk_count(&self) -> u64 {
        self.chunk_count
    }

    /// Counts the kept chunks and fragments.
    pub fn chunks(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Counts the fragments.
    pub fn fragments(&self) -> u64 {
        self.fragments.len() as u64
    }

    /// Returns one of [`PIECES`] pieces, for a checkpoint.
    pub fn export(&self, piece: u64) -> Vec<ExportedMapping> {
        let width = self.chunk_count.div_ceil(PIECES).max(1);
        let end = if piece + 1 == PIECES { u64::MAX } else { (piece + 1) * width };
        let inside = self.kept.iter_from(piece * width).map(|(lba, _)| Lba(lba)).take_while(|lba| lba.0 < end);
        inside.map(|lba| ExportedMapping { lba, lookup: self.get(lba), dirty: true }).collect()
    }

    /// Returns the allocated bytes; those of the B-tree are estimated.
    pub fn ram_bytes(&self) -> usize {
        self.kept.ram_bytes() + self.fragments.ram_bytes() + self.by_slot.len() * size_of::<(SlotId, Lba)>() * 3 / 2
    }
}
