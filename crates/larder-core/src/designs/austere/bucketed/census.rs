//! Counts for a cache without counters: an entry of the LBA index outlives its content, without a
//! mark.
//!
//! Invariants: a count looks at no more than [`LOOKED_MAX`] entries, and as many dirty chunks,
//! however large the indices are. Up to that number it is exact. Beyond it, a sample of as many,
//! spread evenly, is scaled up. (If half of 8192 sampled entries name a run, the standard error is
//! 1.1% of the count.)
//!
//! It does not read metadata slots. If an evicted content came back, an older entry counts,
//! although the content's metadata slot does not list the address any more.

use super::{super::scaled, Bucketed, Key, SlotRun};
use crate::{
    design::{DesignStats, Lookup},
    types::{Lba, SlotId},
};

/// Sampled entries of the LBA index, and dirty chunks: some tenths of a millisecond for each.
const LOOKED_MAX: u64 = 1 << 13;
/// Parts of the volume for a sample of dirty chunks.
const PARTS: u64 = 64;

impl Bucketed {
    /// Returns all counts.
    pub(super) fn count_all(&self) -> DesignStats {
        let ram = self.indices.core.ram();
        // No call to the indices holds one of these locks.
        let lost_bytes = self.indices.lost.lock().ram_bytes();
        let due_bytes = self.indices.due.lock().ram_bytes();
        DesignStats {
            mapped_chunks: self.cached_chunks().max(self.exact.chunks()),
            fragments: self.exact.fragments(),
            lba_index_entries: self.indices.core.lba_entries(),
            fp_index_entries: self.indices.core.run_count(),
            lba_index_ram_bytes: (ram.lba_index_bytes + ram.sketch_bytes + lost_bytes) as u64,
            fp_index_ram_bytes: ram.fp_index_bytes as u64,
            slot_table_ram_bytes: (self.entries.ram_bytes() + self.ahead.ram_bytes() + due_bytes) as u64,
            dirty_ram_bytes: self.exact.ram_bytes() as u64,
            slots_free: self.indices.core.free_slots(),
            ..DesignStats::default()
        }
    }

    /// Counts the addresses that a lookup would find, as far as known without flash.
    pub(super) fn cached_chunks(&self) -> u64 {
        let is_there = |lba_key: Key, run: SlotRun| {
            !self.suspended.contains(&lba_key) && !self.retired.contains(&SlotId(run.first))
        };
        self.indices.core.mappings_where(LOOKED_MAX, is_there) + self.dirty_beside_the_index()
    }

    /// Counts the dirty chunks that the LBA index has lost; a lookup still finds them.
    fn dirty_beside_the_index(&self) -> u64 {
        let chunks = self.exact.chunks();
        let is_lost = |lba: Lba| match self.exact.get(lba) {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => {
                self.run_of(lba).is_none_or(|run| run.first != place.slot.0)
            }
            Lookup::Zero | Lookup::Miss => false,
        };
        let some = |from: u64, max: u64| self.exact.from(Lba(from), max as usize);
        if chunks <= LOOKED_MAX {
            return some(0, chunks).into_iter().filter(|&lba| is_lost(lba)).count() as u64;
        }
        let (mut looked, mut lost) = (0, 0);
        for part in 0..PARTS {
            for lba in some(self.exact.chunk_count() / PARTS * part, LOOKED_MAX / PARTS) {
                looked += 1;
                lost += u64::from(is_lost(lba));
            }
        }
        scaled(lost, chunks, looked)
    }
}
