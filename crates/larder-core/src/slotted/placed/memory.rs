//! The memory of a placed design: the addresses that only the design knows.
//!
//! Invariants: those of [`Placed`].
//!
//! It leaves the restored history to `restored.rs`.

use super::Placed;
use crate::{
    design::{Ghost, Lookup, Mapping, Memory},
    history::{Draft, Trust},
    types::{Fingerprint, Lba},
};

impl Memory for Placed {
    fn ghost(&self, lba: Lba) -> Option<Ghost> {
        let found = match self.known(lba) {
            Some(held) => self.dedup.then_some(Ghost::Stored(Fingerprint(held.fingerprint))),
            None => self.design.knows(lba).then_some(Ghost::Bare),
        };
        found.filter(|_| self.peek(lba) == Lookup::Miss)
    }

    fn begin_history(&self) -> Draft {
        self.new_draft()
    }

    fn export_history(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        self.draft(draft, is_doubtful)
    }

    fn restore_page(&mut self, page: usize, bytes: &[u8]) -> bool {
        self.note_page(page, bytes)
    }

    fn trust_history(&mut self, trust: Trust) {
        if let Some(restoring) = &mut self.restoring {
            restoring.trust = Some(trust);
        }
    }
}
