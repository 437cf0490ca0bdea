//! The bound on nitro's back pointers: surplus ones of replaced addresses and evicted fingerprints
//! go.
//!
//! Invariants: the address of each record that it maps, and of each dirty mapping, stays
//! remembered. With full indices, at most twice as many pointers are kept as the indices have
//! entries.
//!
//! It leaves their use to `forget`.

use super::Nitro;
use crate::{lba_index::LbaEntry, types::SlotId};

impl Nitro {
    /// Drops a slot's back pointers that lead nowhere.
    pub(super) fn compact_back(&mut self, slot: SlotId) {
        let Nitro { index, fingerprints, slots, restoring, .. } = self;
        let Some(generation) = slots.generation(slot) else { return };
        let live = |lba| index.get(lba).and_then(LbaEntry::slot).is_some_and(|(at, _)| at == slot);
        // Restored fingerprints are in order only at the end.
        slots.compact_back(slot, live, |handle| *restoring || fingerprints.leads_to(handle, slot, generation));
    }

    /// Compacts all slots if there are too many pointers.
    pub(super) fn bound_back_pointers(&mut self) {
        if self.restoring {
            return;
        }
        let useful_max = self.config.mappings_max.saturating_add(self.config.fp_entries_max);
        self.slots.crowded(useful_max).into_iter().for_each(|slot| self.compact_back(slot));
    }
}
