//! The state of the origin that an orderly end notes.
//!
//! Invariants: without a sure state there is no note.
//!
//! It does not compare.

use larder_device::{BlockDevice, ChangeMark};
use larder_format::OriginState;

/// Returns the origin's mark for a superblock of this sequence number.
pub(crate) fn noted(origin: &dyn BlockDevice, sequence: u64) -> Option<OriginState> {
    let ChangeMark { size_bytes, epoch, changes } = origin.change_mark()?;
    Some(OriginState { sequence, size_bytes, epoch, changes })
}
