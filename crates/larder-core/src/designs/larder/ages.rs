//! Ages in half-octaves: the time since an event, as a bin of a life table.
//!
//! Time is counted in requests of chunks. The first bin has the ages below the second edge; each
//! further bin is wider than the one before by the root of two. The last has all older ages.
//!
//! Invariants: bins ascend with age, and each age has one bin.

/// Bins of a life table.
pub const BINS: usize = 32;

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
    fn bins_ascend() {
        let ages = Ages::new(64);
        let bins: Vec<usize> = (0..5000).map(|age| ages.bin(age)).collect();
        assert!(bins.is_sorted() && bins[0] == 0 && bins[63] == 0);
    }
}
