//! The counts of reserved entries of the log.
//!
//! Invariants: a count is the number of live reservations.
//!
//! It does not know the room of the log.

use std::sync::atomic::{AtomicBool, AtomicU32};

/// Reservations of entries.
#[derive(Default)]
pub struct Reservations {
    pub(super) held: AtomicU32,
    /// The limit is reached: no writer gets room until some is given back, which wakes the waiting
    /// writers.
    pub(super) full: AtomicBool,
    /// Entries of destages and evictions under way.
    pub(super) batches: AtomicU32,
}
