//! Stripes: parts of data that many threads change at once, each on cache lines of its own. A
//! thread keeps to one of them.
//!
//! Invariants: a thread has the same number for as long as it lives, so its actions are ordered
//! within its stripe.
//!
//! It does not keep two threads apart if there are more threads than stripes.

use std::{
    cell::Cell,
    ops::Deref,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Limit of stripes. A thread that takes the state's lock exclusively passes through all of them.
pub const STRIPES_MAX: usize = 64;

/// Threads that can run at once. The answer is in files of the system, which are read once for all
/// caches of a process.
static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, |cores| cores.get()));

std::thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The stripes of a cache.
pub struct Stripes {
    /// A power of two.
    count: usize,
    /// Threads that got a number here.
    numbered: AtomicUsize,
}

/// The stripe of a thread: an index below [`Stripes::count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe(pub usize);

impl Stripes {
    /// Returns `wanted` stripes, rounded up to a power of two and at most [`STRIPES_MAX`]. With 0
    /// it returns as many as threads can run at once.
    pub fn new(wanted: usize) -> Stripes {
        let wanted = match wanted {
            0 => *CORES,
            wanted => wanted,
        };
        Stripes { count: wanted.clamp(1, STRIPES_MAX).next_power_of_two(), numbered: AtomicUsize::new(0) }
    }

    /// Returns the number of stripes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the stripe of this thread.
    #[inline]
    pub fn mine(&self) -> Stripe {
        let number = NUMBER.with(|number| {
            // Threads that come one after the other get stripes of their own, while there are any.
            number.get().unwrap_or_else(|| {
                let next = self.numbered.fetch_add(1, Relaxed);
                number.set(Some(next));
                next
            })
        });
        Stripe(number & (self.count - 1))
    }
}

/// A value on cache lines of its own: two of 64 bytes, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
pub struct Apart<T>(pub T);

impl<T> Deref for Apart<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
