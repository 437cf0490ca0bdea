//! The distribution of request sizes: exact percentiles, and a histogram of powers of two.
//!
//! Invariants: memory is 16 bytes for each distinct size. Sizes are multiples of a sector up to 1
//! GiB, and real traces have a few hundred.
//!
//! It does not keep the order of requests.

use std::collections::BTreeMap;

/// The number of requests of each size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeCounts {
    counts: BTreeMap<u64, u64>,
    requests: u64,
    bytes: u64,
}

impl SizeCounts {
    pub(crate) fn add(&mut self, bytes: u64) {
        *self.counts.entry(bytes).or_default() += 1;
        self.requests += 1;
        self.bytes += bytes;
    }

    /// Returns the number of requests counted.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the mean size in bytes.
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.bytes as f64 / self.requests as f64)
    }

    /// Returns the smallest size that at least `share` (0 to 1) of the requests do not exceed.
    pub fn percentile_bytes(&self, share: f64) -> Option<u64> {
        let wanted = (share * self.requests as f64).ceil() as u64;
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        found.or(self.counts.last_key_value()).map(|(bytes, _)| *bytes)
    }

    /// Returns the largest size.
    pub fn max_bytes(&self) -> Option<u64> {
        self.counts.last_key_value().map(|(bytes, _)| *bytes)
    }

    /// Returns powers of two, each with its number of requests. A request counts at the least power
    /// that is not below its size. Empty powers are left out.
    pub fn histogram(&self) -> Vec<(u64, u64)> {
        let mut powers: Vec<(u64, u64)> = Vec::new();
        for (&bytes, &count) in &self.counts {
            let power = bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
            match powers.last_mut() {
                Some((last, sum)) if *last == power => *sum += count,
                _ => powers.push((power, count)),
            }
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_powers() {
        let mut sizes = SizeCounts::default();
        assert_eq!((sizes.percentile_bytes(0.5), sizes.mean_bytes(), sizes.max_bytes()), (None, None, None));
        for (bytes, count) in [(512, 50), (4096, 40), (4608, 9), (1 << 20, 1)] {
            (0..count).for_each(|_| sizes.add(bytes));
        }
        let percentiles = [0.0, 0.5, 0.51, 0.9, 0.99, 1.0].map(|share| sizes.percentile_bytes(share).unwrap());
        assert_eq!(percentiles, [512, 512, 4096, 4096, 4608, 1 << 20]);
        assert_eq!(sizes.histogram(), [(512, 50), (4096, 40), (8192, 9), (1 << 20, 1)]);
        assert_eq!((sizes.requests(), sizes.max_bytes()), (100, Some(1 << 20)));
    }
}
