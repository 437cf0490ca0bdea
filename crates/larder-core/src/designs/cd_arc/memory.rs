//! The memory of CD-ARC: the addresses of its lists, with data or without.
//!
//! Invariants: those of [`CdArc`].
//!
//! It leaves the restored lists to `restored.rs`.

use super::{
    CdArc,
    lists::{LEFT, OWED},
};
use crate::{
    design::{Ghost, Lookup, Mapping, Memory},
    history::{Draft, Trust},
    types::Lba,
};

impl Memory for CdArc {
    fn ghost(&self, lba: Lba) -> Option<Ghost> {
        let i = self.lists.find(lba)?;
        if self.nitro.peek(lba) != Lookup::Miss {
            return None;
        }
        let content = self.lists.fingerprint(i);
        match content.filter(|content| self.nitro.peek_duplicate(content).is_some()) {
            Some(stored) => self.has_room_for(lba).then_some(Ghost::Stored(stored)),
            None => (!matches!(self.lists.list(i), LEFT | OWED)).then_some(Ghost::Bare),
        }
    }

    fn begin_history(&self) -> Draft {
        self.new_draft()
    }

    fn export_history(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        self.draft(draft, is_doubtful)
    }

    fn restore_page(&mut self, page: usize, bytes: &[u8]) -> bool {
        let shape = self.shape();
        self.restoring.as_mut().is_some_and(|restoring| restoring.pages.note(page, bytes, shape.pages_max()))
    }

    fn trust_history(&mut self, trust: Trust) {
        if let Some(restoring) = &mut self.restoring {
            restoring.is_trusted = trust == Trust::Whole;
        }
    }
}
