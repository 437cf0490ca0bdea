//! A valid slot of the LBA index, and the references that a mapping takes from others.
//!
//! It does not find them.

use crate::austere::keys::Key;

/// A valid slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaHashEntry {
    /// The LBA-hash.
    pub lba_key: Key,
    /// The FP-hash.
    pub fp_key: Key,
    /// True if the origin lacks the content of the address.
    pub is_dirty: bool,
    pub(super) slot: usize,
}

/// The lost references of a mapping that is new, or recent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The entry that left for it: its own old one, or another that the index lost.
    pub left: Option<LbaHashEntry>,
    /// The FP-hash of an entry that is not recent any more.
    pub demoted: Option<Key>,
}
