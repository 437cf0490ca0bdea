//! The findings of the last evictions about dirty data.
//!
//! Invariants: evictions have one destage under way at most. The finding is that of the last batch
//! of victims.
//!
//! It does not choose, destage, or evict.

use std::sync::atomic::{AtomicBool, Ordering::*};

/// The findings of the last evictions.
#[derive(Default)]
pub(crate) struct EvictionFindings {
    /// A destage for an eviction is under way. An eviction leaves it behind when the origin does
    /// not answer.
    is_destaging: AtomicBool,
    finds_dirty: AtomicBool,
}

impl EvictionFindings {
    /// Begins a destage for an eviction. Returns false if an earlier one is still under way.
    pub fn begin_destage(&self) -> bool {
        !self.is_destaging.swap(true, AcqRel)
    }

    /// Ends the destage that began.
    pub fn end_destage(&self) {
        self.is_destaging.store(false, Release);
    }

    /// Notes whether the last batch gave back no slot because the origin lacks the data in them.
    pub fn note(&self, finds_dirty: bool) {
        self.finds_dirty.store(finds_dirty, Release);
    }

    /// Returns whether the slots that may go hold data that the origin lacks.
    pub fn finds_dirty(&self) -> bool {
        self.finds_dirty.load(Acquire)
    }
}
