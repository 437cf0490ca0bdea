//! A full cache that no chunk can leave, because the flash does not give back its dirty data.
//!
//! Dirty data keeps its slot until the origin has it. If all of it is unreadable, a writer that
//! waits for room would wait for ever. After `UNREADABLE_MAX` the flash has failed. The writer
//! then goes past it, or gets an error.
//!
//! Invariants: the flash fails only if a writer waits and no room was made meanwhile. A slow,
//! failing or missing origin keeps writers waiting as long as it takes. Chunks that cannot go are
//! passed over, so that all others are tried first.
//!
//! It does not read anything; destaging and eviction report here.

use crate::shared::Shared;
use larder_device::IoError;
use std::time::Duration;

/// The time of failed reads of dirty data after which the flash counts as failed. It is longer than
/// a device takes to reset, and shorter than clients' own time limits (30 s in Linux' NBD and
/// SCSI).
const UNREADABLE_MAX: Duration = Duration::from_secs(10);
/// Limit of a pause between tries: a longer one could double the time until the failure.
const TRY_EVERY: Duration = Duration::from_secs(2);

impl Shared {
    /// Returns the pause before the next try. Pauses grow, and are shorter while the flash fails.
    pub(crate) fn pause_before_retry(&self, pause: Duration) -> Duration {
        if self.state.lock().flash.is_dirty_unreadable() { pause.min(TRY_EVERY) } else { pause }
    }

    /// Notes that room was made, or that readable dirty data will make it.
    pub(crate) fn note_room_made(&self) {
        self.state.lock().flash.dirty_is_readable();
    }

    /// Notes unreadable dirty data, with the error `why`.
    pub(crate) fn note_unreadable(&self, why: IoError) {
        let unreadable = self.state.lock().flash.dirty_is_unreadable(self.runtime.now());
        let waiting = self.writes.waiting_for_room();
        if waiting > 0 && unreadable >= UNREADABLE_MAX {
            let what = format!(
                "{waiting} writes wait for room, and no dirty data could be read for {} s",
                UNREADABLE_MAX.as_secs()
            );
            self.fail_flash(why.with_detail(what));
        }
    }
}
