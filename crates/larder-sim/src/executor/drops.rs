//! Data that the drive drops by itself: its mappings are forgotten, and its slots are used again.
//!
//! Slots are evicted as by the cache's own choice. A slot for one record goes when no address maps
//! to it any more. For that the cache remembers the addresses of each slot, on such a drive alone.
//!
//! Invariants: no mapping into dropped bytes is left. Dirty data is destaged before.
//!
//! It does not know contents that no address has; a design that keeps them expects no drops.

use super::{Executor, open_slot::index_of};
use crate::devices::Waits;
use larder_core::{Lba, NewMapping, SlotId, StreamClass};
use std::ops::Range;

impl Executor {
    /// Notes the slot of a new mapping, on a drive that drops data.
    pub(super) fn note_address(&mut self, lba: Lba, new: &NewMapping) {
        if !self.dirty.is_on() || !self.options.store.one_record {
            return;
        }
        if let NewMapping::Unique { place, .. } | NewMapping::Duplicate { place } = new {
            let addresses = self.addresses.entry(place.slot).or_default();
            if !addresses.contains(&lba) {
                addresses.push(lba);
            }
        }
    }

    /// Gives up dropped bytes:
    /// [`ReplayCache::evict_range`](crate::cache::ReplayCache::evict_range).
    pub(super) fn evict_all_in(&mut self, bytes: &Range<u64>) {
        self.asked.for_whom(Waits::Nobody);
        let slots = self.asked.slots_in(bytes);
        match self.options.store.one_record {
            true => self.forget_records_in(slots),
            false => self.evict_weus_in(slots),
        }
    }

    /// Evicts the WEUs of these slots. An open slot gets no more, if a segment of it is on flash.
    fn evict_weus_in(&mut self, slots: Range<u64>) {
        for class in [StreamClass::Clean, StreamClass::Dirty] {
            let open = self.open[index_of(class)].as_ref();
            if open.is_some_and(|open| slots.contains(&u64::from(open.slot.0)) && open.packer.start() > 0) {
                self.close_segment(class, true);
            }
        }
        for slot in slots.start..slots.end.min(self.options.slot_count.into()) {
            // None if the slot is free: nothing maps into it.
            if let Some(victim) = self.choose_slot(SlotId(slot as u32)) {
                self.evict_dropped(victim.slot);
            }
        }
    }

    /// Forgets the records that reach into these slots.
    fn forget_records_in(&mut self, slots: Range<u64>) {
        let longest = u64::from(self.options.chunk_bytes / self.options.rules.slot_bytes.max(1)).max(1);
        let first = slots.start.saturating_sub(longest - 1);
        let runs = self.design.stored_runs();
        let ends = |slot: u64| {
            let run = runs.binary_search_by_key(&(slot as u32), |run| run.0.0);
            slot + run.map_or(1, |at| u64::from(runs[at].1))
        };
        let dropped = (first..slots.end.min(self.options.slot_count.into())).filter(|&slot| ends(slot) > slots.start);
        let dropped: Vec<SlotId> = dropped.map(|slot| SlotId(slot as u32)).collect();
        for slot in &dropped {
            for lba in self.addresses.remove(slot).unwrap_or_default() {
                if self.design.slot_of(lba) == Some(*slot) {
                    let dirty = self.design.dirty_seq(lba).map(|seq| (lba, seq));
                    self.destage(dirty.into_iter());
                    self.pending += u64::from(self.design.unmap(lba));
                    self.tell_dirty(lba);
                }
            }
        }
        // Contents that metadata slots tell of are found without an address, too.
        if dropped.iter().any(|slot| runs.binary_search_by_key(slot, |run| run.0).is_ok()) {
            self.design.forget_clean(&|slot| dropped.binary_search(&slot).is_ok());
        }
        self.commit_if_many();
    }
}
