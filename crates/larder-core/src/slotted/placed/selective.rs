//! The refusals of a placed design, if it is selective.
//!
//! Invariants: an address whose chunk was refused is one that only the design knows. No record
//! outlives its slot, for a slot has one record, and the design chose it.
//!
//! It does not refuse chunks without a fingerprint.

use super::Placed;
use crate::design::{Selective, Wanted};

impl Selective for Placed {
    fn admits(&mut self, wanted: &Wanted) -> bool {
        let Some(fingerprint) = wanted.fingerprint else { return true };
        let is_admitted = self.design.admits(wanted.lba, &fingerprint, &mut self.decision);
        if !is_admitted {
            // The design has the new content of the address.
            self.suspended.remove(&wanted.lba);
            self.execute(None);
        }
        is_admitted
    }
}
