//! Seeded randomness for the tests of this crate and of `larder-sim`.
//!
//! The same seed gives the same run on every machine. It is random enough for tests only.

// Each test file compiles this for itself and uses a part of it.
#![allow(dead_code)]

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Rng(u64);

impl Rng {
    /// Creates a generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6c61_7264_6572)
    }

    /// Returns 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// Returns a number below `n`, small ones more often.
    pub fn skewed(&mut self, n: u64) -> u64 {
        let bound = 1 + self.below(n);
        self.below(bound)
    }

    /// Returns true `percent` times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `items`, if there are any.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        (!items.is_empty()).then(|| self.one_of(items))
    }

    /// Returns one of `items`, which are not empty.
    pub fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// Runs `test` for each seed; a panic is preceded by its seed.
pub fn for_seeds(seeds: std::ops::Range<u64>, test: impl Fn(u64)) {
    struct Tell(u64);
    impl Drop for Tell {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with seed {}", self.0);
            }
        }
    }
    for seed in seeds {
        let tell = Tell(seed);
        test(seed);
        std::mem::forget(tell);
    }
}
