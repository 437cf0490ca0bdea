//! Slots that are freed ahead of their need.
//!
//! A chunk that fits in a few slots only, as in buckets, needs room before it comes. The evictor
//! cleans slots that will likely have to go, and logs that they are free. Their mappings stay and
//! hit until the slot is needed
//! ([`Provisional::free_ahead`](larder_core::design::Provisional::free_ahead)). The numbers are the
//! steps of [`evict`](crate::evict).
//!
//! Invariants: a slot is reused only when its entry is durable and the slot is not in use. No later
//! entry of the log names a freed slot: a mapping there keeps it.
//!
//! It does not choose; the design does.

use crate::{shared::Shared, state::State};
use larder_core::{
    Lba, SlotId,
    decisions::{Answer, Event},
    limits::FREED_AHEAD_MAX,
};
use std::sync::atomic::Ordering::*;

impl State {
    /// Returns whether enough slots will likely go to be worth a commit.
    pub(crate) fn wants_room_ahead(&self) -> bool {
        self.design().is_freeing_due()
    }

    /// Returns slots that will likely have to go, about [`FREED_AHEAD_MAX`] at most.
    pub(crate) fn choose_ahead(&mut self) -> Vec<SlotId> {
        self.decide().likely_victims(FREED_AHEAD_MAX)
    }

    /// Logs that a slot is free, which holds once the entry is durable. Returns whether it logged
    /// that.
    pub(crate) fn free_ahead(&mut self, slot: SlotId) -> bool {
        // The mappings of a write under way would be logged behind this entry.
        if self.writer.is_in_memory(slot) {
            return false;
        }
        let seq = self.log.next_seq();
        let Some(generation) = self.decide().free_ahead(slot, seq) else { return false };
        self.log.push_freed_ahead(slot, generation);
        true
    }

    /// Returns a slot whose end makes room for the record of `lba`, if few slots do.
    pub(crate) fn slot_to_await(&self, lba: Lba) -> Option<SlotId> {
        self.design().in_the_way(lba).first().copied()
    }

    /// Keeps `slot`: the log is about to map a chunk there.
    pub(super) fn keep_freed(&mut self, slot: SlotId) {
        self.decide().keep(slot);
    }

    /// Keeps all slots, at an orderly end.
    pub(crate) fn keep_slots(&mut self) {
        self.decide().keep_all();
    }
}

impl Shared {
    /// Does (2) for slots that likely have to go, whose mappings stay. Returns these slots.
    pub(crate) fn log_freed_ahead(&self, likely: &[SlotId]) -> Vec<SlotId> {
        likely.iter().copied().filter(|&slot| self.state.lock().free_ahead(slot)).collect()
    }

    /// Evicts the records in the way of a record, if all were freed ahead and are unused. Returns
    /// whether it did.
    ///
    /// An eviction here does steps (4) to (6) at once.
    pub(crate) fn make_way(&self, state: &mut State, lba: Lba) -> bool {
        let (slots, durable_below) = (state.design().in_the_way(lba), state.log.durable_below());
        let mut can_go = |slot| {
            state.decide().is_freed(slot, durable_below)
                && !state.writer.is_in_memory(slot)
                && !self.pins.is_pinned(slot)
        };
        if slots.is_empty() || !slots.iter().all(|&slot| can_go(slot)) {
            return false;
        }
        state.decide().reuse(&slots);
        state.decisions.note(|| (Event::Reuse { lba }, Answer::Count(slots.len() as u64)));
        slots.iter().for_each(|&slot| state.forget_damage_in(slot));
        self.counters.evicted_slots.fetch_add(slots.len() as u64, Relaxed);
        true
    }
}
