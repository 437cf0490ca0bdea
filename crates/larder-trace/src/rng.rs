//! Seeded random numbers: one seed, one stream, on every machine and in every version of Larder.
//!
//! That promise excludes a crate's generator: the streams of `rand` change with its versions. A
//! trace that a paper or a bug report names by its seed must stay the same. The generator is
//! SplitMix64 (Steele, Lea and Flood, OOPSLA'14), the normal deviates are Box and Muller's (1958).
//!
//! It does not serve cryptography.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct TraceRng {
    state: u64,
}

/// Scrambles a number: equal numbers give equal results, others look unrelated.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Returns the upper 53 bits as a number from 0 to just below 1.
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns a normal deviate (mean 0, variance 1) of two random words.
pub fn normal(a: u64, b: u64) -> f64 {
    // Above 0, so that the logarithm is finite.
    let u = 1.0 - unit(a);
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * unit(b)).cos()
}

impl TraceRng {
    /// Begins the stream of a seed.
    pub fn new(seed: u64) -> TraceRng {
        TraceRng { state: mix(seed) }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let value = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }

    /// Returns a number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper word of the product; its bias is below 2^-20 for all bounds below 2^44.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from 0 to just below 1.
    pub fn unit(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// Returns true with a probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns a normal deviate.
    pub fn normal(&mut self) -> f64 {
        normal(self.next_u64(), self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_keeps_its_stream() {
        let mut rng = TraceRng::new(1);
        let first = [rng.next_u64(), rng.next_u64()];
        assert_eq!(first, [mix(mix(1)), mix(mix(1).wrapping_add(0x9e37_79b9_7f4a_7c15))]);
        // SplitMix64 of seed 0 begins so in its authors' code.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn moments_are_right() {
        let mut rng = TraceRng::new(2);
        let count = 200_000;
        let (mut sum, mut squares, mut units) = (0.0, 0.0, 0.0);
        for _ in 0..count {
            let deviate = rng.normal();
            sum += deviate;
            squares += deviate * deviate;
            units += rng.unit();
            assert!(rng.below(7) < 7);
        }
        let count = f64::from(count);
        assert!(
            (sum / count).abs() < 0.01 && (squares / count - 1.0).abs() < 0.02 && (units / count - 0.5).abs() < 0.005
        );
        assert_eq!(rng.below(0), 0);
    }
}
