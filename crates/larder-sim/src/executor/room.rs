//! Room in the index, and the state of a cache at a moment.
//!
//! Invariants: mappings that the design has replaced go before data that it uses.
//!
//! It leaves the choice of slots to the design.

use super::Executor;
use crate::cache::CacheFigures;
use larder_core::{Decider, Lba, Lookup, SlotId};
use std::collections::{HashMap, HashSet};

impl Executor {
    /// Makes room in the index: replaced mappings go first, then stale entries, then slots.
    pub(super) fn make_room(&mut self) {
        if self.design.has_room(1) {
            return;
        }
        self.drop_replaced();
        self.sweep_while(|design| !design.has_room(1));
        while !self.design.has_room(1) && (self.evict_some(1) || self.close_all() || self.destage_first()) {
            self.sweep_while(|_| true);
            (0..self.design.export_pieces()).for_each(|_| self.drop_replaced());
        }
    }

    /// Removes stale entries, until none is left or it is enough.
    ///
    /// If none is stale, a search of the index for each new address would take longer than all
    /// else.
    fn sweep_while(&mut self, is_wanted: impl Fn(&Decider) -> bool) {
        if !is_wanted(&self.design) {
            return;
        }
        let stats = self.design.stats();
        let mut stale = stats.lba_index_entries - stats.mapped_chunks;
        for _ in 0..self.design.export_pieces() {
            if stale == 0 || !is_wanted(&self.design) {
                return;
            }
            stale = stale.saturating_sub(self.design.sweep() as u64);
        }
    }

    /// Drops replaced mappings, and logs that.
    pub(super) fn drop_replaced(&mut self) {
        self.pending += self.design.drop_clean_zeroes(false, usize::MAX).len() as u64;
    }
    /// Counts the state of the cache.
    pub(super) fn count_figures(&self) -> CacheFigures {
        let stats = self.design.stats();
        let (mut live, mut mapped): (HashMap<(SlotId, u32), u32>, HashSet<Lba>) = Default::default();
        for mapping in (0..self.design.export_pieces()).flat_map(|piece| self.design.export_mappings(piece)) {
            if let Lookup::Chunk { place, .. } = mapping.lookup {
                live.insert((place.slot, place.offset), place.stored_len);
                mapped.insert(mapping.lba);
            }
        }
        // A metadata region has the rest of a provisional design's mappings.
        for (slot, place, fingerprint, lbas) in self.region.iter().filter(|it| self.design.is_found_in(it.0, it.2)) {
            for lba in lbas.filter(|&lba| self.design.maps_to(lba, place, fingerprint)) {
                live.insert((slot, 0), place.stored_len);
                mapped.insert(lba);
            }
        }
        let is_provisional = self.design.provisional().is_some();
        let records: u64 = self.records.iter().map(|&records| u64::from(records)).sum();
        CacheFigures {
            index_ram_bytes: stats.ram_bytes(),
            mapped_chunks: if is_provisional { mapped.len() as u64 } else { stats.mapped_chunks },
            unstored_zero_chunks: stats.zero_chunks,
            live_chunks: live.len() as u64,
            stale_chunks: records - live.len() as u64,
            live_stored_bytes: live.values().map(|&bytes| u64::from(bytes)).sum(),
        }
    }
}
