//! The time for which threads hold the state exclusively, over all caches of the process.
//!
//! It is for measurements, by the feature `lock-times`. The engine itself asks for no time.
//!
//! It does not count looks that are shared, or time spent waiting for the lock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

static NANOSECONDS: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicU64 = AtomicU64::new(0);

/// A lock that is held from now until this is dropped.
pub(crate) struct TimedLock(Instant);

impl TimedLock {
    pub(crate) fn new() -> TimedLock {
        TimedLock(Instant::now())
    }
}

impl Drop for TimedLock {
    fn drop(&mut self) {
        NANOSECONDS.fetch_add(self.0.elapsed().as_nanos() as u64, Relaxed);
        TIMES.fetch_add(1, Relaxed);
    }
}

/// Returns the time for which the state was locked so far, and the number of times.
pub fn locked() -> (Duration, u64) {
    (Duration::from_nanos(NANOSECONDS.load(Relaxed)), TIMES.load(Relaxed))
}
