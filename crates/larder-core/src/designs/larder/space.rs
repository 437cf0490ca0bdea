//! The WEUs of [`Larder`].
//!
//! Invariants: those of [`Slots`].

use super::{
    Larder,
    addresses::{Address, AddressIndex, Kind},
    contents::Contents,
};
use crate::{
    design::{Mapping, Slots, Victim},
    slots::SlotState,
    types::{Lba, SlotId, StreamClass},
};

impl Slots for Larder {
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)> {
        self.slots.open(class)
    }

    fn seal_slot(&mut self, slot: SlotId) {
        self.slots.seal(slot);
        self.contents.seal(slot);
    }

    fn free_slots(&self) -> usize {
        self.slots.free_count()
    }

    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        let spared = std::mem::take(&mut self.spared);
        let found = self.least_valuable(&mut |slot| spared.contains(&slot) || busy(slot));
        let slot = match found {
            Some(slot) => {
                self.spared = spared;
                slot
            }
            // All others are gone, or busy.
            None => spared.into_iter().find(|&slot| self.slots.state(slot) == SlotState::Sealed && !busy(slot))?,
        };
        Some(self.take(slot))
    }

    fn spare_victim(&mut self, slot: SlotId) {
        self.slots.stop_evicting(slot);
        self.contents.keep_none_of(slot);
        self.spared.push(slot);
    }

    fn dirty_in(&self, slot: SlotId) -> Vec<Lba> {
        self.slots.dirty_in(slot, |lba| Self::is_dirty_in(&self.index, &self.contents, lba, slot))
    }

    fn evict(&mut self, slot: SlotId) -> Option<u32> {
        let (state, _, _, dirty_refs) = self.slots.describe(slot);
        if state != SlotState::Evicting || dirty_refs > 0 {
            return None;
        }
        self.settle_rent(slot);
        self.forget_fragments(slot);
        self.contents.empty(slot);
        let (ended, refs) = self.slots.retire(slot);
        self.live -= u64::from(refs);
        Some(ended)
    }

    fn release_slot(&mut self, slot: SlotId) {
        self.slots.release(slot);
    }

    fn drop_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba> {
        if !all && self.clean_zeroes <= self.config.mappings_max / 4 {
            return Vec::new();
        }
        let is_zero = |entry: &Address| entry.kind == Kind::Zero && !entry.is_dirty;
        let chosen = self.index.some_in_turn(&mut self.zero_hand, max, is_zero);
        chosen.iter().for_each(|&lba| _ = self.unmap(lba));
        chosen
    }
}

impl Larder {
    fn take(&mut self, slot: SlotId) -> Victim {
        self.slots.start_evicting(slot);
        let (_, _, _, dirty_refs) = self.slots.describe(slot);
        Victim { slot, dirty_refs }
    }

    /// Forgets the clean fragments in a slot, which no belief can have.
    pub(super) fn forget_fragments(&mut self, slot: SlotId) {
        if self.fragments.is_empty() {
            return;
        }
        let is_fragment = |owner: &Lba| self.index.get(*owner).is_some_and(|entry| entry.kind == Kind::Fragment);
        let owners = self.contents.in_slot(slot).filter_map(|(id, record)| Some((id, record.owner()?)));
        let owners: Vec<Lba> =
            owners.filter(|(id, owner)| self.names(*owner, *id)).map(|(_, owner)| owner).filter(is_fragment).collect();
        owners.into_iter().for_each(|owner| _ = self.unmap(owner));
    }

    /// Returns whether an address has a dirty mapping into a slot.
    fn is_dirty_in(index: &AddressIndex, contents: &Contents, lba: Lba, slot: SlotId) -> bool {
        let entry = index.get(lba).filter(|entry| entry.is_dirty);
        entry.and_then(|entry| contents.slot(entry.content()?)) == Some(slot)
    }

    /// Drops a slot's back pointers that lead to no dirty mapping.
    pub(super) fn compact_back(&mut self, slot: SlotId) {
        let Larder { index, contents, slots, .. } = self;
        slots.compact_back(slot, |lba| Self::is_dirty_in(index, contents, lba, slot), |_| false);
    }

    /// Compacts all slots if there are too many back pointers.
    pub(super) fn bound_back_pointers(&mut self) {
        if !self.restoring {
            self.slots.crowded(self.config.mappings_max).into_iter().for_each(|slot| self.compact_back(slot));
        }
    }
}
