//! Wishes: records that wait to be stored, and the runs that go for them.
//!
//! Invariants: wishes get victims in turn, so a choice looks at all wishes only if none has a
//! victim left.
//!
//! It leaves the choice of runs for a content to [`Bucketed::victims_of`].

use super::Bucketed;
use crate::{
    design::Victim,
    types::{Lba, SlotId},
};
use std::ops::Bound;

impl Bucketed {
    /// Returns the next run to go, for the last wish that had one, or a later one by address.
    pub(super) fn next_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        let mut from = Bound::Included(self.turn);
        for _ in 0..self.wishes.len() {
            let next = self.wishes.range((from, Bound::Unbounded)).next().or_else(|| self.wishes.iter().next());
            let lba = *next?.0;
            if let Some(slot) = self.victim_for(lba, busy) {
                self.turn = lba;
                self.leaving.insert(slot);
                self.ahead.keep(slot);
                return Some(Victim { slot, dirty_refs: self.exact.in_slot(slot).count() as u32 });
            }
            from = Bound::Excluded(lba);
        }
        None
    }

    /// Returns a run that goes for this wish and is not busy.
    fn victim_for(&mut self, lba: Lba, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<SlotId> {
        self.map_wish(lba);
        let wish = self.wishes.get(&lba)?;
        if wish.victims.is_empty() {
            let Some(victims) = self.victims_of(wish) else {
                self.wishes.remove(&lba);
                return None;
            };
            self.wishes.entry(lba).and_modify(|wish| wish.victims = victims);
        }
        let Bucketed { wishes, leaving, indices, .. } = self;
        let wish = wishes.get_mut(&lba)?;
        // Another wish may have evicted some of them, or more.
        wish.victims.retain(|slot| !leaving.contains(slot) && indices.core.run_from(slot.0).is_some());
        let at = wish.victims.iter().position(|&slot| !busy(slot))?;
        Some(wish.victims.remove(at))
    }
}
