//! The input of a recovery of a placed design.
//!
//! It does not restore the design.

use super::{logged::Logged, made_up::unshared, slot_content::SlotContent};
use crate::{
    history::{Pages, Trust},
    types::{Fingerprint, Lba, Place, SlotId},
};
use std::collections::BTreeMap;

/// The input of a recovery so far.
#[derive(Default)]
pub(super) struct RestoringSlots {
    /// The contents of the flash slots.
    pub told: BTreeMap<SlotId, SlotContent>,
    /// Pieces of the history.
    pub pages: Pages,
    /// The entries of the log behind the checkpoint, by address.
    pub logged: Logged,
    /// The reach of the history.
    pub trust: Option<Trust>,
}

impl RestoringSlots {
    /// Notes a mapping of an address, with its content if it is known.
    pub fn map(&mut self, lba: Lba, known: Option<(Place, Option<Fingerprint>)>) {
        if let Some((place, Some(fingerprint))) = known {
            self.told.insert(place.slot, SlotContent::new(&place, &fingerprint));
        }
        let held = known.and_then(|(place, _)| self.told.get(&place.slot).filter(|held| held.is_at(&place)));
        self.logged.map(lba, held.map(|held| Fingerprint(held.fingerprint)));
    }

    pub fn held(&self, place: &Place) -> SlotContent {
        let told = self.told.get(&place.slot).filter(|held| held.is_at(place));
        let fingerprint = told.map_or_else(|| unshared(place), |held| Fingerprint(held.fingerprint));
        SlotContent::new(place, &fingerprint)
    }
}
