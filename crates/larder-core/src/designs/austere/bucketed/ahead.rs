//! Runs that are freed ahead: the log says early that they are free, while their mappings stay and
//! hit.
//!
//! A content that needs their slots then takes them at once. After a crash the runs are gone, which
//! costs only hits, because nothing of them is dirty.
//!
//! In a full bucket, a store would have to wait for the commit that frees another run's slots. The
//! next victim of a bucket is known as soon as the bucket has its last run, long before the next
//! store. It is known again after a new mapping takes a reference from a run: an entry left the LBA
//! index, or lost its recency. (Reads take references, too, beside other reads; the next mapping
//! sees that.) The choice of victims stays the same, and a victim leaves only when it would have
//! left.
//!
//! Invariants: a freed run is not about to leave otherwise, and nothing of it is dirty, from its
//! entry on. No later log entry names it: a new mapping keeps it, and so does a mapping that is
//! logged late, or a choice as victim. A reuse therefore checks only that the run is freed. A kept
//! run may be freed again, by a newer entry.
//!
//! It leaves the choice of runs to `freeing.rs`, and knowledge of durable entries to the caller.

use crate::types::SlotId;
use std::collections::VecDeque;

/// Maximum number of waiting buckets. In a further bucket, the next chunk waits for a commit.
const BUCKETS_MAX: usize = 1024;
/// Waiting buckets that are worth a commit; one in [`DUE_SHARE`] of all is enough, too.
const DUE: usize = 32;
const DUE_SHARE: usize = 8;
/// Maximum number of runs whose entries wait for the log.
const PENDING_MAX: usize = 1024;

/// Bytes that do not depend on the number of slots.
const FIXED_BYTES_MAX: u64 = (2 * BUCKETS_MAX * size_of::<u32>() + 2 * PENDING_MAX * size_of::<(SlotId, u64)>()) as u64;

/// Buckets that wait for a search for their next victims.
pub struct Due {
    bucket_slots: u32,
    /// Buckets with a store or a lost reference since their last search, each once.
    buckets: VecDeque<u32>,
    is_waiting: Bits,
}

impl Due {
    /// Creates the queue for so many slots, in buckets of so many.
    pub fn new(slots: u32, bucket_slots: u32) -> Due {
        let is_waiting = Bits::new(slots.div_ceil(bucket_slots));
        Due { bucket_slots, buckets: VecDeque::new(), is_waiting }
    }

    /// Returns the bytes that it has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>() + self.is_waiting.ram_bytes()
    }

    /// Adds the bucket of this slot, after a store or a lost reference there.
    pub fn look_at(&mut self, slot: SlotId) {
        let bucket = slot.0 / self.bucket_slots;
        if self.buckets.len() < BUCKETS_MAX && self.is_waiting.set(bucket) {
            self.buckets.push_back(bucket);
        }
    }

    /// Returns whether enough buckets wait.
    pub fn are_enough(&self) -> bool {
        let buckets = self.is_waiting.len() / DUE_SHARE;
        self.buckets.len() >= buckets.clamp(1, DUE)
    }

    pub fn next_bucket(&mut self) -> Option<u32> {
        let bucket = self.buckets.pop_front()?;
        self.is_waiting.clear(bucket);
        Some(bucket)
    }
}

/// See the module.
pub struct Ahead {
    /// Runs that a log entry frees, by first slot.
    freed: Bits,
    /// Runs among them whose entry may not be durable, with its number, in order of numbers.
    pending: VecDeque<(SlotId, u64)>,
}

impl Ahead {
    pub fn new(slots: u32) -> Ahead {
        Ahead { freed: Bits::new(slots), pending: VecDeque::new() }
    }

    /// Returns the maximum bytes for so many slots, with those of [`Due`].
    pub fn bytes_for(slots: u64, bucket_slots: u64) -> u64 {
        FIXED_BYTES_MAX + Bits::bytes_for(slots) + Bits::bytes_for(slots.div_ceil(bucket_slots))
    }

    /// Returns the bytes that it has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<(SlotId, u64)>() + self.freed.ram_bytes()
    }

    /// Returns whether more entries may wait for the log.
    pub fn has_room(&self) -> bool {
        self.pending.len() < PENDING_MAX
    }

    /// Returns whether an entry frees the run, and it was not kept since.
    pub fn has(&self, slot: SlotId) -> bool {
        self.freed.has(slot.0)
    }

    /// Returns whether that entry is durable, if those below `durable_below` are.
    pub fn is_durable(&mut self, slot: SlotId, durable_below: u64) -> bool {
        while self.pending.front().is_some_and(|(_, seq)| *seq < durable_below) {
            self.pending.pop_front();
        }
        self.has(slot) && self.pending.iter().all(|(pending, _)| *pending != slot)
    }

    /// Frees a run by entry `seq`; returns whether it was not free already.
    pub fn free(&mut self, slot: SlotId, seq: u64) -> bool {
        let is_new = self.freed.set(slot.0);
        if is_new {
            self.pending.push_back((slot, seq));
        }
        is_new
    }

    /// Keeps a run: the log names it again, or it goes otherwise.
    pub fn keep(&mut self, slot: SlotId) {
        if self.freed.clear(slot.0) {
            self.pending.retain(|(pending, _)| *pending != slot);
        }
    }

    /// Returns all freed runs: for tests.
    pub fn all(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.freed.iter().map(SlotId)
    }

    /// Returns the runs whose entries wait for the log: for tests.
    pub fn waiting(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.pending.iter().map(|&(slot, _)| slot)
    }

    /// Keeps all runs.
    pub fn keep_all(&mut self) {
        self.freed.clear_all();
        self.pending.clear();
    }
}

/// A number of bits.
struct Bits(Vec<u64>, u32);

impl Bits {
    fn new(len: u32) -> Bits {
        Bits(vec![0; len.div_ceil(u64::BITS) as usize], len)
    }

    fn bytes_for(len: u64) -> u64 {
        len.div_ceil(u64::BITS.into()) * size_of::<u64>() as u64
    }

    fn ram_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }

    fn len(&self) -> usize {
        self.1 as usize
    }

    fn has(&self, at: u32) -> bool {
        self.0.get((at / u64::BITS) as usize).is_some_and(|word| word >> (at % u64::BITS) & 1 == 1)
    }

    /// Sets a bit; returns whether it was clear.
    fn set(&mut self, at: u32) -> bool {
        let is_new = at < self.1 && !self.has(at);
        if is_new {
            self.0[(at / u64::BITS) as usize] |= 1 << (at % u64::BITS);
        }
        is_new
    }

    /// Clears a bit; returns whether it was set.
    fn clear(&mut self, at: u32) -> bool {
        let was_set = self.has(at);
        if was_set {
            self.0[(at / u64::BITS) as usize] &= !(1 << (at % u64::BITS));
        }
        was_set
    }

    fn clear_all(&mut self) {
        self.0.fill(0);
    }

    /// Returns the bits that are set.
    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.1).filter(|&at| self.has(at))
    }
}
