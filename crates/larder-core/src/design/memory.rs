//! [`Memory`]: a design that remembers addresses beyond their mappings.
//!
//! Invariants: an address with a memory is unmapped. A design without this part forgets an address
//! with its mapping. A [`Decider`](crate::decider::Decider) answers for such a design.
//!
//! It does not know the form of a history on flash.

use crate::{
    history::{Draft, Trust},
    types::{Fingerprint, Lba},
};

/// An unmapped address that a design remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ghost {
    /// Its content is stored for others. The caller may map the address as a duplicate of it.
    Stored(Fingerprint),
    /// Its content is unknown, or not stored. A request of it is a miss that informs the design.
    Bare,
}

/// The replaced addresses of a design, and its order of addresses over a restart.
///
/// A checkpoint has that order as a *history*. It goes into pages of
/// [`PAGE_BYTES`](crate::history::PAGE_BYTES), the last one shorter, and drops entries without
/// room. A design has a history or [pages](super::Provisional::page_count), or neither.
pub trait Memory {
    /// Returns the memory of `lba`; none of a mapped address.
    fn ghost(&self, lba: Lba) -> Option<Ghost>;

    /// Returns an empty draft of the history: the order of addresses, and the ghosts.
    fn begin_history(&self) -> Draft;

    /// Adds the next piece to the draft; returns whether more follows. The design may change
    /// between two pieces. Doubtful addresses come without content, because the origin may have
    /// lost it.
    fn export_history(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool;

    /// Recovery: takes a page of the history. Returns false and changes nothing for an invalid
    /// page.
    fn restore_page(&mut self, page: usize, bytes: &[u8]) -> bool;

    /// Recovery: says how far the history of the checkpoint holds. Without this call the content of
    /// every unmapped address is unknown.
    fn trust_history(&mut self, trust: Trust);
}
