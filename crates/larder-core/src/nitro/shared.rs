//! What nitro does for a design that keeps its mappings and WEUs here, and replaces them in an order of its own.
//!
//! Invariants: those of [`Design`](crate::design::Design).
//!
//! What it does not do: choose.

use super::Nitro;
use crate::{
    design::Victim,
    slots::SlotState,
    types::{Fingerprint, Lba, Place, SlotId},
};

impl Nitro {
    /// The least recently used sealed slot that `busy` does not name.
    pub(crate) fn oldest_but(&self, busy: impl FnMut(SlotId) -> bool) -> Option<SlotId> {
        self.slots.oldest_but(busy)
    }

    /// As [`Design::choose_victim`](crate::design::Design::choose_victim), of a sealed slot that was chosen already.
    pub(crate) fn take_victim(&mut self, slot: SlotId) -> Victim {
        self.slots.start_evicting(slot);
        let (_, _, _, dirty_refs) = self.slots.describe(slot);
        Victim { slot, dirty_refs }
    }

    /// State and generation of `slot`, if there is such a slot.
    #[inline]
    pub(crate) fn slot(&self, slot: SlotId) -> Option<(SlotState, u32)> {
        self.slots.generation(slot).map(|generation| (self.slots.state(slot), generation))
    }

    /// As [`Design::find_duplicate`](crate::design::Design::find_duplicate); does not count as a use.
    pub(crate) fn peek_duplicate(&self, fingerprint: &Fingerprint) -> Option<Place> {
        self.fingerprints.peek(fingerprint, |slot| self.slots.generation_for_new(slot))
    }

    /// Whether `lba` can be mapped without another entry for it.
    pub(crate) fn has_entry(&self, lba: Lba) -> bool {
        self.index.get(lba).is_some()
    }
}
