//! Answers that lack a metadata slot, and knowledge for the design.
//!
//! Invariants: a slot is told as it was read under its turn.
//!
//! It does not read the slots.

use crate::state::State;
use larder_core::{
    Lba, Place, SlotId,
    design::{Hit, Question},
    region::RegionEntry,
};
use std::sync::Arc;

impl State {
    /// Returns the metadata slot to read before the design can answer `question`.
    pub(crate) fn unread(&self, question: Question<'_>) -> Option<SlotId> {
        self.design.unread(question)
    }

    /// Tells the design the metadata slot of `slot`; `None` if it is damaged or unreadable.
    pub(crate) fn tell(&mut self, slot: SlotId, entry: Option<RegionEntry>) {
        self.note_told(slot, entry.as_ref());
        self.design.tell(slot, entry.map(Arc::new));
    }

    /// Returns the metadata slot that names the mapping of `lba`, if a [hit](State::hit) lacks only
    /// that.
    pub fn unread_hit(&self, lba: Lba) -> Option<SlotId> {
        let slot = self.unread(Question::Address(lba))?;
        (!self.writer.is_in_memory(slot)).then_some(slot)
    }

    /// Returns a hit as [`State::hit`] does, by the metadata slot of `slot` as just read.
    pub fn hit_with(&self, lba: Lba, slot: SlotId, entry: &RegionEntry) -> Option<Hit> {
        self.design.hit_with(lba, slot, entry).filter(|hit| !self.writer.is_in_memory(hit.place.slot))
    }

    /// Hides the record at `place` from all searches for its content.
    pub(crate) fn hide(&mut self, place: &Place) {
        self.design.spoil(place);
        self.note_changed_entries();
    }
}
