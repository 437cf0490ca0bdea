//! Eviction of slots under replay: dirty chunks go to the origin, mappings die, the slots are free.
//!
//! The order is that of the engine's `evict.rs`, for a batch that goes with one commit. A store of
//! buckets has slots freed ahead in it, which a record takes at once.
//!
//! Invariants: *slot freed* is in the log, or waits for it with the entries that must be durable
//! before the slot is written again. Slots that the drive emptied are used in the order in which it
//! did, once no other is free.
//!
//! It leaves the choice to the design, or to the drive beneath it.

use super::Executor;
use larder_core::{Lba, SlotId, Victim, limits::FREED_AHEAD_MAX};

impl Executor {
    /// Evicts every slot that the drive would drop next, if it said so and one can go.
    ///
    /// Otherwise it evicts so many at most, the design's choice. One alone out of a larger unit
    /// would be all that is ever evicted: the rest keeps the unit in its place, the least recent.
    pub(super) fn evict_some(&mut self, count: usize) -> bool {
        let mut any = false;
        for slot in std::mem::take(&mut self.advised) {
            if let Some(victim) = self.choose_slot(SlotId(slot)) {
                any |= self.evict_all(&[victim.slot], &[]) > 0;
            }
        }
        any || self.evict_batch(count) > 0
    }

    /// Chooses this slot for replacement, if it may go: the drive has decided.
    pub(super) fn choose_slot(&mut self, slot: SlotId) -> Option<Victim> {
        self.design.choose_victim(&mut |other| other != slot)
    }

    /// Evicts slots until enough are free, and frees ahead those that will likely have to go.
    pub(super) fn keep_slots_free(&mut self) {
        let wanted = self.options.store.free_slots_wanted;
        while self.design.free_slots() < wanted || self.design.is_freeing_due() {
            self.drop_replaced();
            if self.evict_batch(self.options.store.evicted_at_once) == 0 {
                break;
            }
        }
        if self.options.store.one_record {
            self.commit_if_many();
        }
    }

    /// Evicts so many slots at most, and returns how many went or were freed ahead.
    fn evict_batch(&mut self, count: usize) -> usize {
        let likely = self.design.likely_victims(FREED_AHEAD_MAX);
        let choices = std::iter::from_fn(|| self.design.choose_victim(&mut |_| false));
        let victims: Vec<SlotId> = choices.take(count).map(|victim| victim.slot).collect();
        self.evict_all(&victims, &likely)
    }

    /// Evicts chosen slots, which are used next, and frees others ahead.
    fn evict_all(&mut self, victims: &[SlotId], likely: &[SlotId]) -> usize {
        self.destage_in(victims.iter().chain(likely).copied());
        victims.iter().for_each(|&slot| self.read_survivors(slot));
        let gone = self.empty(victims, likely);
        gone.0.iter().for_each(|&slot| self.release(slot));
        gone.0.len() + gone.1
    }

    /// Evicts a slot that the drive dropped. Its slot is used after those that were dropped before
    /// it.
    ///
    /// Otherwise the slot that was freed last would be used first, so a dropped block would be
    /// written from its end to its beginning. A drive with log blocks cannot take that one order in
    /// place.
    pub(super) fn evict_dropped(&mut self, slot: SlotId) {
        self.destage_in([slot].into_iter());
        let (gone, _) = self.empty(&[slot], &[]);
        self.dropped.extend(gone);
    }

    /// Evicts chosen slots without dirty data, and returns those that can be released then. Others
    /// are freed ahead; it returns how many.
    fn empty(&mut self, victims: &[SlotId], likely: &[SlotId]) -> (Vec<SlotId>, usize) {
        let gone: Vec<SlotId> = victims.iter().copied().filter(|&slot| self.end_victim(slot)).collect();
        let ahead = likely.iter().filter(|&&slot| self.free_ahead(slot)).count();
        if gone.is_empty() && ahead == 0 {
            return (gone, 0);
        }
        // *Slot freed* is durable before the slot is written again.
        let entries = self.options.store.evict_commit_entries;
        if self.pending >= entries {
            self.commit();
        }
        if self.options.store.trims_slots {
            gone.iter().for_each(|&slot| self.asked.trimmed(slot));
        }
        if self.evictions.is_multiple_of(entries.max(1)) {
            self.design.sweep();
            self.drop_replaced();
        }
        (gone, ahead)
    }

    /// Destages the dirty chunks in some slots.
    fn destage_in(&mut self, slots: impl Iterator<Item = SlotId>) {
        let dirty = slots.flat_map(|slot| self.design.dirty_in(slot));
        let dirty: Vec<_> = dirty.filter_map(|lba| Some((lba, self.design.dirty_seq(lba)?))).collect();
        self.destage(dirty.into_iter());
    }

    /// Reads the records of a clean victim that are to be stored again.
    ///
    /// A drive that drops data by itself may have dropped them by then.
    fn read_survivors(&mut self, slot: SlotId) {
        if self.dirty.is_on() || !self.design.dirty_in(slot).is_empty() {
            return;
        }
        for survivor in self.design.survivors(slot) {
            self.count_record_read(&survivor.place);
            self.survivors.push_back(survivor);
        }
    }

    /// Logs that a slot is free, whose mappings stay until it is used again.
    fn free_ahead(&mut self, slot: SlotId) -> bool {
        let is_freed = self.design.free_ahead(slot, self.next_seq).is_some();
        self.next_seq += u64::from(is_freed);
        self.pending += u64::from(is_freed);
        is_freed
    }

    /// Evicts the records in the way of one for `lba`, if all were freed ahead.
    pub(super) fn reuse_freed(&mut self, lba: Lba) -> bool {
        let slots = self.design.in_the_way(lba);
        let durable_below = self.next_seq;
        if slots.is_empty() || !slots.iter().all(|&slot| self.design.is_freed(slot, durable_below)) {
            return false;
        }
        self.reuse(&slots);
        true
    }

    /// Takes slots that were freed ahead.
    pub fn reuse(&mut self, slots: &[SlotId]) {
        self.design.reuse(slots);
        slots.iter().for_each(|&slot| self.count_gone(slot));
    }

    /// Evicts a victim, if it is clean; else spares it.
    pub fn end_victim(&mut self, slot: SlotId) -> bool {
        if self.design.evict(slot).is_none() {
            self.design.spare_victim(slot);
            return false;
        }
        self.count_gone(slot);
        self.pending += 1;
        true
    }

    fn count_gone(&mut self, slot: SlotId) {
        self.traffic.chunks_evicted += u64::from(std::mem::take(&mut self.records[slot.0 as usize]));
        self.traffic.weu_erasures += u64::from(!self.options.store.one_record);
        self.evictions += 1;
        self.addresses.remove(&slot);
        self.region.forget(slot);
    }

    /// Frees a slot that was evicted.
    pub fn release(&mut self, slot: SlotId) {
        self.design.release_slot(slot);
    }

    /// Frees the first slot that the drive emptied. Returns false if there is none.
    pub(super) fn release_dropped(&mut self) -> bool {
        self.dropped.pop_front().map(|slot| self.release(slot)).is_some()
    }
}
