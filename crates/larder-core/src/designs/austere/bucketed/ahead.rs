//! Runs that are freed ahead: the log says that they are free, so that their slots can be taken at once when a content needs them, and
//! until then their mappings stay and hit. After a crash they are gone, which costs hits and nothing else, for nothing of them is dirty.
//!
//! In a bucket that is full, somebody who stores a chunk would have to wait for the commit that says that another one's slots are
//! free. Which one will be next can be told as soon as the bucket has got its last one, long before the next comes, and again when one
//! there lost a reference to a chunk that was mapped: its entry left the LBA index, or is not recent any more. (What is read
//! has others lose some, too, beside others who read: that is seen when something is mapped next.) This changes no choice: what goes
//! is what would have gone, and only when it does.
//!
//! Invariants: what is freed begins a run that is not about to go otherwise, and of which nothing is dirty, when its entry is made and as
//! long as it is freed. No entry of the log behind that one names it: whoever maps an address to it keeps it, and so does whoever
//! logs a mapping late, or chooses it to go. So whoever reuses a run asks whether it is freed and nothing else of the above. What is
//! kept may be freed again, by a newer entry.
//!
//! What it does not do: choose runs; [`Bucketed::victims_of`] does. Know what is durable; the caller does.

use super::Bucketed;
use crate::types::{Lba, SlotId};
use std::collections::VecDeque;

/// Buckets that may wait to be looked at: of more the next chunk waits for a commit.
const BUCKETS_MAX: usize = 1024;
/// So many of them are worth a commit, or one in [`DUE_SHARE`] of all.
const DUE: usize = 32;
const DUE_SHARE: usize = 8;
/// Runs whose entries may wait for the log.
const PENDING_MAX: usize = 1024;

/// Bytes that do not depend on the number of slots.
const FIXED_BYTES_MAX: u64 = (2 * BUCKETS_MAX * size_of::<u32>() + 2 * PENDING_MAX * size_of::<(SlotId, u64)>()) as u64;

/// Buckets that may wait to be looked at.
pub struct Due {
    bucket_slots: u32,
    /// Buckets in which something was stored, or lost a reference, since they were looked at, each once.
    buckets: VecDeque<u32>,
    is_waiting: Bits,
}

impl Due {
    /// Of so many slots, in buckets of so many.
    pub fn new(slots: u32, bucket_slots: u32) -> Due {
        let is_waiting = Bits::new(slots.div_ceil(bucket_slots));
        Due { bucket_slots, buckets: VecDeque::new(), is_waiting }
    }

    /// Bytes that it has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>() + self.is_waiting.ram_bytes()
    }

    /// Something was stored from this slot on, or what is there lost a reference.
    pub fn look_at(&mut self, slot: SlotId) {
        let bucket = slot.0 / self.bucket_slots;
        if self.buckets.len() < BUCKETS_MAX && self.is_waiting.set(bucket) {
            self.buckets.push_back(bucket);
        }
    }

    /// Whether enough buckets wait.
    pub fn are_enough(&self) -> bool {
        let buckets = self.is_waiting.len() / DUE_SHARE;
        self.buckets.len() >= buckets.clamp(1, DUE)
    }

    fn next_bucket(&mut self) -> Option<u32> {
        let bucket = self.buckets.pop_front()?;
        self.is_waiting.clear(bucket);
        Some(bucket)
    }
}

/// See the module.
pub struct Ahead {
    /// By first slot: runs that an entry says are free.
    freed: Bits,
    /// Of them, those whose entry may not be durable, with its number, in order of numbers.
    pending: VecDeque<(SlotId, u64)>,
}

impl Ahead {
    pub fn new(slots: u32) -> Ahead {
        Ahead { freed: Bits::new(slots), pending: VecDeque::new() }
    }

    /// Bytes at most for so many slots, those of [`Due`] with them.
    pub fn bytes_for(slots: u64, bucket_slots: u64) -> u64 {
        FIXED_BYTES_MAX + Bits::bytes_for(slots) + Bits::bytes_for(slots.div_ceil(bucket_slots))
    }

    /// Bytes that it has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<(SlotId, u64)>() + self.freed.ram_bytes()
    }

    /// Whether more entries may wait for the log.
    pub fn has_room(&self) -> bool {
        self.pending.len() < PENDING_MAX
    }

    /// Whether an entry says that the run is free, and nobody has kept it since.
    pub fn has(&self, slot: SlotId) -> bool {
        self.freed.has(slot.0)
    }

    /// Whether that entry is durable, where those below `durable_below` are.
    pub fn is_durable(&mut self, slot: SlotId, durable_below: u64) -> bool {
        while self.pending.front().is_some_and(|(_, seq)| *seq < durable_below) {
            self.pending.pop_front();
        }
        self.has(slot) && self.pending.iter().all(|(pending, _)| *pending != slot)
    }

    /// Whether it was not free already.
    fn free(&mut self, slot: SlotId, seq: u64) -> bool {
        let is_new = self.freed.set(slot.0);
        if is_new {
            self.pending.push_back((slot, seq));
        }
        is_new
    }

    /// The log says of the run what only holds if it is there, or it goes otherwise.
    pub fn keep(&mut self, slot: SlotId) {
        if self.freed.clear(slot.0) {
            self.pending.retain(|(pending, _)| *pending != slot);
        }
    }

    /// All are kept.
    pub fn keep_all(&mut self) {
        self.freed.clear_all();
        self.pending.clear();
    }
}

impl Bucketed {
    /// Runs that will have to go for the next chunk in buckets that had one, but for those that are free already.
    pub(super) fn next_to_go(&mut self, max: usize) -> Vec<SlotId> {
        let mut next = Vec::new();
        let slots = self.indices.core.slots_for(self.indices.core.config().chunk_bytes);
        while next.len() < max
            && let Some(bucket) = self.next_due()
        {
            let runs = self.indices.core.victims_in(bucket, slots, |first| self.references_beside(SlotId(first)));
            next.extend(runs.into_iter().map(|run| SlotId(run.first)).filter(|&slot| !self.ahead.has(slot)));
        }
        next
    }

    fn next_due(&self) -> Option<u32> {
        self.indices.due.lock().next_bucket()
    }

    /// The log says as entry `seq` that a run is free. Not where it says so already, something of the run is dirty, or it goes in any case.
    pub(super) fn free_run(&mut self, slot: SlotId, seq: u64) -> Option<u32> {
        (self.can_be_freed(slot) && self.ahead.free(slot, seq)).then_some(self.generation)
    }

    /// Dirty chunks among them would be named by entries behind the one that frees: at least by that which says that they are clean.
    fn can_be_freed(&self, slot: SlotId) -> bool {
        let is_there = self.indices.core.run_from(slot.0).is_some() && !self.leaving.contains(&slot);
        is_there && self.exact.in_slot(slot).next().is_none()
    }

    /// What has to go for what waits to be stored for `lba`, and none of it was chosen to go for that.
    pub(super) fn in_the_way_for(&self, lba: Lba) -> Vec<SlotId> {
        let wish = self.wishes.get(&lba).filter(|wish| wish.victims.is_empty());
        wish.map(|wish| self.in_the_way_of(wish)).unwrap_or_default()
    }

    /// These runs go at once, and are free.
    pub(super) fn reuse_runs(&mut self, slots: &[SlotId]) {
        for &slot in slots {
            self.forget_what_was_in(slot);
            if let Some(run) = self.indices.core.run_from(slot.0) {
                self.indices.core.evict(run);
            }
        }
    }

    /// Compares what is kept twice, and panics where it differs: for tests.
    pub fn check(&self) {
        self.indices.core.check();
        for slot in self.ahead.freed.iter().map(SlotId) {
            assert!(self.can_be_freed(slot), "{slot:?} is freed ahead, and is dirty, about to go, or nothing");
        }
        for (slot, _) in &self.ahead.pending {
            assert!(self.ahead.has(*slot), "{slot:?} waits for its entry, and is not freed");
        }
        for slot in &self.stuck {
            assert!(self.indices.core.run_from(slot.0).is_some(), "{slot:?} could not go, and is nothing");
        }
    }
}

/// So many bits.
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

    /// Whether it was not set.
    fn set(&mut self, at: u32) -> bool {
        let is_new = at < self.1 && !self.has(at);
        if is_new {
            self.0[(at / u64::BITS) as usize] |= 1 << (at % u64::BITS);
        }
        is_new
    }

    /// Whether it was set.
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

    /// Those that are set.
    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.1).filter(|&at| self.has(at))
    }
}
