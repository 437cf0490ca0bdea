//! The log entries for unmapped addresses, whose content a crash may bring back.
//!
//! CacheDedup has "the entire Metadata Cache" persistent (section 3.3), with contents of addresses
//! whose data has left. A change of such an address on the origin is logged first, durably, as for
//! a mapped one. [`Mapping::suspend`](crate::design::Mapping::suspend) and
//! [`Mapping::unmap`](crate::design::Mapping::unmap) say yes for it.
//!
//! A crash brings back the history of a checkpoint for addresses without a later log entry. The
//! design's present knowledge is not enough: it may have forgotten the address since, or its
//! content. Such an address is noted as lost until no checkpoint has it any more.
//!
//! Invariants: after a crash the content of an address is trusted only if each change of it since
//! was logged.
//!
//! It does not log.

use super::{Placed, made_up::is_believable};
use crate::types::Lba;

/// Maximum addresses of a run that are looked up one by one.
const ASKED_MAX: u64 = 1 << 12;

impl Placed {
    /// Returns whether a crash might bring back the present content of the unmapped `lba`.
    pub(super) fn outlives(&self, lba: Lba) -> bool {
        self.is_remembered(lba) || self.design.looks_at_content() && self.lost.has(lba.0)
    }

    /// Returns whether the design knows the content of `lba`.
    pub(super) fn is_remembered(&self, lba: Lba) -> bool {
        let content = self.design.content_of(lba).filter(|content| is_believable(lba, content));
        content.is_some() && !self.suspended.contains(&lba)
    }

    /// Returns whether that holds for any address of a run.
    pub(super) fn any_outlives(&self, first: Lba, count: u64) -> bool {
        // A long run may have lost addresses, and needs no exact answer.
        let is_lost = || {
            let mut lbas = first.0..first.0 + count;
            !self.lost.is_empty() && (count > ASKED_MAX || lbas.any(|lba| self.lost.has(lba)))
        };
        let is_remembered = || self.design.in_run(first, count).into_iter().any(|lba| self.is_remembered(lba));
        self.design.looks_at_content() && (is_lost() || is_remembered())
    }

    /// Notes that the design lost the content of `lba`.
    pub(super) fn note_lost(&mut self, lba: Lba) {
        if self.design.looks_at_content() {
            self.lost.add(lba.0);
        }
    }
}
