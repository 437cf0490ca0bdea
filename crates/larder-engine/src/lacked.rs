//! The words for the data that a flash holds and its origin lacks.
//!
//! Invariants: trims are told apart from dirty data, for they have no content.
//!
//! It does not count.

use larder_core::design::DirtyCounts;

/// Returns the words for so many bytes of content and of trims, with sizes in the words of `size`.
pub fn told(dirty_bytes: u64, trimmed_bytes: u64, size: impl Fn(u64) -> String) -> String {
    let dirty = format!("{} of dirty data", size(dirty_bytes));
    match (dirty_bytes, trimmed_bytes) {
        (_, 0) => dirty,
        (0, trimmed) => format!("{} of trims", size(trimmed)),
        (_, trimmed) => format!("{dirty} and {} of trims", size(trimmed)),
    }
}

/// Returns the words for these counts, in bytes, with chunks of `chunk_bytes`.
pub(crate) fn exactly(dirty: &DirtyCounts, chunk_bytes: u64) -> String {
    told(dirty.chunks * chunk_bytes, dirty.run_chunks * chunk_bytes, |bytes| format!("{bytes} bytes"))
}
