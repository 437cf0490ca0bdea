//! Nitro's services for a design that keeps its mappings and WEUs here, with its own replacement
//! order.
//!
//! Invariants: those of [`Design`](crate::design::Design).
//!
//! It does not choose.

use super::Nitro;
use crate::{
    design::Victim,
    lba_index::LbaEntry,
    slots::SlotState,
    types::{Fingerprint, Lba, Place, SlotId},
};

impl Nitro {
    /// Returns the least recently used sealed slot that `busy` does not name.
    pub(crate) fn oldest_but(&self, busy: impl FnMut(SlotId) -> bool) -> Option<SlotId> {
        self.slots.oldest_but(busy)
    }

    /// Takes a chosen sealed slot, as
    /// [`Slots::choose_victim`](crate::design::Slots::choose_victim).
    pub(crate) fn take_victim(&mut self, slot: SlotId) -> Victim {
        self.slots.start_evicting(slot);
        let (_, _, _, dirty_refs) = self.slots.describe(slot);
        Victim { slot, dirty_refs }
    }

    /// Returns as [`Slots::dirty_in`](crate::design::Slots::dirty_in).
    pub(super) fn dirty_chunks_in(&self, slot: SlotId) -> Vec<Lba> {
        let is_dirty_here = |entry: &LbaEntry| entry.dirty() && entry.slot().is_some_and(|(at, _)| at == slot);
        self.slots.dirty_in(slot, |lba| self.index.get(lba).is_some_and(is_dirty_here))
    }

    /// Returns state and generation of `slot`, if there is such a slot.
    #[inline]
    pub(crate) fn slot(&self, slot: SlotId) -> Option<(SlotState, u32)> {
        self.slots.generation(slot).map(|generation| (self.slots.state(slot), generation))
    }

    /// Returns as [`Mapping::find_duplicate`](crate::design::Mapping::find_duplicate), without a
    /// use.
    pub(crate) fn peek_duplicate(&self, fingerprint: &Fingerprint) -> Option<Place> {
        self.fingerprints.peek(fingerprint, |slot| self.slots.generation_for_new(slot))
    }

    /// Returns whether `lba` can be mapped without another entry.
    pub(crate) fn has_entry(&self, lba: Lba) -> bool {
        self.index.get(lba).is_some()
    }
}
