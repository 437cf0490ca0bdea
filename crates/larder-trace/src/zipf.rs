//! Numbers that follow Zipf's law, and seeded permutations.
//!
//! Each number is drawn in constant time and without a table, by rejection-inversion (Hörmann and
//! Derflinger, 1996). With a permutation the popular numbers lie anywhere.
//!
//! Invariants: memory is a few words, for any range.
//!
//! It does not take exponents below 0.

use crate::rng::{TraceRng, mix};

/// Zipf's law over the ranks 0 to `count` - 1: rank k is drawn in proportion to 1/(k + 1)^exponent.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    exponent: f64,
    /// The integral of the hat function from its first to its last point. `near` is the distance to
    /// a rank that needs no test.
    integral_first: f64,
    integral_last: f64,
    near: f64,
}

impl Zipf {
    /// Makes the law of `count` ranks (at least one), with an exponent of 0 (uniform) or more.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        let count = count.max(1);
        let exponent = exponent.max(0.0);
        let mut zipf = Zipf { count, exponent, integral_first: 0.0, integral_last: 0.0, near: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(count as f64 + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.hat(2.0));
        zipf
    }

    /// Draws a rank.
    pub fn sample(&self, rng: &mut TraceRng) -> u64 {
        loop {
            let area = self.integral_last + rng.unit() * (self.integral_first - self.integral_last);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.count as f64);
            if rank - x <= self.near || area >= self.integral(rank + 0.5) - self.hat(rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// Returns x^-exponent.
    fn hat(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns the integral of the hat from 1 to x: (x^(1 - exponent) - 1) / (1 - exponent), or ln
    /// x.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        // exp_m1(t)/t near 0 by its series.
        if scaled.abs() > 1e-8 { scaled.exp_m1() / scaled * log } else { (1.0 + scaled / 2.0) * log }
    }

    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let log = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled * area } else { (1.0 - scaled / 2.0) * area };
        log.exp()
    }
}

/// Rounds of the Feistel network.
const ROUNDS: u64 = 4;

/// A seeded permutation of 0 to `count` - 1. It is a Feistel network over the next even power of
/// two, walked until it is back in the range.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// Makes a permutation of `count` numbers (at least one), at most 2^62.
    pub fn new(count: u64, seed: u64) -> Permutation {
        let count = count.clamp(1, 1 << 62);
        let bits = 64 - (count - 1).leading_zeros();
        Permutation { count, half_bits: bits.div_ceil(2).max(1), seed: mix(seed) }
    }

    /// Returns the image of `number`. Numbers out of the range are taken modulo it.
    pub fn apply(&self, number: u64) -> u64 {
        let mut value = number % self.count;
        loop {
            value = self.step(value);
            if value < self.count {
                return value;
            }
        }
    }

    fn step(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ mix(right ^ self.seed.wrapping_add(round << 56)) & mask);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.3] {
            let count = 1000;
            let zipf = Zipf::new(count, exponent);
            let mut rng = TraceRng::new(5);
            let draws = 400_000;
            let mut hits = vec![0u64; count as usize];
            (0..draws).for_each(|_| hits[zipf.sample(&mut rng) as usize] += 1);
            let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
            let total: f64 = (0..count as usize).map(weight).sum();
            // The test covers the whole distribution: the largest distance of the sums (Kolmogorov
            // and Smirnov, far beyond 1 in 10^6).
            let (mut seen, mut expected, mut worst) = (0.0, 0.0, 0.0f64);
            for (rank, hits) in hits.iter().enumerate() {
                seen += *hits as f64 / draws as f64;
                expected += weight(rank) / total;
                worst = worst.max((seen - expected).abs());
            }
            assert!(worst < 2.7 / (draws as f64).sqrt(), "exponent {exponent}: {worst}");
        }
        assert_eq!(Zipf::new(1, 1.0).sample(&mut TraceRng::new(1)), 0);
    }

    #[test]
    fn a_permutation_hits_everything_once() {
        for count in [1, 2, 3, 100, 1000, 4096, 5000] {
            let permutation = Permutation::new(count, 9);
            let mut hit = vec![false; count as usize];
            for number in 0..count {
                let at = permutation.apply(number) as usize;
                assert!(!std::mem::replace(&mut hit[at], true), "{count}: {at} twice");
            }
        }
        let other: Vec<u64> = (0..50).map(|n| Permutation::new(50, 1).apply(n)).collect();
        assert_ne!(other, (0..50).map(|n| Permutation::new(50, 2).apply(n)).collect::<Vec<_>>());
    }
}
