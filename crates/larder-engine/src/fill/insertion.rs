//! Chunks that wait for insertion.
//!
//! Invariants: the bytes of each are those of its version.
//!
//! It does not store them.

use larder_core::Lba;
use larder_device::SharedBuf;
use std::collections::VecDeque;

/// The reason for an insertion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A read missed the chunk, or a write-through wrote it: the origin has it.
    Clean,
    /// A read completed a fragment: the origin lacks the fragment's sectors.
    CompletedFragment,
    /// Its record left with its slot, and is worth another life: the origin has the chunk.
    Survivor,
}

/// A chunk that waits for insertion.
pub struct Insertion {
    pub(crate) lba: Lba,
    pub(crate) version: u32,
    pub(crate) data: SharedBuf,
    pub(crate) reason: Reason,
}

/// The chunks that wait for insertion, and the tasks that insert them.
#[derive(Default)]
pub struct Insertions {
    waiting: VecDeque<Insertion>,
    /// Bytes that wait or are in work.
    bytes: usize,
    tasks: usize,
}

impl Insertions {
    /// Returns whether so many more bytes would exceed `bytes_max`.
    pub(crate) fn is_full_with(&self, bytes: usize, bytes_max: usize) -> bool {
        self.bytes + bytes > bytes_max
    }

    /// Adds an insertion. Returns whether the caller is to begin a task, of `tasks_max` at most.
    pub(crate) fn push(&mut self, insertion: Insertion, tasks_max: usize) -> bool {
        self.bytes += insertion.data.len();
        self.waiting.push_back(insertion);
        let begins = self.tasks < tasks_max;
        self.tasks += usize::from(begins);
        begins
    }

    /// Returns the oldest insertion to a task. Without one, the task is over.
    pub(super) fn next(&mut self) -> Option<Insertion> {
        let next = self.waiting.pop_front();
        self.tasks -= usize::from(next.is_none());
        next
    }

    /// Notes that an insertion of so many bytes is over.
    pub(super) fn done(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Returns whether no insertion waits or is in work.
    pub fn are_over(&self) -> bool {
        self.waiting.is_empty() && self.tasks == 0
    }
}
