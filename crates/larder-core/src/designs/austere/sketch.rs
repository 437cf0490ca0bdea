//! Estimated reference counts: a Count-Min Sketch (AustereCache §3.3; Cormode, Muthukrishnan
//! 2005).
//!
//! Four rows have as many counters as the LBA index has slots. The paper does not give the width of
//! a counter. Ours have 4 bits, and a table by the counter's number has the part above 15
//! ([`overflow`]). The table holds few, because all counters of a row sum up to one and a half
//! times the slots of the LBA index.
//!
//! That table may have a maximum, and loses counts beyond it. A counter with a loss stays at 15
//! even if references are taken, because its value is unknown, until all is counted anew.
//! [`wants_recount`](Sketch::wants_recount) tells when that is worth it.
//!
//! Invariants: while only added references are taken, an estimate is never below the true count, or
//! below 15 if some of it was lost. The estimate 0 is therefore exact.
//!
//! Several threads may add and take at once. A counter below 15 changes by itself, and a counter at
//! 15 under the lock of the large counts. A concurrent estimate may lack additions under way. A
//! caller that needs exact zero references therefore makes all calls itself meanwhile. No estimate
//! runs beside a recount.
//!
//! It does not know the counted objects.

use super::{
    keys::Key,
    overflow::{self, Overflow},
};
use crate::types::mix;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Number of rows, the paper's 4.
pub const ROWS: u32 = 4;
/// Maximum counters of a row, so that 32 bits number them all.
pub const WIDTH_MAX: u32 = 1 << 30;

const COUNTER_BITS: u32 = 4;
/// Maximum value of a counter alone.
pub const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
const COUNTERS_PER_WORD: u32 = u64::BITS / COUNTER_BITS;

/// The sketch.
pub struct Sketch {
    width: u32,
    words: Vec<AtomicU64>,
    /// Counts beyond 15. A counter leaves 15 only under this lock.
    overflow: Mutex<Overflow>,
    /// True if a count was lost since the last recount: a counter at 15 may then stand for more.
    is_lossy: AtomicBool,
    /// References that were lost since then, or not taken because of a loss.
    doubts: AtomicU64,
}

impl Sketch {
    /// Creates a sketch with `width` counters in each row, 1 to [`WIDTH_MAX`].
    ///
    /// Large counts allocate at most `large_bytes_max`.
    pub fn new(width: u32, large_bytes_max: u64) -> Sketch {
        let width = width.clamp(1, WIDTH_MAX);
        let words = (Sketch::counter_bytes(width.into()) / size_of::<u64>() as u64) as usize;
        Sketch {
            width,
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            overflow: Mutex::new(Overflow::new(large_bytes_max)),
            is_lossy: AtomicBool::new(false),
            doubts: AtomicU64::new(0),
        }
    }

    /// Adds one reference.
    #[inline]
    pub fn add(&self, key: Key) {
        for counter in self.counters(key) {
            let (word, shift) = place(counter);
            let more = |word: u64| (word >> shift & COUNTER_MAX < COUNTER_MAX).then(|| word + (1 << shift));
            while self.words[word].fetch_update(Relaxed, Relaxed, more).is_err() && !self.add_large(counter) {}
        }
    }

    /// Takes one added reference.
    #[inline]
    pub fn take(&self, key: Key) {
        for counter in self.counters(key) {
            let (word, shift) = place(counter);
            let less = |word: u64| {
                let count = word >> shift & COUNTER_MAX;
                assert!(count > 0, "a reference is taken that was not counted");
                (count < COUNTER_MAX).then(|| word - (1 << shift))
            };
            while self.words[word].fetch_update(Relaxed, Relaxed, less).is_err() && !self.take_large(counter) {}
        }
    }

    /// Adds one to a counter at 15; false if it has left 15.
    fn add_large(&self, counter: u32) -> bool {
        self.change_large(counter, |overflow| {
            if !overflow.add(counter) {
                self.is_lossy.store(true, Relaxed);
                self.doubts.fetch_add(1, Relaxed);
            }
        })
    }

    /// Takes one from a counter at 15; false if it has left 15.
    fn take_large(&self, counter: u32) -> bool {
        self.change_large(counter, |overflow| {
            if !overflow.take(counter) {
                let (word, shift) = place(counter);
                match self.is_lossy() {
                    true => self.doubts.fetch_add(1, Relaxed),
                    false => self.words[word].fetch_sub(1 << shift, Relaxed),
                };
            }
        })
    }

    /// Applies a change while the counter stays at 15; false if it is not there.
    #[cold]
    fn change_large(&self, counter: u32, change: impl FnOnce(&mut Overflow)) -> bool {
        let mut overflow = self.overflow.lock();
        let is_large = self.count(counter) == COUNTER_MAX;
        if is_large {
            change(&mut overflow);
        }
        is_large
    }

    #[inline(always)]
    fn count(&self, counter: u32) -> u64 {
        let (word, shift) = place(counter);
        self.words[word].load(Relaxed) >> shift & COUNTER_MAX
    }

    /// Returns whether a recount is worth it.
    ///
    /// Any doubt is enough while a recount can still enlarge the table of large counts. Later the
    /// doubts must be so many that the recount costs a few additions for each loss.
    #[inline(always)]
    pub fn wants_recount(&self) -> bool {
        let doubts = self.doubts.load(Relaxed);
        doubts > 0 && (doubts >= u64::from(self.width) || self.overflow.lock().is_below_its_maximum())
    }

    /// Returns whether a count was lost since the last recount.
    pub fn is_lossy(&self) -> bool {
        self.is_lossy.load(Relaxed)
    }

    /// Forgets all counts for a recount, while no other thread adds or takes.
    pub fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.overflow.lock().clear();
        self.is_lossy.store(false, Relaxed);
        self.doubts.store(0, Relaxed);
    }

    /// Ends a recount: counts that did not fit do not ask for another.
    pub fn end_recount(&self) {
        self.doubts.store(0, Relaxed);
    }

    /// Returns how often `key` was added and not taken, or more.
    #[inline(always)]
    pub fn estimate(&self, key: Key) -> u32 {
        let counters = self.counters(key);
        let mut least = COUNTER_MAX;
        for counter in counters {
            least = least.min(self.count(counter));
        }
        if least < COUNTER_MAX { least as u32 } else { self.large_estimate(counters) }
    }

    /// Returns the estimate if all four counters are full.
    #[cold]
    fn large_estimate(&self, counters: [u32; ROWS as usize]) -> u32 {
        let overflow = self.overflow.lock();
        counters.into_iter().fold(u32::MAX, |least, counter| least.min(COUNTER_MAX as u32 + overflow.get(counter)))
    }

    /// Returns the bytes that the sketch has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>() + self.overflow.lock().ram_bytes()
    }

    /// Returns the bytes of the counters, with so many in each row.
    pub fn counter_bytes(width: u64) -> u64 {
        (width * u64::from(ROWS)).div_ceil(u64::from(COUNTERS_PER_WORD)) * size_of::<u64>() as u64
    }

    /// Returns the maximum bytes of the table of large counts, for at most `count_max` references.
    pub fn large_bytes_max(count_max: u64) -> u64 {
        overflow::ram_bytes_max(count_max / (COUNTER_MAX + 1) * u64::from(ROWS))
    }

    /// Returns the counter of each row. Two hashes of 32 bits make four (Kirsch and Mitzenmacher,
    /// 2006).
    #[inline(always)]
    fn counters(&self, key: Key) -> [u32; ROWS as usize] {
        let hash = mix(key.0);
        let (mut next, step) = (hash as u32, (hash >> 32) as u32 | 1);
        let mut counters = [0; ROWS as usize];
        let mut first = 0u32;
        // No `array::from_fn` or `map`: this runs for each slot of a bucket, and they are not
        // inlined here.
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
