//! The mark of the origin that an orderly end notes.
//!
//! Invariants: without a sure mark there is no note. An origin that hangs keeps no end waiting for
//! its mark: the cache needs no other word of it when nothing is destaged.
//!
//! It does not compare.

use crate::{shared::Shared, sync::either};
use larder_device::ChangeMark;
use std::time::Duration;

/// The time that an end waits for the mark.
const WAIT_MAX: Duration = Duration::from_secs(5);

impl Shared {
    /// Returns the origin's mark for a superblock.
    pub(super) async fn mark_of_origin(&self) -> Option<ChangeMark> {
        let (asked, mut found) = (self.origin.change_mark(), None);
        let ask = async { found = asked.await.ok().flatten() };
        either(ask, self.runtime.delay(WAIT_MAX)).await;
        found
    }
}
