//! Queues of slots, each with a small mark: a visited bit, or a counter.
//!
//! Invariants: a slot is on one queue at most. Each operation costs a constant.
//!
//! It does not know the content of a slot, or its next queue.

use larder_core::{
    recency::{NONE, Neighbours, Recency},
    slotted::{ChunkSlot, vec_bytes_max},
};

/// The queue of new contents, beside [`MAIN`].
pub(super) const SMALL: usize = 0;
/// The queue of contents that were used again.
pub(super) const MAIN: usize = 1;
/// Slots for each one of the small queue.
const SMALL_SHARE: u32 = 10;

/// Returns the slots that the small queue gives up none below, of so many.
pub(super) fn small_max(slots: u32) -> u32 {
    (slots / SMALL_SHARE).max(1)
}

/// The bits of a mark; those above have the queue.
const MARK_BITS: u32 = 4;

/// See the module.
pub(super) struct Queues<const QUEUES: usize> {
    /// Neighbours by slot.
    slots: Vec<Neighbours>,
    /// Mark and queue by slot.
    tags: Vec<u8>,
    ends: [Recency; QUEUES],
    lens: [u32; QUEUES],
}

impl<const QUEUES: usize> Queues<QUEUES> {
    pub fn new() -> Self {
        Queues { slots: Vec::new(), tags: Vec::new(), ends: [Recency::default(); QUEUES], lens: [0; QUEUES] }
    }

    /// Counts the slots of a queue.
    pub fn len(&self, queue: usize) -> u32 {
        self.lens[queue]
    }

    /// Returns the slot that has been on a queue for longest.
    pub fn oldest(&self, queue: usize) -> Option<ChunkSlot> {
        known(self.ends[queue].oldest())
    }

    /// Returns the slot that came next on the queue of `slot`.
    pub fn newer(&self, slot: ChunkSlot) -> Option<ChunkSlot> {
        known(self.slots[slot.0 as usize].newer)
    }

    /// Returns the queue of `slot`.
    pub fn queue(&self, slot: ChunkSlot) -> usize {
        usize::from(self.tags[slot.0 as usize] >> MARK_BITS)
    }

    /// Returns the mark of `slot`.
    pub fn mark(&self, slot: ChunkSlot) -> u8 {
        self.tags[slot.0 as usize] & ((1 << MARK_BITS) - 1)
    }

    /// Sets the mark of `slot`.
    pub fn set_mark(&mut self, slot: ChunkSlot, mark: u8) {
        let tag = &mut self.tags[slot.0 as usize];
        *tag = *tag >> MARK_BITS << MARK_BITS | mark;
    }

    /// Puts a slot that is on no queue on this one, as the newest, with a mark of 0.
    pub fn push(&mut self, slot: ChunkSlot, queue: usize) {
        let i = slot.0 as usize;
        if i >= self.slots.len() {
            self.slots.resize(i + 1, Neighbours::ALONE);
            self.tags.resize(i + 1, 0);
        }
        self.tags[i] = (queue as u8) << MARK_BITS;
        self.ends[queue].link(&mut self.slots[..], slot.0);
        self.lens[queue] += 1;
    }

    /// Takes `slot` off its queue.
    pub fn remove(&mut self, slot: ChunkSlot) {
        let queue = self.queue(slot);
        self.ends[queue].unlink(&mut self.slots[..], slot.0);
        self.lens[queue] -= 1;
    }

    pub fn ram_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Neighbours>() + self.tags.capacity()
    }

    /// Returns the maximum bytes for so many slots.
    pub fn ram_bytes_max(slots: u32) -> usize {
        // The least allocation of bytes is 8 of them.
        vec_bytes_max::<Neighbours>(slots as usize) + vec_bytes_max::<u8>(slots as usize).max(8)
    }
}

impl Queues<2> {
    /// Takes the next candidate to go off its queue, with that queue and its mark.
    ///
    /// The small queue gives it up while it has its share, and the main queue if not.
    pub fn next_out(&mut self, small_max: u32) -> Option<(ChunkSlot, usize, u8)> {
        let is_small = self.len(SMALL) >= small_max || self.len(MAIN) == 0;
        let queue = if is_small { SMALL } else { MAIN };
        let slot = self.oldest(queue)?;
        let mark = self.mark(slot);
        self.remove(slot);
        Some((slot, queue, mark))
    }
}

fn known(slot: u32) -> Option<ChunkSlot> {
    (slot != NONE).then_some(ChunkSlot(slot))
}
