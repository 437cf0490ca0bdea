//! The slots of a content in the FP index.
//!
//! It does not find them.

/// Consecutive slots of one bucket with a chunk. The metadata slot of `first` is the chunk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRun {
    /// Number of the first slot.
    pub first: u32,
    /// Number of slots, one for each subchunk.
    pub count: u32,
}
