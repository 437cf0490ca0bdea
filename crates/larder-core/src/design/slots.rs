//! [`Slots`]: the units of flash space of a design.
//!
//! Invariants: a slot with dirty references is never evicted. After [`Slots::evict`] no lookup
//! answers with a place in that generation of the slot.
//!
//! It does not write the slots.

use super::Victim;
use crate::types::{Lba, SlotId, StreamClass};

/// The space of a design: open a slot, seal it, choose a victim, evict it, release it.
pub trait Slots {
    /// Opens a free slot for a class of data; returns slot and generation. A design whose choice
    /// depends on the data returns none.
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)>;

    /// Seals an open slot that is full. A design whose slots are full from their store on has
    /// nothing to do.
    fn seal_slot(&mut self, _slot: SlotId) {}

    /// Counts the free slots.
    fn free_slots(&self) -> usize;

    /// Chooses a slot for replacement; it takes no new references from now on. `busy` names slots
    /// to pass over.
    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim>;

    /// Gives a victim back unharmed if its data cannot leave now. It is not the next choice while
    /// another slot may go.
    fn spare_victim(&mut self, slot: SlotId);

    /// Returns the dirty chunks that map into `slot`.
    fn dirty_in(&self, slot: SlotId) -> Vec<Lba>;

    /// Evicts a victim and ends every mapping into it. Returns the generation that ended. Returns
    /// `None` and changes nothing while dirty mappings point into it.
    fn evict(&mut self, slot: SlotId) -> Option<u32>;

    /// Frees an evicted slot that is durable as such and trimmed.
    fn release_slot(&mut self, slot: SlotId);

    /// Cleans stale entries in one background step; returns how many it removed. A design without
    /// stale entries has none.
    fn sweep(&mut self) -> usize {
        0
    }

    /// Forgets some clean chunks of zeroes if there are too many; with `all`, a shard's worth in
    /// any case.
    ///
    /// No eviction of a WEU would remove them. The caller logs the returned addresses, because a
    /// crash must not bring them back. A design that replaces single addresses forgets its replaced
    /// ones here. One call returns at most `max`, because the queue of the log is bounded; the rest
    /// comes with the next calls. A design with neither has none.
    fn drop_clean_zeroes(&mut self, _all: bool, _max: usize) -> Vec<Lba> {
        Vec::new()
    }
}
