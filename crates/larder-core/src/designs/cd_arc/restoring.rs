//! The input of a recovery of CD-ARC's lists.
//!
//! It does not restore them.

use crate::history::Pages;

/// The input of a recovery so far.
#[derive(Default)]
pub(super) struct RestoringLists {
    /// Pieces of the history.
    pub pages: Pages,
    /// True after an orderly end without later changes.
    pub is_trusted: bool,
}
