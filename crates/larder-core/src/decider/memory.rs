//! The answers of a [`Decider`] that need the memory of its design.
//!
//! Invariants: a design without a [memory](crate::design::Memory) remembers nothing. A trimmed
//! address is no ghost: it reads as zeroes.
//!
//! It does not write the pages.

use super::Decider;
#[cfg(doc)]
use crate::design::{Memory, Provisional};
use crate::{
    design::{Design, Ghost},
    history::{Draft, Trust},
    types::{Fingerprint, Lba},
};

impl<D: Design + ?Sized> Decider<D> {
    /// Returns the stored content of an unmapped `lba`, as [`Ghost::Stored`] says.
    pub fn remembered(&self, lba: Lba) -> Option<Fingerprint> {
        match self.ghost(lba) {
            Some(Ghost::Stored(fingerprint)) => Some(fingerprint),
            _ => None,
        }
    }

    /// Returns whether `lba` is a [bare ghost](Ghost::Bare).
    pub fn is_ghost(&self, lba: Lba) -> bool {
        self.ghost(lba) == Some(Ghost::Bare)
    }

    fn ghost(&self, lba: Lba) -> Option<Ghost> {
        self.design.memory()?.ghost(lba).filter(|_| !self.ledger.is_trimmed(lba))
    }

    /// Asks [`Memory::begin_history`]; none without it.
    pub fn begin_history(&self) -> Option<Draft> {
        self.design.memory().map(|design| design.begin_history())
    }

    /// Asks [`Memory::export_history`]; nothing follows without it.
    pub fn export_history(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        self.design.memory_mut().is_some_and(|design| design.export_history(draft, is_doubtful))
    }

    /// Returns the whole history of an idle design; empty for a design without one.
    pub fn whole_history(&mut self) -> Vec<u8> {
        self.history_within(u64::MAX)
    }

    /// Returns the history of an idle design as [`Decider::whole_history`], in so many pages.
    pub fn history_within(&mut self, pages: u64) -> Vec<u8> {
        let Some(mut draft) = self.begin_history() else { return Vec::new() };
        draft.limit(pages);
        while self.export_history(&mut draft, &|_| false) {}
        draft.finish()
    }

    /// Tells [`Memory::restore_page`] or [`Provisional::restore_page`]; false without either.
    pub fn restore_page(&mut self, page: usize, bytes: &[u8]) -> bool {
        if let Some(design) = self.design.memory_mut() {
            return design.restore_page(page, bytes);
        }
        self.design.provisional_mut().is_some_and(|design| design.restore_page(page, bytes))
    }

    /// Tells [`Memory::trust_history`], if the design has it.
    pub fn trust_history(&mut self, trust: Trust) {
        if let Some(design) = self.design.memory_mut() {
            design.trust_history(trust);
        }
    }
}
