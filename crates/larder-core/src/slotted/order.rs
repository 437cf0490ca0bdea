//! The eviction order of slots: [`SlotList`] by last use, and [`SlotHeap`] among evictable slots.
//!
//! [`ContentOrder`] is the order of a design in which only data decides about data.
//!
//! Invariants: a slot is at most once on a list, or in a heap.
//!
//! It does not know the content of a slot.

use crate::{
    recency::{NONE, Neighbours, Recency},
    slotted::{ChunkSlot, ram::vec_bytes_max},
    types::Fingerprint,
    walk::Walk,
};

/// The order in which contents give up their slots.
///
/// A slot is in the order while it has content.
pub trait ContentOrder: Send + Sync {
    /// The name of the design that has the order.
    const NAME: &'static str;

    /// True if it refuses some contents.
    const IS_SELECTIVE: bool = false;

    /// Creates an empty order for a cache of so many slots.
    fn new(slots: u32) -> Self;

    /// Returns whether a clean content without a slot is worth one. The caller pushes it then.
    fn admits(&mut self, _content: &Fingerprint) -> bool {
        true
    }

    /// Adds a slot with new content.
    fn push(&mut self, slot: ChunkSlot, content: &Fingerprint);

    /// Notes a use of the content of `slot`.
    fn touch(&mut self, slot: ChunkSlot);

    /// Takes out a slot that lost its last address.
    fn remove(&mut self, slot: ChunkSlot);

    /// Chooses a slot for other content, and takes it out. `content_of` names the contents.
    fn evict(&mut self, content_of: impl Fn(ChunkSlot) -> Fingerprint) -> Option<ChunkSlot>;

    /// Reads the memory of uses of these slots ahead.
    fn warm(&self, _slots: impl Iterator<Item = ChunkSlot> + Clone) {}

    /// Begins a walk along the slots, in an order that outlives a restart.
    fn begin_walk(&mut self) {}

    /// Shows the next slots of the walk, as [`Slotted::show_data`](super::Slotted::show_data).
    fn walk(&mut self, _see: &mut dyn FnMut(ChunkSlot, u64)) -> bool {
        false
    }

    /// Returns the allocated bytes.
    fn ram_bytes(&self) -> usize;

    /// Returns its maximum bytes for so many slots.
    fn ram_bytes_max(slots: u32) -> usize;
}

/// Slots by their last use.
pub(crate) struct SlotList {
    /// Neighbours by slot.
    slots: Vec<Neighbours>,
    list: Recency,
    walk: Walk,
    /// Number of slots that the walk has shown.
    walked: u64,
}

impl SlotList {
    pub fn new() -> Self {
        SlotList { slots: Vec::new(), list: Recency::default(), walk: Walk::default(), walked: 0 }
    }

    /// Returns the least recently used slot.
    pub fn oldest(&self) -> Option<ChunkSlot> {
        let oldest = self.list.oldest();
        (oldest != NONE).then_some(ChunkSlot(oldest))
    }

    /// Begins a walk along the list, least recently used first.
    pub fn begin_walk(&mut self) {
        self.walk.begin(self.list.oldest(), self.slots.len());
        self.walked = 0;
    }

    /// Shows the next slots of the walk, with a use stamp, higher for a later use. Returns whether
    /// it goes on.
    pub fn walk(&mut self, see: &mut dyn FnMut(ChunkSlot, u64)) -> bool {
        let slots = &self.slots;
        let seen = self.walk.next(|i| slots[i as usize].newer);
        for &i in seen.iter().flatten() {
            self.walked += 1;
            see(ChunkSlot(i), self.walked);
        }
        seen.is_some()
    }

    /// Adds a new `slot` to the list as the most recent.
    pub fn push(&mut self, slot: ChunkSlot) {
        let i = slot.0 as usize;
        if i >= self.slots.len() {
            self.slots.resize(i + 1, Neighbours::ALONE);
        }
        self.list.link(&mut self.slots[..], slot.0);
    }

    /// Takes `slot` off the list.
    pub fn remove(&mut self, slot: ChunkSlot) {
        let left = self.list.unlink(&mut self.slots[..], slot.0);
        self.walk.unlinks(slot.0, left.newer);
    }

    /// Makes `slot` the most recent.
    #[inline]
    pub fn touch(&mut self, slot: ChunkSlot) {
        if self.list.newest() != slot.0 {
            self.remove(slot);
            self.push(slot);
        }
    }

    /// Reads the memory of uses of these slots ahead, so that many waits for memory become one.
    pub fn warm(&self, slots: impl Iterator<Item = ChunkSlot> + Clone) {
        let known = |i: u32| self.slots.get(i as usize);
        let neighbours = |slot: ChunkSlot| known(slot.0).map_or((NONE, NONE), |slot| (slot.newer, slot.older));
        let read = slots.clone().map(neighbours).fold(0, |sum, (newer, older)| sum ^ newer ^ older);
        std::hint::black_box(read);
        let beside = slots.map(neighbours).flat_map(|(newer, older)| [known(newer), known(older)]);
        std::hint::black_box(beside.flatten().fold(0, |sum, slot| sum ^ slot.newer));
    }

    pub fn ram_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Neighbours>() + self.walk.ram_bytes()
    }

    /// Returns its maximum bytes for so many slots.
    pub fn ram_bytes_max(slots: usize) -> usize {
        vec_bytes_max::<Neighbours>(slots) + Walk::ram_bytes_max(slots)
    }
}

#[derive(Clone, Copy)]
struct SlotUse {
    /// Stamp of the last use.
    stamp: u64,
    /// Its position in the heap, or [`NONE`].
    at: u32,
}

/// Evictable slots, in a binary heap by their last use.
pub(crate) struct SlotHeap {
    /// Uses by slot.
    uses: Vec<SlotUse>,
    heap: Vec<u32>,
    clock: u64,
}

impl SlotHeap {
    pub fn new() -> Self {
        SlotHeap { uses: Vec::new(), heap: Vec::new(), clock: 0 }
    }

    /// Notes a use of `slot`, which is not in the heap.
    #[inline]
    pub fn touch(&mut self, slot: ChunkSlot) {
        let i = slot.0 as usize;
        if i >= self.uses.len() {
            self.uses.resize(i + 1, SlotUse { stamp: 0, at: NONE });
        }
        debug_assert_eq!(self.uses[i].at, NONE);
        self.clock += 1;
        self.uses[i].stamp = self.clock;
    }

    /// Reads the memory of uses of these slots ahead, so that many waits for memory become one.
    pub fn warm(&self, slots: impl Iterator<Item = ChunkSlot>) {
        let read = slots.filter_map(|slot| self.uses.get(slot.0 as usize)).fold(0, |sum, of_slot| sum ^ of_slot.at);
        std::hint::black_box(read);
    }

    /// Returns the stamp of `slot`'s last use, higher for a later one.
    pub fn stamp_of(&self, slot: ChunkSlot) -> u64 {
        self.uses.get(slot.0 as usize).map_or(0, |of_slot| of_slot.stamp)
    }

    /// Returns the least recently used evictable slot.
    pub fn oldest(&self) -> Option<ChunkSlot> {
        self.heap.first().copied().map(ChunkSlot)
    }

    /// Makes `slot` evictable, which was used before.
    pub fn push(&mut self, slot: ChunkSlot) {
        debug_assert_eq!(self.uses[slot.0 as usize].at, NONE);
        self.heap.push(slot.0);
        self.rise(self.heap.len() - 1);
    }

    /// Removes `slot` from the heap, if it is there.
    pub fn remove(&mut self, slot: ChunkSlot) {
        let at = std::mem::replace(&mut self.uses[slot.0 as usize].at, NONE);
        if at == NONE {
            return;
        }
        let at = at as usize;
        let Some(last) = self.heap.pop() else { return };
        if at < self.heap.len() {
            self.heap[at] = last;
            self.rise(at);
            self.sink(self.uses[last as usize].at as usize);
        }
    }

    fn stamp(&self, at: usize) -> u64 {
        self.uses[self.heap[at] as usize].stamp
    }

    fn note_position(&mut self, at: usize) {
        self.uses[self.heap[at] as usize].at = at as u32;
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note_position(a);
        self.note_position(b);
    }

    fn rise(&mut self, mut at: usize) {
        self.note_position(at);
        while at > 0 && self.stamp((at - 1) / 2) > self.stamp(at) {
            self.swap((at - 1) / 2, at);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|&child| child < self.heap.len());
            match children.min_by_key(|&child| self.stamp(child)) {
                Some(child) if self.stamp(child) < self.stamp(at) => {
                    self.swap(child, at);
                    at = child;
                }
                _ => return,
            }
        }
    }

    pub fn ram_bytes(&self) -> usize {
        self.uses.capacity() * size_of::<SlotUse>() + self.heap.capacity() * size_of::<u32>()
    }

    /// Returns its maximum bytes for so many slots.
    pub fn ram_bytes_max(slots: usize) -> usize {
        vec_bytes_max::<SlotUse>(slots) + vec_bytes_max::<u32>(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_agrees_with_a_search() {
        let mut state = 7;
        let (mut heap, mut model) = (SlotHeap::new(), Vec::new());
        let mut stamps = vec![0; 40];
        (0..40).for_each(|slot| heap.touch(ChunkSlot(slot)));
        (0..40).for_each(|slot| stamps[slot] = slot + 1);
        for step in 0..20_000 {
            state = crate::types::mix(state);
            let slot = (state % 40) as u32;
            if let Some(at) = model.iter().position(|&other| other == slot) {
                model.remove(at);
                heap.remove(ChunkSlot(slot));
            } else {
                if state >> 32 & 1 == 0 {
                    heap.touch(ChunkSlot(slot));
                    stamps[slot as usize] = 100 + step;
                }
                model.push(slot);
                heap.push(ChunkSlot(slot));
            }
            let oldest = model.iter().copied().min_by_key(|&slot| stamps[slot as usize]);
            assert_eq!(heap.oldest(), oldest.map(ChunkSlot), "step {step}");
        }
    }
}
