//! A chunk that waits for insertion.
//!
//! Invariants: its bytes are those of its version.
//!
//! It does not store them.

use larder_core::Lba;
use larder_device::SharedBuf;

/// The reason for an insertion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A read missed the chunk, or a write-through wrote it: the origin has it.
    Clean,
    /// A read completed a fragment: the origin lacks the fragment's sectors.
    CompletedFragment,
}

/// A chunk that waits for insertion.
pub struct Insertion {
    pub(super) lba: Lba,
    pub(super) version: u32,
    pub(super) data: SharedBuf,
    pub(super) reason: Reason,
}
