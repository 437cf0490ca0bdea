//! Ages in half-octaves: the time since an event, as a bin of a life table.
//!
//! Time is counted in requests of chunks. The first bin has the ages below the second edge; each
//! further bin is wider than the one before by the root of two. The last has all older ages.
//!
//! Invariants: bins ascend with age, and each age has one bin.

/// Bins of a life table.
pub const BINS: usize = 32;

/// Bits of a stamp.
const STAMP_BITS: u32 = 24;
/// Stamps of the first half-octave.
const STAMPS_A_UNIT: u32 = 4;

/// A time of 24 bits, some requests apart. Ages of 2^22 units look younger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub u32);

/// The edges of the bins for a cache of a certain size.
#[derive(Clone, Debug)]
pub struct Ages {
    /// The age at which the half-octaves begin.
    unit: u32,
    widths: [f64; BINS],
}

impl Ages {
    /// Returns ages whose half-octaves begin at `unit` requests.
    pub fn new(unit: u32) -> Ages {
        let edge = |bin: usize| {
            let octave = f64::from(unit) * (1u64 << (bin / 2)) as f64;
            if bin.is_multiple_of(2) { octave } else { octave * std::f64::consts::SQRT_2 }
        };
        let width = |bin: usize| if bin == 0 { edge(1) } else { edge(bin + 1) - edge(bin) };
        Ages { unit: unit.max(1), widths: std::array::from_fn(width) }
    }

    /// Requests between two stamps, as a power of two: it divides the range of times.
    fn stamp_shift(&self) -> u32 {
        (self.unit / STAMPS_A_UNIT).max(1).ilog2()
    }

    fn stamp_mask(&self) -> u32 {
        u32::MAX >> self.stamp_shift().max(u32::BITS - STAMP_BITS)
    }

    /// Returns the stamp of a time.
    #[inline]
    pub fn stamp(&self, now: u32) -> Stamp {
        Stamp(now >> self.stamp_shift() & self.stamp_mask())
    }

    /// Returns the requests since a stamp.
    #[inline]
    pub fn since(&self, stamp: Stamp, now: u32) -> u32 {
        (self.stamp(now).0.wrapping_sub(stamp.0) & self.stamp_mask()) << self.stamp_shift()
    }

    /// Returns the bin of an age.
    #[inline]
    pub fn bin(&self, age: u32) -> usize {
        let octaves = (age / self.unit).max(1).ilog2();
        // The upper half begins at the root of two: squares are compared.
        let low = u64::from(self.unit) << octaves;
        let is_upper = u128::from(age) * u128::from(age) >= 2 * u128::from(low) * u128::from(low);
        (2 * octaves as usize + usize::from(is_upper)).min(BINS - 1)
    }

    /// Returns the least age of a bin.
    pub fn least(&self, bin: usize) -> u32 {
        let before: f64 = self.widths[..bin].iter().sum();
        before.ceil() as u32
    }

    /// Returns the widths of the bins, in requests.
    pub fn widths(&self) -> &[f64; BINS] {
        &self.widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_age_lies_in_the_bin_of_its_edges() {
        for unit in [64, 1000] {
            let ages = Ages::new(unit);
            let mut end = 0.0;
            for bin in 0..BINS - 1 {
                let begin = end;
                end += ages.widths()[bin];
                assert_eq!(ages.bin((begin + 1e-6).ceil() as u32), bin, "unit {unit}");
                assert_eq!(ages.bin(ages.least(bin)), bin, "unit {unit}");
                assert_eq!(ages.bin((end - 1e-6).floor() as u32), bin, "unit {unit}");
            }
        }
    }

    #[test]
    fn stamps_tell_ages_over_the_ends_of_both_ranges() {
        for unit in [1, 64, 1000, 64 << 12] {
            let ages = Ages::new(unit);
            for begin in [0, 5, u32::MAX - 1000] {
                for age in [0, 64, 10_000, 1 << 21] {
                    let since = ages.since(ages.stamp(begin), u32::wrapping_add(begin, age));
                    let step = 1 << ages.stamp_shift();
                    assert!(since.abs_diff(age) < step && step <= unit.max(1), "{unit} {begin} {age} {since}");
                }
            }
            assert!(ages.stamp(u32::MAX).0 < 1 << STAMP_BITS);
        }
    }

    #[test]
    fn bins_ascend() {
        let ages = Ages::new(64);
        let bins: Vec<usize> = (0..5000).map(|age| ages.bin(age)).collect();
        assert!(bins.is_sorted() && bins[0] == 0 && bins[63] == 0);
    }
}
