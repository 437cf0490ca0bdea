//! The answers of a [`Decider`] that need a selective design.
//!
//! Invariants: without a [selective](crate::design::Selective) part each chunk is admitted, and no
//! record survives its slot.
//!
//! It does not read the records.

use super::Decider;
#[cfg(doc)]
use crate::design::Selective;
use crate::{
    design::{Design, RecalledSlot, Survivor, Wanted},
    types::{Lba, Place, SlotId},
};

impl<D: Design + ?Sized> Decider<D> {
    /// Asks [`Selective::admits`]; yes without it.
    pub fn admits(&mut self, wanted: &Wanted) -> bool {
        self.design.selective_mut().is_none_or(|design| design.admits(wanted))
    }

    /// Asks [`Selective::is_transient`]; no without it.
    pub fn is_transient(&mut self, lba: Lba) -> bool {
        self.design.selective_mut().is_some_and(|design| design.is_transient(lba))
    }

    /// Asks [`Selective::retreat`], of runs that have no trimmed part; the same run without it.
    pub fn retreat(&mut self, first: Lba, count: u64) -> (Lba, u64) {
        let Decider { ledger, design, .. } = self;
        let may = |first, count| !ledger.is_trimmed_in(first, count);
        design.selective_mut().map_or((first, count), |design| design.retreat(first, count, &may))
    }

    /// Calls [`Selective::unshare`].
    pub fn unshare(&mut self, place: &Place) {
        if let Some(design) = self.design.selective_mut() {
            design.unshare(place);
        }
    }

    /// Calls [`Selective::persist_all`].
    pub fn persist_all(&mut self) {
        if let Some(design) = self.design.selective_mut() {
            design.persist_all();
        }
    }

    /// Asks [`Selective::survivors`]; none without it.
    pub fn survivors(&mut self, victim: SlotId) -> Vec<Survivor> {
        self.design.selective_mut().map_or_else(Vec::new, |design| design.survivors(victim))
    }

    /// Asks [`Selective::next_recalled`]; nothing without it.
    pub fn next_recalled(&mut self) -> Option<RecalledSlot> {
        self.design.selective_mut()?.next_recalled()
    }
}
