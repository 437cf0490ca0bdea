//! Latencies of requests: counts in buckets of three digits, as HdrHistogram keeps them.
//!
//! The mean and the longest are exact.
//!
//! Invariant: no percentile is above the longest, at any length of requests.
//!
//! It does not know the times of requests.

use hdrhistogram::Histogram;

use super::nanos::Nanos;

/// The latencies of requests; see the module.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: Nanos,
}

impl Default for Latencies {
    #[expect(clippy::expect_used, reason = "constants that the library takes")]
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, Nanos::MAX, 3).expect("these bounds are allowed");
        Latencies { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Latencies {
    /// Adds one request.
    pub fn add(&mut self, ns: Nanos) {
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
        // There is a bucket for every number: nothing is above the last.
        self.histogram.saturating_record(ns);
    }

    /// Counts the requests.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the mean, in nanoseconds; 0 if there were none.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// Returns the time that `percent` percent of the requests did not exceed, in nanoseconds.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent).min(self.max_ns)
    }

    /// Returns the longest, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

/// The times of a drive's requests, from some time on.
#[derive(Clone, Debug, Default)]
pub struct OperationTimes {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
    /// Pages read that the buffer had.
    pub buffer_hits: u64,
    /// Pages written that never came to the translation layer.
    ///
    /// They were written again, or trimmed, while they waited.
    pub absorbed: u64,
    /// The time from which these are counted.
    pub since_ns: Nanos,
    /// The end of the last request; 0 if there was none.
    pub last_ns: Nanos,
    /// Time that the controller hashed.
    pub hashing_ns: u128,
}

impl OperationTimes {
    /// Returns requests a second, from the beginning to the end of the last one; 0 if there was
    /// none.
    pub fn requests_per_second(&self) -> f64 {
        let requests = self.reads.count() + self.writes.count() + self.flushes.count();
        let took_ns = self.last_ns.saturating_sub(self.since_ns);
        if took_ns == 0 { 0.0 } else { requests as f64 * 1e9 / took_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_years_is_no_shorter_than_its_mean() {
        let mut times = Latencies::default();
        for ns in [5_000_001, 40_000_000_000_000, Nanos::MAX / 2] {
            times.add(ns);
            assert_eq!(times.max_ns(), ns, "the longest is exact");
            assert!(times.mean_ns() <= ns as f64, "{ns}");
            assert!((1..=100).all(|percent| times.percentile_ns(percent.into()) <= ns), "{ns}");
        }
        let half = times.percentile_ns(50.0) as f64 / 4e13;
        assert!((0.999..1.001).contains(&half), "{half}");
    }
}
