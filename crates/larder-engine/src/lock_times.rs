//! How long the state is locked by threads that have it for themselves, of all caches of the process: for measurements, by the feature
//! `lock-times`. The engine itself asks for no time.
//!
//! What it does not do: count looks that are shared, or time that is waited for the lock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

static NANOSECONDS: AtomicU64 = AtomicU64::new(0);
static TIMES: AtomicU64 = AtomicU64::new(0);

/// A lock that is held from now until this is dropped.
pub(crate) struct Held(Instant);

impl Held {
    pub(crate) fn new() -> Held {
        Held(Instant::now())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        NANOSECONDS.fetch_add(self.0.elapsed().as_nanos() as u64, Relaxed);
        TIMES.fetch_add(1, Relaxed);
    }
}

/// How long the state was locked so far, and how many times.
pub fn locked() -> (Duration, u64) {
    (Duration::from_nanos(NANOSECONDS.load(Relaxed)), TIMES.load(Relaxed))
}
