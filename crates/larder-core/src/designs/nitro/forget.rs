//! The end of a slot's generation, by its back pointers, and the choice of zeroes to drop.
//!
//! Invariants: nothing dirty is left behind. Clean duplicates are, and are stale from then on.
//!
//! It leaves the next generation to the slot table.

use super::Nitro;
use crate::{
    lba_index::{EntryKind, GENERATION_MASK, LbaEntry},
    slots::{Generations, SlotTable},
    types::{Lba, SlotId},
};

impl Nitro {
    /// Returns how many clean zero entries may stay before sweeps drop them.
    pub(super) fn clean_zeroes_max(&self) -> u64 {
        self.config.mappings_max / 4
    }

    /// Returns clean zeroes of one shard to drop. See
    /// [`Slots::drop_clean_zeroes`](crate::design::Slots::drop_clean_zeroes).
    pub(super) fn some_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba> {
        if !all && self.clean_zeroes <= self.clean_zeroes_max() {
            return Vec::new();
        }
        let is_chosen = |entry: &LbaEntry| entry.kind() == EntryKind::Zero && !entry.dirty();
        self.index.some_in_turn(&mut self.zero_sweep_at, max, is_chosen)
    }

    /// Removes the targets of the slot's back pointers: base entries, dirty duplicates and
    /// fingerprints. `ended` hears of each dirty one.
    pub(super) fn forget_remembered(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba)) {
        let here = (slot, generation & GENERATION_MASK);
        let back: Vec<_> = self.slots.remembered(slot).collect();
        for (lba, handle) in back {
            if self.index.get(lba).and_then(LbaEntry::slot) == Some(here)
                && let Some(entry) = self.index.remove(lba)
            {
                self.forget(&entry);
                if entry.dirty() {
                    ended(lba);
                }
            }
            if let Some(handle) = handle {
                self.fingerprints.remove_handle(handle, slot, generation);
            }
        }
    }
}

impl Generations for Nitro {
    fn slots_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }

    fn end_generation(&mut self, slot: SlotId, ended: &mut dyn FnMut(Lba)) {
        // Dirty mappings are always remembered, so none needs a search.
        let (_, generation, _, _) = self.slots.describe(slot);
        self.forget_remembered(slot, generation, ended);
        let (_, _, dead_refs, _) = self.slots.describe(slot);
        self.live -= u64::from(dead_refs);
    }
}
