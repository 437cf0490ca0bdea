//! A full cache from which nothing can leave, for the flash does not give back what it holds.
//!
//! Dirty data keeps its slot until the origin has it. Where none of it can be read, a writer that waits for room would wait
//! for ever: after [`UNREADABLE_MAX`] the flash has failed, and the writer goes past it, or is told.
//!
//! Invariants: it is a failure only if a writer waits and nothing made room meanwhile: an origin that is slow, failing or
//! gone keeps writers waiting as long as it takes. What cannot go is passed over, so that all else is tried first.
//!
//! What it does not do: read anything; destaging and eviction report here.

use crate::shared::Shared;
use larder_device::IoError;
use std::{sync::atomic::Ordering::*, time::Duration};

/// So long none of the dirty data that is asked for can be read, until the flash is taken to have failed. Longer than a
/// device takes to reset, shorter than clients' own time limits (30 s in Linux' NBD and SCSI).
const UNREADABLE_MAX: Duration = Duration::from_secs(10);
/// So often it is tried meanwhile, at least: a pause that grew as long as the time itself could make that twice as long.
const TRY_EVERY: Duration = Duration::from_secs(2);

impl Shared {
    /// The pause before the next try, of those that grow: shorter where the flash is what fails.
    pub(crate) fn pause_before_retry(&self, pause: Duration) -> Duration {
        if self.state.lock().unreadable_since.is_some() { pause.min(TRY_EVERY) } else { pause }
    }

    /// Room was made, or dirty data was read, so that it will be.
    pub(crate) fn note_room_made(&self) {
        self.state.lock().unreadable_since = None;
    }

    /// Nothing of some dirty data could be read: `why`.
    pub(crate) fn note_unreadable(&self, why: IoError) {
        let now = self.runtime.now();
        let since = *self.state.lock().unreadable_since.get_or_insert(now);
        let waiting = self.waiting_for_room.load(Acquire);
        if waiting > 0 && now.saturating_sub(since) >= UNREADABLE_MAX {
            let what = format!(
                "{waiting} writes wait for room, and no dirty data could be read for {} s",
                UNREADABLE_MAX.as_secs()
            );
            self.fail_flash(why.with_detail(what));
        }
    }
}
