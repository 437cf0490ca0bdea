//! A set of numbers below a limit, with a fast search for the largest.
//!
//! It is a bitmap, over it a bitmap of its words that are not empty, and so on, up to one word.
//!
//! Invariants: a bit of an upper level is set exactly if its word of the level below is not 0.
//! Memory: 65/64 bits a number, for any set.
//!
//! It does not count.

/// The set.
pub(super) struct Bits {
    /// The lowest level first; the last has one word.
    levels: Vec<Vec<u64>>,
}

impl Bits {
    /// Makes the empty set of numbers below `limit`.
    pub fn new(limit: usize) -> Bits {
        let mut levels = Vec::new();
        let mut words = limit;
        loop {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
            if words == 1 {
                return Bits { levels };
            }
        }
    }

    /// Adds a number that is below the limit.
    pub fn insert(&mut self, number: u32) {
        let mut at = number as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    /// Takes a number out. Returns true if it was in.
    pub fn remove(&mut self, number: u32) -> bool {
        let mut at = number as usize;
        if self.levels[0][at / 64] >> (at % 64) & 1 == 0 {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
        true
    }

    /// Returns true if the number is in. It is below the limit.
    pub fn contains(&self, number: u32) -> bool {
        self.levels[0][number as usize / 64] >> (number % 64) & 1 == 1
    }

    /// Returns the largest number.
    pub fn largest(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            at = at * 64 + level[at].checked_ilog2()? as usize;
        }
        // Numbers were 32 bits wide when they came in.
        Some(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use larder_trace::rng::TraceRng;

    use super::*;

    #[test]
    fn does_as_a_tree_does() {
        for (seed, limit) in [(1, 1u64), (2, 64), (3, 65), (4, 4096), (5, 4097), (6, 300_000)] {
            let mut rng = TraceRng::new(seed);
            let mut bits = Bits::new(limit as usize);
            let mut model = BTreeSet::new();
            for step in 0..20_000 {
                // Often near the largest, so that whole words become empty.
                let near = model.last().map_or(0, |last| u64::from(*last) + 2);
                let bound = if rng.chance(0.3) { near.min(limit) } else { limit };
                let number = rng.below(bound) as u32;
                if rng.chance(0.5) {
                    bits.insert(number);
                    model.insert(number);
                } else {
                    let taken = if rng.chance(0.5) { model.last().copied().unwrap_or(number) } else { number };
                    assert_eq!(bits.remove(taken), model.remove(&taken), "seed {seed}, step {step}");
                }
                assert_eq!(bits.largest(), model.last().copied(), "seed {seed}, step {step}");
                assert_eq!(bits.contains(number), model.contains(&number), "seed {seed}, step {step}");
            }
        }
    }
}
