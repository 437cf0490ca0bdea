//! Eviction of WEUs under replay: dirty chunks go to the origin, mappings die, the slot is free.
//!
//! Invariants: *slot freed* is in the log, or waits for it with the entries that must be durable
//! before the slot is written again. Slots that the drive emptied are used in the order in which it
//! did, once no other is free.
//!
//! It leaves the choice to the design, or to the drive beneath it.

use super::WeuCache;
use larder_core::SlotId;

impl WeuCache {
    /// Evicts every WEU that the drive would drop next, if it said so and one can go.
    ///
    /// Otherwise it evicts one, the design's choice. One alone out of a larger unit would be all
    /// that is ever evicted: the rest keeps the unit in its place, the least recent.
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

    /// Evicts a chosen WEU; its slot is used next.
    pub(super) fn evict_victim(&mut self, slot: SlotId) -> bool {
        let is_empty = self.empty(slot);
        if is_empty {
            self.release(slot);
        }
        is_empty
    }

    /// Evicts a WEU that the drive dropped. Its slot is used after those that were dropped before
    /// it.
    ///
    /// Otherwise the slot that was freed last would be used first, so a dropped block would be
    /// written from its end to its beginning. A drive with log blocks cannot take that one order in
    /// place.
    pub(super) fn evict_dropped(&mut self, slot: SlotId) {
        if self.empty(slot) {
            self.dropped.push_back(slot);
        }
    }

    /// Evicts a chosen WEU. Its slot can be released then.
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

    /// Evicts a victim, if it is clean; else spares it.
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

    /// Frees a slot that was evicted.
    pub(super) fn release(&mut self, slot: SlotId) {
        self.design.release_slot(slot);
    }

    /// Frees the first slot that the drive emptied. Returns false if there is none.
    pub(super) fn release_dropped(&mut self) -> bool {
        self.dropped.pop_front().map(|slot| self.release(slot)).is_some()
    }
}
