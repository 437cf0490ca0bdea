//! The beliefs of [`Larder`]: addresses whose content is known, and was not stored for a while.
//!
//! Invariants: those of [`Memory`]. No crash leaves a belief.

use super::{Larder, addresses::Kind};
use crate::{
    design::{Ghost, Memory},
    history::{Draft, PAGE_BYTES, Trust},
    types::Lba,
};

impl Memory for Larder {
    fn ghost(&self, lba: Lba) -> Option<Ghost> {
        let id = self.index.get(lba).filter(|entry| entry.kind == Kind::Chunk)?.content()?;
        if self.contents.is_stored(id) {
            return None;
        }
        let fingerprint = self.contents.fingerprint(id)?;
        self.stored_duplicate(&fingerprint).map(|_| Ghost::Stored(fingerprint))
    }

    fn begin_history(&self) -> Draft {
        Draft::plain(self.knowledge_bytes_max())
    }

    fn export_history(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        self.export_knowledge(draft, is_doubtful)
    }

    fn restore_page(&mut self, page: usize, bytes: &[u8]) -> bool {
        let pages_max = self.knowledge_bytes_max().div_ceil(PAGE_BYTES) as u64;
        self.pages.as_mut().is_some_and(|pages| pages.note(page, bytes, pages_max))
    }

    /// The cache has learned the rest, which is right without any proof.
    fn trust_history(&mut self, trust: Trust) {
        self.trusts_beliefs = trust == Trust::Whole;
    }
}
