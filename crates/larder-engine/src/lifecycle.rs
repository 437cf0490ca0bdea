//! The life of an open cache: the work that may begin, and the tasks that its end waits for.
//!
//! In order: the cache serves, drains, closes. A dropped cache is abandoned from any of them.
//!
//! Invariants: no step is taken back. Each count falls as often as it rises, by the guards of
//! [`close`](crate::close) and [`shared`](crate::shared).
//!
//! It does not wake a task.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// The step of a cache in its life, and its running tasks.
#[derive(Default)]
pub struct Lifecycle {
    expects_end: AtomicBool,
    is_draining: AtomicBool,
    is_closing: AtomicBool,
    is_finishing: AtomicBool,
    is_abandoned: AtomicBool,
    tasks: AtomicU32,
    ends: AtomicU32,
}

impl Lifecycle {
    /// Notes that an end is near: waits for room are short from now on.
    pub fn expect_end(&self) {
        self.expects_end.store(true, Release);
    }

    /// Begins to drain: new requests, and those that wait for room, are refused.
    pub fn drain(&self) {
        self.is_draining.store(true, Release);
    }

    /// Begins to close, after the drain: all data is written, and the background tasks may end.
    pub fn close(&self) {
        self.is_closing.store(true, Release);
    }

    /// Abandons a dropped cache: no operation begins any more, but for an end that is under way.
    pub fn abandon(&self) {
        self.drain();
        self.close();
        self.is_abandoned.store(true, Release);
    }

    /// Notes whether a closing cache still needs commits.
    pub fn set_finishing(&self, is_finishing: bool) {
        self.is_finishing.store(is_finishing, Release);
    }

    /// Returns whether an end is expected or under way.
    pub fn is_ending(&self) -> bool {
        self.is_draining() || self.expects_end.load(Acquire)
    }

    /// Returns whether new requests are refused.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Acquire)
    }

    /// Returns whether the background tasks may end.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Acquire)
    }

    /// Returns whether the cache was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Acquire)
    }

    /// Returns whether an operation may begin.
    pub fn admits_work(&self) -> bool {
        !self.is_abandoned() || self.has_ends()
    }

    /// Counts a background task that begins.
    pub fn task_begins(&self) {
        self.tasks.fetch_add(1, AcqRel);
    }

    /// Counts a background task that is over.
    pub fn task_is_over(&self) {
        self.tasks.fetch_sub(1, AcqRel);
    }

    /// Returns the number of running background tasks.
    pub fn tasks(&self) -> u32 {
        self.tasks.load(Acquire)
    }

    /// Returns whether the committer is the last task of a cache that ends.
    pub fn is_committer_alone(&self) -> bool {
        self.is_closing() && !self.is_finishing.load(Acquire) && self.tasks() == 1
    }

    /// Counts an end that runs or waits for its turn. It is no task, since it waits for the tasks.
    pub fn end_begins(&self) {
        self.ends.fetch_add(1, AcqRel);
    }

    /// Counts an end that is over.
    pub fn end_is_over(&self) {
        self.ends.fetch_sub(1, AcqRel);
    }

    /// Returns whether an end runs or waits for its turn.
    pub fn has_ends(&self) -> bool {
        self.ends.load(Acquire) > 0
    }
}
