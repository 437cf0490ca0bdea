//! The settings that may change while a cache is open.
//!
//! Invariants: each is read without a lock.
//!
//! It does not check them.

use crate::config::Tuning;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The options that may change while a cache is open. Each is a field of [`Tuning`], too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Pace {
    pub dirty_low_percent: u8,
    pub dirty_high_percent: u8,
    pub dirty_max_percent: u8,
    pub destage_rate_bytes_per_s: u64,
    pub insert_queue_bytes_max: usize,
    pub prefetch_bytes_max: usize,
    pub durable_writes: bool,
    pub mark_wait_max: Duration,
}

impl From<&Tuning> for Pace {
    fn from(tuning: &Tuning) -> Pace {
        Pace {
            dirty_low_percent: tuning.dirty_low_percent,
            dirty_high_percent: tuning.dirty_high_percent,
            dirty_max_percent: tuning.dirty_max_percent,
            destage_rate_bytes_per_s: tuning.destage_rate_bytes_per_s,
            insert_queue_bytes_max: tuning.insert_queue_bytes_max,
            prefetch_bytes_max: tuning.prefetch_bytes_max,
            durable_writes: tuning.durable_writes,
            mark_wait_max: tuning.mark_wait_max,
        }
    }
}

/// The [`Pace`] in force. Each part is a number by itself, and reads of it take no lock.
pub struct Live {
    dirty_low_percent: AtomicU8,
    dirty_high_percent: AtomicU8,
    dirty_max_percent: AtomicU8,
    destage_rate_bytes_per_s: AtomicU64,
    insert_queue_bytes_max: AtomicUsize,
    prefetch_bytes_max: AtomicUsize,
    durable_writes: AtomicBool,
    mark_wait_max_ms: AtomicU64,
}

impl Live {
    /// Returns the pace at the opening of a cache.
    pub(crate) fn new(pace: Pace) -> Live {
        Live {
            dirty_low_percent: pace.dirty_low_percent.into(),
            dirty_high_percent: pace.dirty_high_percent.into(),
            dirty_max_percent: pace.dirty_max_percent.into(),
            destage_rate_bytes_per_s: pace.destage_rate_bytes_per_s.into(),
            insert_queue_bytes_max: pace.insert_queue_bytes_max.into(),
            prefetch_bytes_max: pace.prefetch_bytes_max.into(),
            durable_writes: pace.durable_writes.into(),
            mark_wait_max_ms: milliseconds(pace.mark_wait_max).into(),
        }
    }

    pub(super) fn set(&self, pace: Pace) {
        self.dirty_low_percent.store(pace.dirty_low_percent, Relaxed);
        self.dirty_high_percent.store(pace.dirty_high_percent, Relaxed);
        self.dirty_max_percent.store(pace.dirty_max_percent, Relaxed);
        self.destage_rate_bytes_per_s.store(pace.destage_rate_bytes_per_s, Relaxed);
        self.insert_queue_bytes_max.store(pace.insert_queue_bytes_max, Relaxed);
        self.prefetch_bytes_max.store(pace.prefetch_bytes_max, Relaxed);
        self.durable_writes.store(pace.durable_writes, Relaxed);
        self.mark_wait_max_ms.store(milliseconds(pace.mark_wait_max), Relaxed);
    }

    /// Returns the pace now.
    pub(crate) fn get(&self) -> Pace {
        Pace {
            dirty_low_percent: self.dirty_low_percent.load(Relaxed),
            dirty_high_percent: self.dirty_high_percent.load(Relaxed),
            dirty_max_percent: self.dirty_max_percent.load(Relaxed),
            destage_rate_bytes_per_s: self.destage_rate_bytes_per_s.load(Relaxed),
            insert_queue_bytes_max: self.insert_queue_bytes_max.load(Relaxed),
            prefetch_bytes_max: self.prefetch_bytes_max.load(Relaxed),
            durable_writes: self.durable_writes.load(Relaxed),
            mark_wait_max: Duration::from_millis(self.mark_wait_max_ms.load(Relaxed)),
        }
    }

    /// Returns whether the cache reads ahead in sequential streams.
    pub(crate) fn prefetches(&self) -> bool {
        self.prefetch_bytes_max.load(Relaxed) > 0
    }

    /// Returns whether each write is durable before its acknowledgement.
    pub(crate) fn durable_writes(&self) -> bool {
        self.durable_writes.load(Relaxed)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_pace_is_in_force_once_it_is_set() {
        let other = Pace {
            dirty_low_percent: 1,
            dirty_high_percent: 2,
            dirty_max_percent: 3,
            destage_rate_bytes_per_s: 4,
            insert_queue_bytes_max: 5,
            prefetch_bytes_max: 6,
            durable_writes: !Tuning::default().durable_writes,
            mark_wait_max: Duration::from_millis(7),
        };
        let live = Live::new(Pace::from(&Tuning::default()));
        assert_eq!(live.get(), Pace::from(&Tuning::default()));
        live.set(other);
        assert_eq!(live.get(), other);
        assert_eq!(Live::new(other).get(), other);
    }
}
