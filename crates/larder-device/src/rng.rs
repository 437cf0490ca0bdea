//! [`Rng`]: a small seeded generator for simulations and tests.
//!
//! It is xoshiro256++, seeded by splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom
//! number generators", 2021).
//!
//! Invariants: a seed gives the same numbers on every machine and in every version of this crate.
//! So the seed printed by a failure replays it.
//!
//! It does not provide security, or any distribution but the uniform one.

/// A seeded stream of uniform random numbers.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// Spreads the bits of `x` over all 64 (the finalizer of splitmix64): a cheap hash of a number.
pub fn mix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// Returns the stream of `seed`, which may be any number.
    pub fn new(seed: u64) -> Rng {
        let state = |i: u64| mix64(seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Rng([state(0), state(1), state(2), state(3)])
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number in `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        // The bias of a multiply without rejection is under bound / 2^64, which nothing here can
        // see.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index into a list of `len` elements.
    ///
    /// # Panics
    /// If `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns a number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true `yes` times out of `of`.
    ///
    /// # Panics
    /// If `of` is 0.
    pub fn chance(&mut self, yes: u64, of: u64) -> bool {
        self.below(of) < yes
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Shuffles `items` in place into a random permutation.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    /// Returns a stream of its own for a part of the program.
    ///
    /// The number of draws in one part then does not shift another's numbers.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut rng = Rng::new(42);
        // splitmix64 of seed 0 begins with this word (its published test vector).
        assert_eq!(mix64(0), 0xe220_a839_7b1d_cdaf);
        let first = [rng.next_u64(), rng.next_u64()];
        let mut again = Rng::new(42);
        assert_eq!(first, [again.next_u64(), again.next_u64()]);
        assert_eq!(first, [15_021_278_609_987_233_951, 5_881_210_131_331_364_753]);
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let mut rng = Rng::new(1);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[rng.index(10)] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        let mean = (0..10_000).map(|_| rng.unit()).sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
        assert!((0..100).all(|_| rng.chance(1, 1) && !rng.chance(0, 1)));
    }

    #[test]
    fn shuffles_keep_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
