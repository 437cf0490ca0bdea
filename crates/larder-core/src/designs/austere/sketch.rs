//! Estimated reference counts: a Count-Min Sketch (AustereCache §3.3; Cormode and Muthukrishnan, 2005).
//!
//! Four rows of as many counters as the LBA index has slots. The paper does not say how wide a counter is. Ours have 4 bits;
//! what goes beyond 15 is in a table by the counter's number ([`overflow`](super::overflow)), which holds few: all counters of a row
//! sum up to one and a half times the slots of the LBA index.
//!
//! That table may have a maximum. What it has no room for is lost, and the counter stays at 15 whatever is taken from it, since
//! nobody knows what it should be, until all is counted anew: [`wants_recount`](Sketch::wants_recount) says when that is worth it.
//!
//! Invariants: an estimate is never below the true count, or, where some of it was lost, below 15; as long as nothing is taken that was
//! not added. So the estimate 0 is exact.
//!
//! Counts that stay below 15 can be [exchanged](Sketch::exchange) by several threads at once; nobody estimates meanwhile.
//!
//! What it does not do: know what is counted.

use super::{
    keys::Key,
    overflow::{self, Overflow},
};
use crate::types::mix;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Rows, the paper's 4.
pub const ROWS: u32 = 4;
/// A row has no more counters, so that 32 bits number them all.
pub const WIDTH_MAX: u32 = 1 << 30;

const COUNTER_BITS: u32 = 4;
/// What a counter holds alone.
pub const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
const COUNTERS_PER_WORD: u32 = u64::BITS / COUNTER_BITS;

/// The sketch.
pub struct Sketch {
    width: u32,
    words: Vec<AtomicU64>,
    /// What a counter has beyond 15; none where that is nothing.
    overflow: Overflow,
    /// Whether something was lost since all was counted: then a counter at 15 may stand for more.
    is_lossy: bool,
    /// What was lost since then, and what was not taken for that reason.
    doubts: u64,
}

impl Sketch {
    /// With `width` counters in each row, 1 to [`WIDTH_MAX`], and no more than `large_bytes_max` allocated for large counts.
    pub fn new(width: u32, large_bytes_max: u64) -> Sketch {
        let width = width.clamp(1, WIDTH_MAX);
        let words = (Sketch::counter_bytes(width.into()) / size_of::<u64>() as u64) as usize;
        let overflow = Overflow::new(large_bytes_max);
        Sketch { width, words: (0..words).map(|_| AtomicU64::new(0)).collect(), overflow, is_lossy: false, doubts: 0 }
    }

    /// Adds one.
    #[inline]
    pub fn add(&mut self, key: Key) {
        for counter in self.counters(key) {
            let (word, shift) = place(counter);
            let word = self.words[word].get_mut();
            if *word >> shift & COUNTER_MAX < COUNTER_MAX {
                *word += 1 << shift;
            } else if !self.overflow.add(counter) {
                self.is_lossy = true;
                self.doubts += 1;
            }
        }
    }

    /// Takes one that was added.
    #[inline]
    pub fn take(&mut self, key: Key) {
        for counter in self.counters(key) {
            let (word, shift) = place(counter);
            let word = self.words[word].get_mut();
            let count = *word >> shift & COUNTER_MAX;
            assert!(count > 0, "a reference is taken that was not counted");
            if count < COUNTER_MAX || !self.overflow.take(counter) {
                match count == COUNTER_MAX && self.is_lossy {
                    true => self.doubts += 1,
                    false => *word -= 1 << shift,
                }
            }
        }
    }

    /// Adds one of `added` and takes one of `taken`, which was added, beside others who do so. False, and nothing changed, where a
    /// counter is, or would be, at 15: what is beyond is in a table that one has for oneself.
    pub fn exchange(&self, added: Key, taken: Option<Key>) -> bool {
        let taken = taken.map(|taken| self.counters(taken));
        // One that is below 15 stays there, for nobody who is here adds up to that.
        if taken.iter().flatten().any(|&counter| self.count(counter) == COUNTER_MAX) {
            return false;
        }
        let added = self.counters(added);
        for (done, &counter) in added.iter().enumerate() {
            let (word, shift) = place(counter);
            let more = |word: u64| (word >> shift & COUNTER_MAX < COUNTER_MAX - 1).then(|| word + (1 << shift));
            if self.words[word].fetch_update(Relaxed, Relaxed, more).is_err() {
                added.iter().take(done).for_each(|&counter| self.take_below_15(counter));
                return false;
            }
        }
        taken.iter().flatten().for_each(|&counter| self.take_below_15(counter));
        true
    }

    /// Takes one from a counter that has one and is below 15.
    fn take_below_15(&self, counter: u32) {
        let (word, shift) = place(counter);
        let before = self.words[word].fetch_sub(1 << shift, Relaxed);
        debug_assert!((1..COUNTER_MAX).contains(&(before >> shift & COUNTER_MAX)), "a reference that was not counted");
    }

    #[inline(always)]
    fn count(&self, counter: u32) -> u64 {
        let (word, shift) = place(counter);
        self.words[word].load(Relaxed) >> shift & COUNTER_MAX
    }

    /// Whether enough is in doubt that all should be counted anew: anything, while the table of large counts can still grow by that,
    /// and then as much as makes it cost a few additions for each loss.
    #[inline(always)]
    pub fn wants_recount(&self) -> bool {
        self.doubts > 0 && (self.overflow.is_below_its_maximum() || self.doubts >= u64::from(self.width))
    }

    /// Whether something was lost since all was counted.
    pub fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    /// Forgets all counts, for all to be added again.
    pub fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
        self.overflow.clear();
        self.is_lossy = false;
        self.doubts = 0;
    }

    /// All was added again: what did not fit this time does not call for another time.
    pub fn end_recount(&mut self) {
        self.doubts = 0;
    }

    /// How often `key` was added and not taken, or more.
    #[inline(always)]
    pub fn estimate(&self, key: Key) -> u32 {
        let counters = self.counters(key);
        let mut least = COUNTER_MAX;
        for counter in counters {
            least = least.min(self.count(counter));
        }
        if least < COUNTER_MAX { least as u32 } else { self.large_estimate(counters) }
    }

    /// The estimate where all four counters are full.
    #[cold]
    fn large_estimate(&self, counters: [u32; ROWS as usize]) -> u32 {
        counters.into_iter().fold(u32::MAX, |least, counter| least.min(COUNTER_MAX as u32 + self.overflow.get(counter)))
    }

    /// Bytes that the sketch has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>() + self.overflow.ram_bytes()
    }

    /// Bytes of the counters, with so many in each row.
    pub fn counter_bytes(width: u64) -> u64 {
        (width * u64::from(ROWS)).div_ceil(u64::from(COUNTERS_PER_WORD)) * size_of::<u64>() as u64
    }

    /// Bytes that the table of large counts needs at most, where no more is added, and not taken, than `count_max` at a time.
    pub fn large_bytes_max(count_max: u64) -> u64 {
        overflow::ram_bytes_max(count_max / (COUNTER_MAX + 1) * u64::from(ROWS))
    }

    /// The counter of each row. Two hashes of 32 bits make four (Kirsch and Mitzenmacher, 2006).
    #[inline(always)]
    fn counters(&self, key: Key) -> [u32; ROWS as usize] {
        let hash = mix(key.0);
        let (mut next, step) = (hash as u32, (hash >> 32) as u32 | 1);
        let mut counters = [0; ROWS as usize];
        let mut first = 0u32;
        // No `array::from_fn`, nor `map`: this is called for each slot of a bucket, and they are not inlined here.
        for counter in &mut counters {
            *counter = first + ((u64::from(next) * u64::from(self.width)) >> 32) as u32;
            (next, first) = (next.wrapping_add(step), first.wrapping_add(self.width));
        }
        counters
    }
}

#[inline]
fn place(counter: u32) -> (usize, u32) {
    ((counter / COUNTERS_PER_WORD) as usize, counter % COUNTERS_PER_WORD * COUNTER_BITS)
}
