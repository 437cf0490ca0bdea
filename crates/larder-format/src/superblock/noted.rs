//! Notes in a superblock that count only beside one sequence number.
//!
//! Role: each note carries the sequence number of the superblock that it was made for. A program
//! that does not know a note keeps its bytes and counts the sequence on, which makes the note void.
//!
//! Invariants: a note is encoded again as it was decoded, void or not.
//!
//! It does not decide the moment of a note.

use crate::wire::Le64;

/// The origin's mark: its device's state at an orderly end. Another program's change changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginState {
    /// The superblock's sequence number at the note; beside another one the mark is void.
    pub sequence: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The epoch of `changes`: two marks compare only within one.
    pub epoch: u64,
    /// A number that each change changes.
    pub changes: u64,
}

impl OriginState {
    pub(super) fn words(&self) -> [Le64; 4] {
        [self.sequence, self.size_bytes, self.epoch, self.changes].map(Le64::new)
    }

    pub(super) fn of_words(words: [Le64; 4]) -> Self {
        let [sequence, size_bytes, epoch, changes] = words.map(Le64::get);
        OriginState { sequence, size_bytes, epoch, changes }
    }
}

/// A frame of the log that was durable when the superblock was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableFrame {
    /// The superblock's sequence number at the note; beside another one the note is void.
    pub sequence: u64,
    /// The frame's number, 0 for none.
    pub frame_seq: u64,
}

impl DurableFrame {
    pub(super) fn words(&self) -> [Le64; 2] {
        [self.sequence, self.frame_seq].map(Le64::new)
    }

    pub(super) fn of_words(words: [Le64; 2]) -> Self {
        let [sequence, frame_seq] = words.map(Le64::get);
        DurableFrame { sequence, frame_seq }
    }
}
