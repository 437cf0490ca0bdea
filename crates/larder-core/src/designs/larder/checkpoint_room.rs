//! The room of a checkpoint for mappings.
//!
//! A checkpoint has every dirty mapping. The history names the records whose address has a clean
//! one. Other clean mappings, of zeroes and duplicates, go in while there is room: a restart
//! without them costs a miss each, or a look at the content.
//!
//! Invariants: the dirty mappings have room at any time. While an export runs, those that it took
//! beside them count, too.
//!
//! It does not hold the mappings.

use crate::{design::DesignConfig, limits::MAPPINGS_AN_ENTRY};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The share of the room that an export leaves to mappings that become dirty: one part in so many.
const LEFT_SHARE: u64 = 4;

/// See the module.
pub struct CheckpointRoom {
    mappings_max: u64,
    dirty: u64,
    is_exporting: bool,
    /// Mappings that the export took beside the needed ones.
    taken: AtomicU64,
}

impl CheckpointRoom {
    /// Returns the room that a configuration leaves.
    pub fn new(config: &DesignConfig) -> CheckpointRoom {
        CheckpointRoom {
            mappings_max: config.mappings_max / MAPPINGS_AN_ENTRY,
            dirty: 0,
            is_exporting: false,
            taken: AtomicU64::new(0),
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
    pub fn takes(&self) -> bool {
        if !self.is_exporting {
            return true;
        }
        let has_room = self.used() + self.mappings_max / LEFT_SHARE < self.mappings_max;
        if has_room {
            self.taken.fetch_add(1, Relaxed);
        }
        has_room
    }

    /// Returns whether `count` needed mappings more have room.
    pub fn has_room(&self, count: u64) -> bool {
        self.used() + count <= self.mappings_max
    }

    /// Counts the mappings of a checkpoint at most.
    fn used(&self) -> u64 {
        self.dirty + self.taken.load(Relaxed)
    }
}
