//! The writes under way, and those of them that wait for room.
//!
//! Invariants: a write counts until its guard is dropped, even if its future is.
//!
//! It does not make a write wait.

use crate::sync::Counted;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// The counts of writes under way.
#[derive(Default)]
pub(crate) struct WriteLoad {
    in_flight: AtomicU32,
    waiting_for_room: AtomicU32,
    waiting_for_destage: AtomicU32,
}

impl WriteLoad {
    /// Counts a write into the cache.
    pub fn begin(&self) -> Counted<'_> {
        Counted::new(&self.in_flight)
    }

    /// Returns whether several writes are under way: then a worker's help pays.
    pub fn is_shared(&self) -> bool {
        self.in_flight.load(Relaxed) > 1
    }

    /// Counts a write that waits for room.
    pub fn wait_for_room(&self) -> Counted<'_> {
        Counted::new(&self.waiting_for_room)
    }

    /// Returns the number of writes that wait for room.
    pub fn waiting_for_room(&self) -> u32 {
        self.waiting_for_room.load(Acquire)
    }

    /// Counts a write or a trim at a limit, which waits for a destage.
    pub fn wait_for_destage(&self) -> Counted<'_> {
        Counted::new(&self.waiting_for_destage)
    }

    /// Returns whether a write or a trim waits for a destage.
    pub fn waits_for_destage(&self) -> bool {
        self.waiting_for_destage.load(Acquire) > 0
    }
}
