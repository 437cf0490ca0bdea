//! Addresses that no metadata slot may name on flash yet.
//!
//! After a crash a metadata slot must name no more than the log or the origin has. So the design
//! holds a new address until the log durably has its mapping, or the origin its content.
//!
//! Invariants: the RAM for held addresses is bounded, because writers wait for commits.
//!
//! It does not write the metadata slots.

use crate::state::State;
use larder_core::{
    Lba, Place,
    decisions::{Answer, Event},
    limits::{HELD_ADDRESSES_MAX, commit_due},
};

impl State {
    /// Returns whether a commit is due for the held addresses.
    pub(crate) fn wants_commit(&self) -> bool {
        self.design().held_entries() as u64 >= commit_due(HELD_ADDRESSES_MAX as u64)
    }

    /// Returns whether no more addresses may be held.
    pub(crate) fn needs_commit(&self) -> bool {
        self.design().held_entries() >= HELD_ADDRESSES_MAX
    }

    /// Notes that the log is about to have the clean mapping of `lba` to `place`, or that it is
    /// gone.
    ///
    /// The origin durably has the chunk by now. The log keeps the slot of a mapping, even if it was
    /// freed ahead.
    pub(crate) fn note_clean(&mut self, lba: Lba, place: &Place, is_mapped: bool) {
        self.settle(lba, place, is_mapped);
        if is_mapped {
            self.keep_freed(place.slot);
        }
    }

    fn settle(&mut self, lba: Lba, place: &Place, is_durable: bool) {
        if self.design().held_at(lba) == Some(place.slot) {
            self.decisions.note(|| (Event::Settled { lba, is_durable }, Answer::Done));
            self.decide().settle(lba, is_durable);
            self.note_changed_entries();
        }
    }

    /// Notes that the log durably has the entries below `log.durable_below`.
    pub fn note_committed(&mut self) {
        if self.design().held_entries() > 0 {
            let upto = self.log.durable_below();
            self.decisions.note(|| (Event::Committed { upto }, Answer::Done));
            self.decide().committed(upto);
            self.note_changed_entries();
        }
    }
}
