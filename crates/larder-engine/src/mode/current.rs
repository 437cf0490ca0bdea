//! The write mode in force.
//!
//! Invariants: only a switch of the mode changes it.
//!
//! It does not switch.

use larder_format::WriteMode;
use std::sync::atomic::{AtomicU8, Ordering::*};

/// The write mode in force. A holder of any chunk's ticket may rely on it, because a switch takes a
/// ticket of the whole volume. So a write learns the mode without the state.
pub struct CurrentMode(AtomicU8);

impl CurrentMode {
    /// Returns `mode` as the mode in force.
    pub fn new(mode: WriteMode) -> CurrentMode {
        CurrentMode(AtomicU8::new(mode.code()))
    }

    /// Returns the mode.
    pub fn get(&self) -> WriteMode {
        WriteMode::from_code(self.0.load(Acquire)).expect("a mode was stored")
    }

    pub(super) fn set(&self, mode: WriteMode) {
        self.0.store(mode.code(), Release);
    }
}
