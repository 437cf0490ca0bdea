//! The room of a checkpoint for mappings.
//!
//! A checkpoint has each mapping that was dirty when it began. The history names the records whose
//! address has a clean one. Other clean mappings, of zeroes and duplicates, go in while there is
//! room: a restart without them costs a miss each, or a look at the content.
//!
//! Invariants: the dirty mappings have room at any time. Those that become dirty while an export
//! runs are in the log behind it.
//!
//! It does not hold the mappings.

use crate::{design::DesignConfig, limits::mappings_in_short_checkpoint};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
pub struct CheckpointRoom {
    mappings_max: u64,
    dirty: u64,
    is_exporting: bool,
    /// Mappings that the export still takes beside the dirty ones.
    left: AtomicU64,
}

impl CheckpointRoom {
    /// Returns the room that a configuration leaves.
    pub fn new(config: &DesignConfig) -> CheckpointRoom {
        CheckpointRoom {
            mappings_max: mappings_in_short_checkpoint(config.mappings_max),
            dirty: 0,
            is_exporting: false,
            left: AtomicU64::new(0),
        }
    }

    /// Counts a dirty mapping more.
    pub fn add_dirty(&mut self) {
        self.dirty += 1;
    }

    /// Counts a dirty mapping less.
    pub fn drop_dirty(&mut self) {
        self.dirty -= 1;
    }

    /// Begins an export.
    pub fn begin(&mut self) {
        self.is_exporting = true;
        *self.left.get_mut() = self.mappings_max.saturating_sub(self.dirty);
    }

    /// Returns whether an export runs.
    pub fn is_exporting(&self) -> bool {
        self.is_exporting
    }

    /// Ends the export.
    pub fn end(&mut self) {
        self.is_exporting = false;
    }

    /// Takes a clean mapping into the export, if it has room. Outside an export all are taken.
    pub fn takes(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        !self.is_exporting || self.left.fetch_update(Relaxed, Relaxed, one_less).is_ok()
    }

    /// Returns whether `count` mappings more may be dirty.
    pub fn has_room(&self, count: u64) -> bool {
        self.dirty + count <= self.mappings_max
    }
}
