//! The tries to write a checkpoint, and the failure of the last one.
//!
//! Invariants: while tries fail, the log is not filled up.
//!
//! It does not write a checkpoint.

use crate::error::EngineError;

/// The tries of a cache since it was opened.
#[derive(Default)]
pub(crate) struct CheckpointTries {
    /// Tries that have begun.
    begun: u64,
    /// Number and error of the last try, if it failed.
    failed: Option<(u64, EngineError)>,
}

impl CheckpointTries {
    /// Counts a try.
    pub fn begin(&mut self) {
        self.begun += 1;
    }

    /// Returns the number of tries that have begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Notes that the last try failed.
    pub fn fail(&mut self, error: EngineError) {
        self.failed = Some((self.begun, error));
    }

    /// Notes that a checkpoint is durable.
    pub fn succeed(&mut self) {
        self.failed = None;
    }

    /// Returns the error of the last try, if it failed and came after `begun` tries.
    pub fn error_after(&self, begun: u64) -> Option<&EngineError> {
        self.failed.as_ref().filter(|(failed, _)| *failed > begun).map(|(_, error)| error)
    }

    /// Returns the error of the last try, if it failed.
    pub fn last_error(&self) -> Option<&EngineError> {
        self.failed.as_ref().map(|(_, error)| error)
    }
}
