//! The choice of runs that are freed [ahead](super::ahead), and their reuse.
//!
//! It does not know which entries are durable.

use super::Bucketed;
use crate::types::{Lba, SlotId};

impl Bucketed {
    /// Returns the next victims of waiting buckets that are not freed already.
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

    /// Frees a run ahead by log entry `seq`.
    ///
    /// It does nothing if the run is freed already, has dirty data, or goes in any case.
    pub(super) fn free_run(&mut self, slot: SlotId, seq: u64) -> Option<u32> {
        (self.can_be_freed(slot) && self.ahead.free(slot, seq)).then_some(self.generation)
    }

    /// Returns whether the run can be freed. Later log entries name a dirty chunk, at least the
    /// entry that marks it clean, so its run stays.
    fn can_be_freed(&self, slot: SlotId) -> bool {
        let is_there = self.indices.core.run_from(slot.0).is_some() && !self.leaving.contains(&slot);
        is_there && self.exact.in_slot(slot).next().is_none()
    }

    /// Returns the runs in the way of the waiting record of `lba`, if none was chosen for it.
    pub(super) fn in_the_way_for(&self, lba: Lba) -> Vec<SlotId> {
        let wish = self.wishes.get(&lba).filter(|wish| wish.victims.is_empty());
        wish.map(|wish| self.in_the_way_of(wish)).unwrap_or_default()
    }

    /// Frees these runs at once.
    pub(super) fn reuse_runs(&mut self, slots: &[SlotId]) {
        for &slot in slots {
            self.forget_what_was_in(slot);
            if let Some(run) = self.indices.core.run_from(slot.0) {
                self.indices.core.evict(run);
            }
        }
    }

    /// Compares redundant data, and panics on a difference: for tests.
    pub fn check(&self) {
        self.indices.core.check();
        for slot in self.ahead.all() {
            assert!(self.can_be_freed(slot), "{slot:?} is freed ahead, and is dirty, about to go, or nothing");
        }
        for slot in self.ahead.waiting() {
            assert!(self.ahead.has(slot), "{slot:?} waits for its entry, and is not freed");
        }
        for slot in &self.stuck {
            assert!(self.indices.core.run_from(slot.0).is_some(), "{slot:?} could not go, and is nothing");
        }
    }
}
