//! How many back pointers nitro keeps: those of replaced addresses and evicted fingerprints go when there are too many.
//!
//! Invariants: the address of each record that is mapped by it, and of each dirty mapping, stays remembered. Where the
//! indices are full, no more than twice as many pointers are kept as they have entries.
//!
//! What it does not do: use them; `forget` does.

use super::Nitro;
use crate::{lba_index::Entry, slots::SlotState, types::SlotId};

impl Nitro {
    /// Drops what leads nowhere from a slot's back pointers.
    pub(super) fn compact_back(&mut self, slot: SlotId) {
        let Nitro { index, fingerprints, slots, restoring, .. } = self;
        let Some(generation) = slots.generation(slot) else { return };
        let live = |lba| index.get(lba).and_then(Entry::slot).is_some_and(|(at, _)| at == slot);
        // What is restored is in order only when all of it is.
        slots.compact_back(slot, live, |handle| *restoring || fingerprints.leads_to(handle, slot, generation));
    }

    /// A slot whose records are replaced elsewhere may live long, and each of its own has a pointer. So all are looked at
    /// where the pointers have become twice as many as could lead anywhere.
    pub(super) fn bound_back_pointers(&mut self) {
        let useful_max = self.config.mappings_max.saturating_add(self.config.fp_entries_max);
        if self.slots.remembered_len() as u64 <= useful_max.saturating_mul(2) || self.restoring {
            return;
        }
        for slot in (0..self.slots.count()).map(SlotId) {
            if self.slots.state(slot) != SlotState::Free {
                self.compact_back(slot);
            }
        }
    }
}
