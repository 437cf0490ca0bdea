//! The state of a cache at a moment, in figures.
//!
//! Invariants: it changes nothing. A record counts once, however many addresses have it.
//!
//! It takes memory for each mapping while it counts.

use super::Executor;
use crate::cache::CacheFigures;
use larder_core::{Lba, Lookup, SlotId};
use std::collections::{HashMap, HashSet};

impl Executor {
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
