//! The operations of flash that wait because the device refused them for want of something.
//!
//! Invariants: an operation counts while it waits.
//!
//! It does not wait.

use larder_device::IoError;
use parking_lot::Mutex;

/// Writes that the flash refused and that wait for a retry.
#[derive(Default)]
pub struct Refusals(pub(super) Mutex<Waiting>);

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) writes: usize,
    pub(super) last: Option<IoError>,
}

impl Refusals {
    /// Returns the reason why the flash takes no writes, and the waiting writes; `None` when none
    /// waits.
    pub fn standing(&self) -> Option<(IoError, usize)> {
        let waiting = self.0.lock();
        waiting.last.clone().filter(|_| waiting.writes > 0).map(|error| (error, waiting.writes))
    }
}
