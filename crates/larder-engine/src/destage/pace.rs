//! The size of the next request for zeroes, by the time that earlier ones took.
//!
//! Invariants: the size stays within its bounds.
//!
//! It does not send a request.

use std::{
    sync::atomic::{AtomicU64, Ordering::*},
    time::Duration,
};

/// Bytes of the first request that zeroes, and of the shortest.
const ZERO_BYTES_FIRST: u64 = 16 << 20;

const ZERO_BYTES_MIN: u64 = 1 << 20;

/// A request that takes less than `QUICK` doubles the next one's length. One that takes more than
/// `SLOW` halves it.
const QUICK: Duration = Duration::from_millis(50);

const SLOW: Duration = Duration::from_millis(500);

/// A batch begins no request after this time.
pub(super) const ZERO_TIME_MAX: Duration = Duration::from_millis(250);

/// Upper bound on an origin's speed of writing zeroes, in bytes a second. A faster origin punches
/// holes, and the rate limit counts its time.
pub(super) const WRITTEN_BYTES_PER_S_MAX: u64 = 4 << 30;

/// The length limit of a request that zeroes a range of the origin. It lets a request end within a
/// short time.
pub(crate) struct ZeroPace(AtomicU64);

impl Default for ZeroPace {
    fn default() -> Self {
        ZeroPace(AtomicU64::new(ZERO_BYTES_FIRST))
    }
}

impl ZeroPace {
    /// Returns the length limit of the next request, in bytes.
    pub(super) fn bytes_max(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Notes that a request of `bytes` took this time.
    pub(super) fn note(&self, bytes: u64, took: Duration) {
        let max = self.bytes_max();
        if took > SLOW {
            self.0.store((max / 2).max(ZERO_BYTES_MIN), Relaxed);
        } else if took < QUICK && bytes >= max / 2 {
            self.0.store(max.saturating_mul(2), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_grow_while_they_are_quick_and_shrink_when_they_are_slow() {
        let pace = ZeroPace::default();
        for doubling in 0..20 {
            assert_eq!(pace.bytes_max(), ZERO_BYTES_FIRST << doubling);
            pace.note(pace.bytes_max(), QUICK / 2);
        }
        let longest = pace.bytes_max();
        pace.note(longest, QUICK * 2);
        pace.note(4096, Duration::ZERO);
        assert_eq!(pace.bytes_max(), longest, "a short one says nothing of long ones");
        (0..60).for_each(|_| pace.note(pace.bytes_max(), SLOW * 2));
        assert_eq!(pace.bytes_max(), ZERO_BYTES_MIN);
    }
}
