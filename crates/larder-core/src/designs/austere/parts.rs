//! An index in parts, each of some buckets and behind a lock of its own: the paper's locking of buckets (§4: "we implement bucket-level
//! concurrency"), where a bucket has one. Here 256 locks are an index's at most, for one in RAM for each of a million buckets would weigh as much
//! as some of what it guards, and threads are few. A request has the lock of its bucket in either index while it looks or changes something there, and requests of
//! other parts go on.
//!
//! Invariants: who has a lock of the LBA index may ask for one of the FP index, and not the other way round; of either index nobody
//! who has a lock asks for another, but [who has them all](Parts::lock_all), and had none.
//!
//! What it does not do: know what is in a bucket.

use parking_lot::{ArcMutexGuard, Mutex, MutexGuard, RawMutex};
use std::sync::Arc;

/// Parts at most.
const PARTS_MAX: usize = 256;

/// A part whose lock is held, wherever the index is meanwhile.
pub(super) type HeldPart<P> = ArcMutexGuard<RawMutex, P>;

/// See the module.
pub(super) struct Parts<P> {
    /// A part has so many buckets, to this power of two.
    buckets_log2: u32,
    parts: Box<[Arc<Mutex<P>>]>,
}

/// How many buckets are a part's.
#[derive(Clone, Copy)]
pub(super) struct Division {
    /// All buckets.
    pub buckets: usize,
    /// Slots of a bucket.
    pub slots: usize,
    /// Slots of a part, at least: what a part takes beside them is little then.
    pub part_slots_min: usize,
}

impl Division {
    fn buckets_a_part(&self) -> usize {
        let few = self.part_slots_min / self.slots.max(1);
        few.max(self.buckets.div_ceil(PARTS_MAX)).max(1).next_power_of_two()
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.buckets.div_ceil(self.buckets_a_part())
    }
}

impl<P> Parts<P> {
    /// Divided so; `part` makes one from its first bucket's number and how many it has.
    pub fn new(division: Division, part: impl Fn(usize, usize) -> P) -> Parts<P> {
        let (all, a_part) = (division.buckets, division.buckets_a_part());
        let firsts = (0..all).step_by(a_part);
        let parts = firsts.map(|first| Arc::new(Mutex::new(part(first, a_part.min(all - first))))).collect();
        Parts { buckets_log2: a_part.trailing_zeros(), parts }
    }

    /// The part of a bucket, for a moment.
    #[inline]
    pub fn lock(&self, bucket: usize) -> MutexGuard<'_, P> {
        self.parts[bucket >> self.buckets_log2].lock()
    }

    /// The same, for longer than the index is borrowed.
    #[inline]
    pub fn hold(&self, bucket: usize) -> HeldPart<P> {
        self.parts[bucket >> self.buckets_log2].lock_arc()
    }

    /// All parts at once, in their order.
    pub fn lock_all(&self) -> Vec<MutexGuard<'_, P>> {
        self.parts.iter().map(|part| part.lock()).collect()
    }

    /// What `number` says of each part, one after the other, summed up.
    pub fn sum(&self, number: impl Fn(&P) -> u64) -> u64 {
        self.parts.iter().map(|part| number(&part.lock())).sum()
    }

    /// Bytes of the parts without what they have allocated themselves.
    pub fn ram_bytes(&self) -> usize {
        self.parts.len() * Parts::<P>::BYTES
    }

    /// The same, before there are any.
    pub fn bytes_for(division: Division) -> usize {
        division.parts() * Parts::<P>::BYTES
    }

    /// A part, its lock, its two counts, and the pointer to it.
    const BYTES: usize = size_of::<Mutex<P>>() + 2 * size_of::<usize>() + size_of::<usize>();
}
