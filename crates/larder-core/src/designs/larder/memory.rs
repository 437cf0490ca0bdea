//! The beliefs of [`Larder`]: addresses whose content is known, and was not stored for a while.
//!
//! Invariants: those of [`Memory`]. No checkpoint has a belief.

use super::{
    Larder,
    addresses::{Address, Kind},
};
use crate::{
    design::{Ghost, Memory},
    history::{Draft, Shape, Trust},
    types::Lba,
};

impl Memory for Larder {
    fn ghost(&self, lba: Lba) -> Option<Ghost> {
        let entry = self.index.get(lba).filter(|entry| Address::kind(entry) == Kind::Chunk)?;
        if Self::is_live(&self.contents, entry) {
            return None;
        }
        let fingerprint = self.contents.get(entry.content()?).fingerprint()?;
        self.stored_duplicate(&fingerprint).map(|_| Ghost::Stored(fingerprint))
    }

    fn begin_history(&self) -> Draft {
        Draft::new(Shape { lists: 0, data_chunks: 0, addresses: 0, used_slots: 0, looks_at_content: false }, 0)
    }

    fn export_history(&mut self, _draft: &mut Draft, _is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        false
    }

    fn restore_page(&mut self, _page: usize, _bytes: &[u8]) -> bool {
        true
    }

    fn trust_history(&mut self, _trust: Trust) {}
}
