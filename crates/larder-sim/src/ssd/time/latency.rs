//! How long requests took: counts in buckets of three digits, as HdrHistogram keeps them; the mean and the longest are exact.
//!
//! Invariant: no percentile is above the longest, however long requests took.
//!
//! What it does not do: know when anything happened.

use hdrhistogram::Histogram;

use super::Nanos;

/// See the module.
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
    /// One request.
    pub fn add(&mut self, ns: Nanos) {
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
        // There is a bucket for every number: nothing is above the last.
        self.histogram.saturating_record(ns);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean, in nanoseconds; 0 where there were none.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// So many percent took no longer, in nanoseconds.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent).min(self.max_ns)
    }

    /// The longest, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

/// How long what took, from some time on.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
    /// Pages read that the buffer had.
    pub buffer_hits: u64,
    /// Pages written that never came to the translation layer: written again, or trimmed, while they waited.
    pub absorbed: u64,
    /// Since when that is told.
    pub since_ns: Nanos,
    /// When the last request was over; 0 where none was.
    pub last_ns: Nanos,
    /// How long the controller hashed.
    pub hashing_ns: u128,
}

impl Times {
    /// Requests a second, from the beginning to the end of the last one; 0 where there was none.
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
