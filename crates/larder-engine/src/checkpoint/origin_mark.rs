//! The mark of the origin that an orderly end notes.
//!
//! Invariants: without a sure mark there is no note. An origin that hangs keeps no end waiting for
//! its mark: the cache needs no other word of it when nothing is destaged. A mark that is missing
//! is told before the end is over.
//!
//! It does not compare.

use crate::{shared::Shared, sync::either};
use larder_device::ChangeMark;
use larder_format::OriginState;

impl Shared {
    /// Returns the origin's mark for the superblock of an orderly end. A missing one is told at
    /// once, for no later look may come.
    pub(super) async fn mark_of_origin(&self) -> Option<ChangeMark> {
        let wait_max = self.live.get().mark_wait_max;
        let (asked, mut answer) = (self.origin.change_mark(), None);
        either(async { answer = Some(asked.await) }, self.runtime.delay(wait_max)).await;
        let why = match answer {
            Some(Ok(mark)) => return mark,
            Some(Err(error)) => error.to_string(),
            None => format!("it has not answered for {:.1} s", wait_max.as_secs_f32()),
        };
        self.missing_mark.note(why);
        self.tell_conditions_now();
        None
    }
}

/// Returns the note of `mark` in the superblock of the number `sequence`.
pub(super) fn noted(mark: ChangeMark, sequence: u64) -> OriginState {
    OriginState { sequence, size_bytes: mark.size_bytes, epoch: mark.epoch, changes: mark.changes }
}
