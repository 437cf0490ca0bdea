//! The room of a checkpoint for mappings, and for fingerprints beside the history.
//!
//! A checkpoint has every dirty mapping, and that of the address for which a content was stored.
//! Other clean mappings go in while there is room: a restart without them costs a miss each, or a
//! look at the content.
//!
//! Invariants: the needed mappings have room at any time. While an export runs, those that it took
//! beside them count, too.
//!
//! It does not hold the mappings.

use crate::design::DesignConfig;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
pub struct CheckpointRoom {
    mappings_max: u64,
    dirty: u64,
    is_exporting: bool,
    /// Mappings that the export took beside the needed ones.
    taken: AtomicU64,
    fingerprints_max: u64,
    /// Fingerprints that the export has room for.
    fingerprints_left: u64,
}

impl CheckpointRoom {
    /// Returns the room for as many entries as a configuration has.
    pub fn new(config: &DesignConfig) -> CheckpointRoom {
        CheckpointRoom {
            mappings_max: config.mappings_max,
            dirty: 0,
            is_exporting: false,
            taken: AtomicU64::new(0),
            fingerprints_max: config.fp_entries_max,
            fingerprints_left: 0,
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
        *self.taken.get_mut() = 0;
        self.fingerprints_left = self.fingerprints_max;
    }

    /// Returns whether an export runs.
    pub fn is_exporting(&self) -> bool {
        self.is_exporting
    }

    /// Ends the export.
    pub fn end(&mut self) {
        self.is_exporting = false;
        *self.taken.get_mut() = 0;
    }

    /// Takes a mapping that is not needed into the export, if it has room. Outside an export all
    /// are taken.
    pub fn takes(&self, live: u64, stored: u64) -> bool {
        if !self.is_exporting {
            return true;
        }
        if self.used(live, stored) < self.mappings_max {
            self.taken.fetch_add(1, Relaxed);
            return true;
        }
        live <= self.mappings_max
    }

    /// Takes fingerprints into the export. Returns the number that has room.
    pub fn take_fingerprints(&mut self, count: usize) -> usize {
        let taken = self.fingerprints_left.min(count as u64);
        self.fingerprints_left -= taken;
        taken as usize
    }

    /// Returns whether `count` needed mappings more have room.
    pub fn has_room(&self, live: u64, stored: u64, count: u64) -> bool {
        self.used(live, stored) + count <= self.mappings_max
    }

    /// Counts the mappings of a checkpoint at most, for so many live ones and stored contents.
    fn used(&self, live: u64, stored: u64) -> u64 {
        live.min(stored + self.dirty + self.taken.load(Relaxed))
    }
}
