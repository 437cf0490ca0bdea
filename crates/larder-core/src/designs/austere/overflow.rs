//! Large counts of the sketch: the part above 15, in a small table by the counter's number.
//!
//! The table is part of an index with a budget, so it is not a library's. It grows by a quarter,
//! not to twice its size. Its maximum size is known beforehand and can be set. A counter without
//! room is refused.
//!
//! It probes linearly over words; the words behind a removed one move up.
//!
//! Invariants: a fifth of the words is free, at least one. A counter with a large count is there
//! once, and no other is. The allocated words never exceed the maximum, during growth included.
//!
//! It does not shrink, or know the full counters.

use crate::types::mix;

/// Words of the first allocation.
const WORDS_FIRST: usize = 8;
/// No maximum: more words than counters.
const WORDS_ENDLESS: usize = 1 << 33;
/// A free word: each counter has a count that is not 0.
const FREE: u64 = 0;

/// See the module.
pub(super) struct Overflow {
    /// A counter's number above, its count beyond 15 below.
    words: Vec<u64>,
    len: usize,
    words_max: usize,
}

impl Overflow {
    /// Creates a table with at most `bytes_max` allocated at a time.
    pub fn new(bytes_max: u64) -> Overflow {
        let words_max = usize::try_from(bytes_max / size_of::<u64>() as u64).unwrap_or(usize::MAX);
        Overflow { words: Vec::new(), len: 0, words_max }
    }

    /// Returns whether [`Overflow::clear`] would make it larger.
    pub fn is_below_its_maximum(&self) -> bool {
        self.words.len() < self.words_max
    }

    /// Forgets all counters, and allocates the maximum, if there is one, without the old table.
    pub fn clear(&mut self) {
        (self.words, self.len) = (Vec::new(), 0);
        if self.words_max < WORDS_ENDLESS {
            self.words = vec![FREE; self.words_max];
        }
    }

    /// Returns the large count of `counter`.
    pub fn get(&self, counter: u32) -> u32 {
        self.find(counter).map_or(0, |at| self.words[at] as u32)
    }

    /// Adds one to `counter`; false if there is no room for another counter.
    pub fn add(&mut self, counter: u32) -> bool {
        if let Some(at) = self.find(counter) {
            self.words[at] += 1;
            return true;
        }
        if !has_room_for(self.len + 1, self.words.len()) && !self.grow() {
            return false;
        }
        self.insert(u64::from(counter) << 32 | 1);
        self.len += 1;
        true
    }

    /// Takes one from `counter`; false if it has none.
    pub fn take(&mut self, counter: u32) -> bool {
        let Some(at) = self.find(counter) else { return false };
        self.words[at] -= 1;
        if self.words[at] as u32 == 0 {
            self.len -= 1;
            self.remove(at);
        }
        true
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Grows by a quarter, if old and new words together stay under the maximum.
    fn grow(&mut self) -> bool {
        let words = grown(self.words.len());
        if words.saturating_add(self.words.len()) > self.words_max {
            return false;
        }
        let words = std::mem::replace(&mut self.words, vec![FREE; words]);
        words.into_iter().filter(|word| *word != FREE).for_each(|word| self.insert(word));
        true
    }

    /// Returns the position of `counter`.
    fn find(&self, counter: u32) -> Option<usize> {
        if self.words.is_empty() {
            return None;
        }
        let mut at = home(counter, self.words.len());
        while self.words[at] != FREE {
            if (self.words[at] >> 32) as u32 == counter {
                return Some(at);
            }
            at = next(at, self.words.len());
        }
        None
    }

    /// Inserts a word whose counter is missing.
    fn insert(&mut self, word: u64) {
        let mut at = home((word >> 32) as u32, self.words.len());
        while self.words[at] != FREE {
            at = next(at, self.words.len());
        }
        self.words[at] = word;
    }

    /// Frees a word, and moves there a counter whose search would end at it.
    fn remove(&mut self, mut free: usize) {
        let len = self.words.len();
        self.words[free] = FREE;
        let mut at = next(free, len);
        while self.words[at] != FREE {
            let home = home((self.words[at] >> 32) as u32, len);
            // Steps from its home to its place, and to the free word: a search crosses the free
            // word if that is nearer.
            let (to_it, to_free) = ((at + len - home) % len, (free + len - home) % len);
            if to_free < to_it {
                self.words[free] = std::mem::replace(&mut self.words[at], FREE);
                free = at;
            }
            at = next(at, len);
        }
    }
}

/// Returns the bytes of a table with at most `counters` at a time.
pub(super) fn ram_bytes_max(counters: u64) -> u64 {
    let mut words = 0;
    while counters > 0 && !has_room_for(counters as usize, words) {
        words = grown(words);
    }
    (words * size_of::<u64>()) as u64
}

/// Returns whether `words` may have `len` counters.
fn has_room_for(len: usize, words: usize) -> bool {
    len <= words / 5 * 4
}

fn grown(words: usize) -> usize {
    words + words / 4 + WORDS_FIRST
}

fn home(counter: u32, words: usize) -> usize {
    ((u64::from(mix(u64::from(counter)) as u32) * words as u64) >> 32) as usize
}

fn next(at: usize, words: usize) -> usize {
    if at + 1 == words { 0 } else { at + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_is_a_map_of_counts_and_no_larger_than_is_said() {
        for most in [1u64, 5, 6, 7, 100, 3000] {
            let mut overflow = Overflow::new(u64::MAX);
            let mut model: HashMap<u32, u32> = HashMap::new();
            for step in 0..60_000u64 {
                let bits = mix(step << 16 ^ most);
                // Numbers with homes near each other, and those of other rows.
                let counter = (bits % (2 * most)) as u32 + (bits >> 40 & 3) as u32 * 0x4000_0000;
                if bits >> 50 & 1 == 1 && (model.contains_key(&counter) || model.len() < most as usize) {
                    assert!(overflow.add(counter), "it has room for all");
                    *model.entry(counter).or_insert(0) += 1;
                } else {
                    assert_eq!(overflow.take(counter), model.contains_key(&counter), "step {step}");
                    match model.get(&counter).copied() {
                        Some(1) | None => model.remove(&counter),
                        Some(count) => model.insert(counter, count - 1),
                    };
                }
                let other = (bits >> 20) as u32 % (2 * most as u32);
                assert_eq!(overflow.get(other), model.get(&other).copied().unwrap_or(0), "step {step}");
                assert_eq!(overflow.len, model.len());
                assert!(overflow.ram_bytes() as u64 <= ram_bytes_max(most), "{} of {most}", overflow.len);
            }
            assert!(model.iter().all(|(&counter, &count)| overflow.get(counter) == count));
        }
        assert_eq!(Overflow::new(u64::MAX).ram_bytes() as u64, ram_bytes_max(0));
        // A word, a fifth that stays free, and a quarter from the last growth.
        assert!((10.0..12.6).contains(&(ram_bytes_max(1_000_000) as f64 / 1e6)));
    }

    #[test]
    fn it_refuses_what_it_has_no_room_for_and_what_is_there_stays() {
        for words_max in [0u64, 1, 4, 5, 7, 8, 20, 100, 1001] {
            let mut overflow = Overflow::new(words_max * 8 + 7);
            let fill = |overflow: &mut Overflow| {
                let (there, refused): (Vec<u32>, Vec<u32>) =
                    (0..2000u32).map(|n| n * 77).partition(|&counter| overflow.add(counter));
                assert!(there.iter().all(|&counter| overflow.add(counter) && overflow.get(counter) == 2));
                assert!(refused.iter().all(|&counter| overflow.get(counter) == 0 && !overflow.take(counter)));
                assert!(overflow.ram_bytes() as u64 <= words_max * 8, "{words_max}: {}", overflow.ram_bytes());
                there.len() as u64
            };
            let grown = fill(&mut overflow);
            assert!(grown >= if words_max < 8 { 0 } else { words_max / 5 }, "{words_max}: room for {grown}");
            // Old and new words stay under the maximum together, so growth ends at some half of it.
            assert_eq!(overflow.is_below_its_maximum(), words_max > 0 && words_max != WORDS_FIRST as u64);
            overflow.clear();
            assert!(!overflow.is_below_its_maximum());
            assert_eq!(fill(&mut overflow), words_max / 5 * 4, "{words_max}");
        }
    }
}
