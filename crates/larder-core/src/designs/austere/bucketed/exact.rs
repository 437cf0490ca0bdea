//! Exact data of an AustereCache: dirty chunks, fragments and trimmed runs, with full addresses.
//!
//! The origin lacks them, so no hash may decide about them.
//!
//! Invariants: an address has a chunk or a fragment, or is in a trimmed run, or neither.
//! [`Exact::in_slot`] names exactly the addresses whose place is in the slot. All of it is dirty.
//!
//! It does not know clean chunks, and leaves the bound on its size to the writers, which ask for
//! room before.

use crate::{
    design::{DirtyCounts, ExportedMapping, Lookup},
    pages::{PageMap, key_bytes_max},
    ranges::{Run, RunMap},
    types::{Lba, Place, SectorMap, SlotId},
};
use std::collections::BTreeSet;

/// Number of pieces of an export, by address.
pub const PIECES: u64 = 64;

/// Maximum bytes of RAM for each chunk, without fragments and trimmed runs.
///
/// They are its place, and that in the list of its slot, a half-full B-tree.
pub const CHUNK_BYTES_MAX: usize = key_bytes_max(size_of::<Kept>()) + 2 * size_of::<(SlotId, Lba)>() + 8;

/// A dirty chunk or fragment.
#[derive(Clone, Copy, Default)]
struct Kept {
    seq: u64,
    slot: u32,
    generation: u32,
    offset: u32,
    stored_len: u32,
    crc: u32,
    encoding: u8,
    is_fragment: bool,
}

impl Kept {
    fn place(&self) -> Place {
        let Kept { slot, generation, offset, stored_len, crc, encoding, .. } = *self;
        Place { slot: SlotId(slot), generation, offset, stored_len, crc, encoding }
    }
}

/// See the module.
pub struct Exact {
    kept: PageMap<Kept>,
    fragments: PageMap<SectorMap>,
    trimmed: RunMap,
    by_slot: BTreeSet<(SlotId, Lba)>,
    chunk_count: u64,
}

impl Exact {
    /// Creates an empty set for a volume of so many chunks.
    pub fn new(chunk_count: u64) -> Exact {
        let (kept, fragments, trimmed) = (PageMap::default(), PageMap::default(), RunMap::default());
        Exact { kept, fragments, trimmed, by_slot: BTreeSet::new(), chunk_count }
    }

    /// Returns the mapping of `lba`; a miss if it has none.
    pub fn get(&self, lba: Lba) -> Lookup {
        match self.kept.get(lba.0) {
            Some(kept) if kept.is_fragment => {
                Lookup::Fragment { place: kept.place(), sectors: self.fragments.get(lba.0).unwrap_or_default() }
            }
            Some(kept) => Lookup::Chunk { place: kept.place(), duplicate: false },
            None if !self.trimmed.is_empty() && self.trimmed.get(lba).is_some() => Lookup::Zero,
            None => Lookup::Miss,
        }
    }

    /// Keeps `lba`: a chunk at `place`, or some sectors of one.
    pub fn put(&mut self, lba: Lba, place: &Place, sectors: Option<SectorMap>, seq: u64) {
        self.remove(lba);
        let Place { slot, generation, offset, stored_len, crc, encoding } = *place;
        let is_fragment = sectors.is_some();
        let kept = Kept { seq, slot: slot.0, generation, offset, stored_len, crc, encoding, is_fragment };
        self.kept.insert(lba.0, kept);
        if let Some(sectors) = sectors {
            self.fragments.insert(lba.0, sectors);
        }
        self.by_slot.insert((slot, lba));
    }

    /// Forgets `lba`; returns whether it was kept or trimmed.
    pub fn remove(&mut self, lba: Lba) -> bool {
        let is_trimmed = !self.trimmed.is_empty() && self.trimmed.remove(lba, 1) > 0;
        let Some(kept) = self.kept.remove(lba.0) else { return is_trimmed };
        if kept.is_fragment {
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
        self.trimmed.remove(first, count);
    }

    /// Makes a run read as zeroes.
    pub fn trim(&mut self, run: Run) {
        self.remove_run(run.first, run.count);
        self.trimmed.insert(run);
    }

    /// Returns the chunks and fragments in a run, ascending.
    pub fn kept_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        let end = first.0.saturating_add(count);
        self.kept.iter_from(first.0).map(|(lba, _)| Lba(lba)).take_while(|lba| lba.0 < end).collect()
    }

    /// Returns the sequence number of the dirty data of `lba`.
    pub fn seq(&self, lba: Lba) -> Option<u64> {
        self.kept.get(lba.0).map(|kept| kept.seq)
    }

    /// Returns up to `max` chunks and fragments from `from` on, with their sequence numbers.
    pub fn from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)> {
        self.kept.iter_from(from.0).take(max).map(|(lba, kept)| (Lba(lba), kept.seq)).collect()
    }

    /// Returns the trimmed runs.
    pub fn trimmed(&self) -> &RunMap {
        &self.trimmed
    }

    /// Forgets a run, because the origin has the trim.
    pub fn mark_run_clean(&mut self, run: &Run) {
        self.trimmed.remove_if_unchanged(run);
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

    /// Counts the dirty data.
    pub fn counts(&self) -> DirtyCounts {
        DirtyCounts {
            chunks: self.chunks(),
            fragments: self.fragments.len() as u64,
            runs: self.trimmed.len() as u64,
            run_chunks: self.trimmed.chunks(),
            advisory: self.trimmed.advisory(),
        }
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
        self.kept.ram_bytes()
            + self.fragments.ram_bytes()
            + self.trimmed.ram_bytes()
            + self.by_slot.len() * size_of::<(SlotId, Lba)>() * 3 / 2
    }
}
