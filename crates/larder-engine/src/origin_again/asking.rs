//! The mark of the task that asks the origin again.
//!
//! Invariants: one task at a time has the mark.
//!
//! It does not ask.

use std::sync::atomic::{AtomicBool, Ordering::*};

/// The mark of the task that asks the origin again.
#[derive(Default)]
pub(crate) struct AskingTask(AtomicBool);

impl AskingTask {
    /// Takes the mark. Returns false if another task has it.
    pub fn begin(&self) -> bool {
        !self.0.swap(true, AcqRel)
    }

    /// Gives the mark back.
    pub fn end(&self) {
        self.0.swap(false, AcqRel);
    }
}
