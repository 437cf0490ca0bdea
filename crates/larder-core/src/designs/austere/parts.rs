//! An index in parts of some buckets, each behind a lock.
//!
//! This is the paper's locking of buckets (§4: "we implement bucket-level concurrency"), where
//! each bucket has a lock. Here an index has at most 256, because threads are few. A lock for each
//! of a million buckets would take as much RAM as some of the data. A request holds the lock of its
//! bucket in either index while it looks or changes something there. Requests of other parts go on.
//!
//! Invariants: a holder of a lock of the LBA index may take one of the FP index, and not the other
//! way round. A holder of a lock takes no other of the same index. [Taking all](Parts::lock_all)
//! begins with none.
//!
//! It does not know the content of a bucket.

use parking_lot::{ArcMutexGuard, Mutex, MutexGuard, RawMutex};
use std::sync::Arc;

/// Maximum number of parts.
const PARTS_MAX: usize = 256;

/// A part with its lock held, independent of the index's lifetime.
pub(super) type HeldPart<P> = ArcMutexGuard<RawMutex, P>;

/// See the module.
pub(super) struct Parts<P> {
    /// Buckets of a part, as a power of two.
    buckets_log2: u32,
    parts: Box<[Arc<Mutex<P>>]>,
}

/// The division of buckets into parts.
#[derive(Clone, Copy)]
pub(super) struct Division {
    /// All buckets.
    pub buckets: usize,
    /// Slots of a bucket.
    pub slots: usize,
    /// Minimum slots of a part, so that a part's own memory is little.
    pub part_slots_min: usize,
}

impl Division {
    fn buckets_a_part(&self) -> usize {
        let few = self.part_slots_min / self.slots.max(1);
        few.max(self.buckets.div_ceil(PARTS_MAX)).max(1).next_power_of_two()
    }

    /// Counts the parts.
    pub fn parts(&self) -> usize {
        self.buckets.div_ceil(self.buckets_a_part())
    }
}

impl<P> Parts<P> {
    /// Creates the parts; `part` makes one from its first bucket's number and its number of
    /// buckets.
    pub fn new(division: Division, part: impl Fn(usize, usize) -> P) -> Parts<P> {
        let (all, a_part) = (division.buckets, division.buckets_a_part());
        let firsts = (0..all).step_by(a_part);
        let parts = firsts.map(|first| Arc::new(Mutex::new(part(first, a_part.min(all - first))))).collect();
        Parts { buckets_log2: a_part.trailing_zeros(), parts }
    }

    /// Locks the part of a bucket for a moment.
    #[inline]
    pub fn lock(&self, bucket: usize) -> MutexGuard<'_, P> {
        self.parts[bucket >> self.buckets_log2].lock()
    }

    /// Locks the part of a bucket for longer than the index is borrowed.
    #[inline]
    pub fn hold(&self, bucket: usize) -> HeldPart<P> {
        self.parts[bucket >> self.buckets_log2].lock_arc()
    }

    /// Locks all parts, in their order.
    pub fn lock_all(&self) -> Vec<MutexGuard<'_, P>> {
        self.parts.iter().map(|part| part.lock()).collect()
    }

    /// Sums up `number` over the parts, one after the other.
    pub fn sum(&self, number: impl Fn(&P) -> u64) -> u64 {
        self.parts.iter().map(|part| number(&part.lock())).sum()
    }

    /// Returns the bytes of the parts without their own allocations.
    pub fn ram_bytes(&self) -> usize {
        self.parts.len() * Parts::<P>::BYTES
    }

    /// Returns the bytes of the parts before their creation.
    pub fn bytes_for(division: Division) -> usize {
        division.parts() * Parts::<P>::BYTES
    }

    /// Bytes of a part, its lock, its two counts, and the pointer to it.
    const BYTES: usize = size_of::<Mutex<P>>() + 2 * size_of::<usize>() + size_of::<usize>();
}
