//! The write mode in force, and the one that a switch under way leads to.
//!
//! Invariants: only a switch of the mode changes either. One switch is under way at a time.
//!
//! It does not switch.

use larder_format::WriteMode;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::*};

/// The code of no mode.
const NONE: u8 = u8::MAX;

/// The write mode in force. A holder of any chunk's ticket may rely on it, because a switch takes a
/// ticket of the whole volume. So a write learns the mode without the state.
pub struct CurrentMode {
    in_force: AtomicU8,
    switching_to: AtomicU8,
    /// A write went past the flash in write-back.
    has_written_past: AtomicBool,
}

impl CurrentMode {
    /// Returns `mode` as the mode in force.
    pub fn new(mode: WriteMode) -> CurrentMode {
        CurrentMode {
            in_force: AtomicU8::new(mode.code()),
            switching_to: AtomicU8::new(NONE),
            has_written_past: AtomicBool::new(false),
        }
    }

    /// Returns the mode.
    pub fn get(&self) -> WriteMode {
        WriteMode::from_code(self.in_force.load(Acquire)).expect("a mode was stored")
    }

    /// Returns whether acknowledged writes may wait on the origin for its flush.
    pub fn leaves_writes_on_origin(&self) -> bool {
        self.get() != WriteMode::Back || self.has_written_past.load(Acquire)
    }

    /// Notes that a write goes past the flash in write-back.
    pub fn note_write_past(&self) {
        self.has_written_past.store(true, Release);
    }

    pub(super) fn set(&self, mode: WriteMode) {
        self.in_force.store(mode.code(), Release);
    }

    /// Notes that a switch to `mode` is under way.
    pub(super) fn begin_switch(&self, mode: WriteMode) {
        self.switching_to.store(mode.code(), Release);
    }

    /// Notes that the switch is over.
    pub(super) fn end_switch(&self) {
        self.switching_to.store(NONE, Release);
    }

    /// Returns the mode of a switch that is under way.
    pub fn switching_to(&self) -> Option<WriteMode> {
        WriteMode::from_code(self.switching_to.load(Acquire))
    }
}
