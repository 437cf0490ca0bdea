//! Eviction of WEUs under replay: what is dirty goes to the origin, mappings die, the slot is free.
//!
//! Invariants: *slot freed* is in the log, or waits for it with what makes it durable before the slot is written again. Slots that
//! the drive emptied are used in the order in which it did, once no other is free.
//!
//! What it does not do: choose; the design does, or the drive beneath it.

use super::WeuCache;
use larder_core::SlotId;

impl WeuCache {
    /// Evicts every WEU in what the drive would drop, if it said so and one can go; else one, the design's choice.
    ///
    /// One alone out of a larger unit would be all that is ever evicted: the rest keeps the unit where it is, the least
    /// recent.
    pub(super) fn evict(&mut self) -> bool {
        let mut any = false;
        for slot in std::mem::take(&mut self.advised) {
            if let Some(victim) = self.design.choose_slot(SlotId(slot)) {
                any |= self.evict_victim(victim.slot);
            }
        }
        if any {
            return true;
        }
        let Some(victim) = self.design.choose_victim(&mut |_| false) else { return false };
        self.evict_victim(victim.slot)
    }

    /// Evicts a WEU that was chosen; its slot is used next.
    pub(super) fn evict_victim(&mut self, slot: SlotId) -> bool {
        let is_empty = self.empty(slot);
        if is_empty {
            self.release(slot);
        }
        is_empty
    }

    /// Evicts a WEU that the drive dropped; its slot is used when those are that were dropped before it.
    ///
    /// The slot that was freed last would be used first otherwise, which has a dropped block written from its end to its
    /// beginning: the one order that a drive with log blocks cannot take in place.
    pub(super) fn evict_dropped(&mut self, slot: SlotId) {
        if self.empty(slot) {
            self.dropped.push_back(slot);
        }
    }

    /// Evicts a WEU that was chosen. Its slot can be released then.
    fn empty(&mut self, slot: SlotId) -> bool {
        let dirty = self.design.dirty_in(slot);
        let dirty: Vec<_> = dirty.into_iter().filter_map(|lba| Some((lba, self.design.dirty_seq(lba)?))).collect();
        self.destage(dirty.into_iter());
        if !self.end_victim(slot) {
            return false;
        }
        // *Slot freed* is durable before the slot is written again.
        self.commit_if_many();
        self.asked.trimmed(slot);
        if self.evictions.is_multiple_of(self.options.commit_entries.max(1)) {
            self.design.sweep();
            self.drop_replaced();
        }
        true
    }

    /// Evicts a victim, if it is clean; else it is spared.
    pub(super) fn end_victim(&mut self, slot: SlotId) -> bool {
        if self.design.evict(slot).is_none() {
            self.design.spare_victim(slot);
            return false;
        }
        self.traffic.chunks_evicted += u64::from(std::mem::take(&mut self.records[slot.0 as usize]));
        self.traffic.weu_erasures += 1;
        self.evictions += 1;
        self.pending += 1;
        true
    }

    /// A slot that was evicted is free.
    pub(super) fn release(&mut self, slot: SlotId) {
        self.design.release_slot(slot);
    }

    /// A slot that the drive emptied is free, the first before all others; false where there is none.
    pub(super) fn release_dropped(&mut self) -> bool {
        self.dropped.pop_front().map(|slot| self.release(slot)).is_some()
    }
}
