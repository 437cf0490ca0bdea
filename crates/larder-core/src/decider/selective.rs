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
    design::{Design, Survivor, Wanted},
    types::SlotId,
};

impl<D: Design + ?Sized> Decider<D> {
    /// Asks [`Selective::admits`]; yes without it.
    pub fn admits(&mut self, wanted: &Wanted) -> bool {
        self.design.selective_mut().is_none_or(|design| design.admits(wanted))
    }

    /// Asks [`Selective::survivors`]; none without it.
    pub fn survivors(&mut self, victim: SlotId) -> Vec<Survivor> {
        self.design.selective_mut().map_or_else(Vec::new, |design| design.survivors(victim))
    }
}
