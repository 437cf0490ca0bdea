//! Hits and requests of a replay, and their ratios in CacheDedup §5.1 and AustereCache §5.3.
//!
//! It does not count a warm-up apart: the caller begins a tally at its end.

use crate::traffic::Traffic;

/// Requests of chunks, and their hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads.
    pub reads: u64,
    /// Read hits: the address was cached, with its data (CacheDedup §3.2).
    pub read_hits: u64,
    /// Writes.
    pub writes: u64,
    /// Write hits, in the same sense.
    pub write_hits: u64,
    /// Chunks trimmed.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Tally {
    /// Takes the answer to a read.
    #[inline]
    pub fn read(&mut self, is_hit: bool) {
        self.reads += 1;
        self.read_hits += u64::from(is_hit);
    }

    /// Takes the answer to a write.
    #[inline]
    pub fn write(&mut self, is_hit: bool) {
        self.writes += 1;
        self.write_hits += u64::from(is_hit);
    }

    /// Returns the reads and writes.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Returns the read hits among reads (AustereCache §5.3, Exp#3). 0 if there was no read, and
    /// so on.
    pub fn read_hit_ratio(&self) -> f64 {
        ratio(self.read_hits, self.reads)
    }

    /// Returns the write hits among writes.
    pub fn write_hit_ratio(&self) -> f64 {
        ratio(self.write_hits, self.writes)
    }

    /// Returns the read misses among all requests: CacheDedup's read miss ratio (§5.1, metric 1).
    pub fn read_miss_ratio(&self) -> f64 {
        ratio(self.reads - self.read_hits, self.requests())
    }

    /// Returns the write misses among all requests: CacheDedup's write miss ratio (§5.1, metric
    /// 1).
    pub fn write_miss_ratio(&self) -> f64 {
        ratio(self.writes - self.write_hits, self.requests())
    }

    /// Returns the misses among all requests: the sum of the two.
    pub fn total_miss_ratio(&self) -> f64 {
        ratio(self.requests() - self.read_hits - self.write_hits, self.requests())
    }

    /// Returns the chunks written to flash for each request (CacheDedup §5.1, metric 3).
    ///
    /// Metadata is not in it: with it the paper's reduction by 89% (§5.3) could not be, in
    /// write-back, since each write commits metadata.
    pub fn writes_to_flash_ratio(&self, traffic: &Traffic) -> f64 {
        ratio(traffic.chunks_stored, self.requests())
    }
}

/// Returns `part` of `whole`, 0 if there is nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn miss_ratios_are_of_all_requests_and_hit_ratios_of_their_own() {
        let mut tally = Tally::default();
        assert_eq!((tally.total_miss_ratio(), tally.read_hit_ratio()), (0.0, 0.0));
        (0..10).for_each(|i| tally.read(i < 6));
        (0..30).for_each(|i| tally.write(i < 3));
        assert_eq!((tally.read_hit_ratio(), tally.write_hit_ratio()), (0.6, 0.1));
        assert_eq!((tally.read_miss_ratio(), tally.write_miss_ratio()), (0.1, 0.675));
        assert_eq!(tally.total_miss_ratio(), 31.0 / 40.0);
        let traffic = Traffic { chunks_stored: 10, ..Traffic::default() };
        assert_eq!(tally.writes_to_flash_ratio(&traffic), 0.25);
    }
}
