//! Answers that lack a metadata slot, and knowledge for the design.
//!
//! Invariants: a slot is told as it was read under its turn.
//!
//! It does not read the slots.

use crate::{shared::Shared, state::State, stripes::Stripe};
use larder_core::{
    Fingerprint, Lba, Place, SlotId,
    decisions::{Answer, Event},
    design::{Hit, Question},
    region::RegionEntry,
};
use std::sync::Arc;

/// An answer that lacks this metadata slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unconfirmed(pub(super) SlotId);

impl State {
    /// Returns the answers about `lba` if they are not sure yet.
    pub(crate) fn unconfirmed(&self, lba: Lba) -> Option<Unconfirmed> {
        self.design().unread(Question::Address(lba)).map(Unconfirmed)
    }

    /// Returns the answers about a content if they are not sure yet.
    pub(crate) fn unconfirmed_content(&self, content: &Fingerprint) -> Option<Unconfirmed> {
        self.design().unread(Question::Content(content)).map(Unconfirmed)
    }

    /// Returns whether this content is stored, ahead of its insertion; counts as a use.
    ///
    /// If a metadata slot decides it, the content is likely stored. At most one in 512 new contents
    /// has the hash of a stored one.
    pub(crate) fn knows(&mut self, fingerprint: Fingerprint) -> bool {
        let found = self.find_duplicate(&fingerprint);
        let answer = found.as_ref().map_or(Answer::Miss, |place| Answer::Hit(place.into()));
        self.decisions.note(|| (Event::Look { fingerprint }, answer));
        found.is_some() || self.unconfirmed_content(&fingerprint).is_some()
    }

    /// Tells the design the metadata slot of `slot`; `None` if it is damaged or unreadable.
    pub(super) fn tell(&mut self, slot: SlotId, entry: Option<RegionEntry>) {
        self.note_told(slot, entry.as_ref());
        self.decide().tell(slot, entry.map(Arc::new));
    }

    /// Returns a [hit](State::hit) of `lba` that lacks only the metadata slot of its mapping.
    pub(crate) fn unconfirmed_hit(&self, lba: Lba) -> Option<Unconfirmed> {
        self.unconfirmed(lba).filter(|hit| !self.writer.is_in_memory(hit.0))
    }

    /// Returns a hit as [`State::hit`] does, by the metadata slot of `slot` as just read.
    fn hit_with(&self, lba: Lba, slot: SlotId, entry: &RegionEntry) -> Option<Hit> {
        self.design().hit_with(lba, slot, entry).filter(|hit| !self.writer.is_in_memory(hit.place.slot))
    }

    /// Hides the record at `place` from all searches for its content.
    pub(crate) fn hide(&mut self, place: &Place) {
        self.decide().spoil(place);
        self.note_changed_entries();
    }
}

impl Shared {
    /// Looks for a hit of `lba` by the metadata slot that it lacks. Returns the finding of `found`.
    ///
    /// The holder of the slot's turn tells the design if the slot does not confirm the hit. The
    /// finding keeps the record by itself when the turn ends, even if the metadata slot changes.
    pub(crate) async fn look_confirmed<R>(
        &self,
        stripe: Stripe,
        Unconfirmed(slot): Unconfirmed,
        lba: Lba,
        found: impl Fn(Place) -> R,
    ) -> Option<R> {
        let turn = self.region_turn(slot).granted().await;
        let entry = self.read_entry(slot).await;
        let look = |state: &State| {
            let hit = state.hit_with(lba, slot, entry.as_ref()?)?;
            Some((found(hit.place), hit.used))
        };
        let shared = |state: &State| look(state).map(|(found, used)| (found, Some(used)));
        let alone = |state: &mut State| match look(state) {
            Some((found, used)) => {
                state.use_hits(&[used]);
                Some(found)
            }
            None => {
                state.tell(slot, entry.clone());
                None
            }
        };
        let finding = self.state.look(stripe, shared, alone);
        drop(turn);
        finding
    }
}
