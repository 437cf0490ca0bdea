//! What nitro tells a checkpoint of its indices: at once, or piece by piece while they go on changing.
//!
//! Invariants: a fingerprint that leads nowhere any more is not told.
//!
//! What it does not do: tell all of one moment.

use super::Nitro;
use crate::{
    lba_index::GENERATION_MASK,
    types::{Fingerprint, Place},
};

impl Nitro {
    /// Known fingerprints, least recent first.
    pub(super) fn known_oldest_first(&self) -> Vec<(Fingerprint, Place)> {
        self.fingerprints.iter_oldest_first().filter_map(|known| self.live(known)).collect()
    }

    /// Slots and fingerprints are asked for from the first on.
    pub(super) fn begin_pieces(&mut self) {
        self.slots.begin_export();
        self.fingerprints.begin_walk();
    }

    /// The next known fingerprints; `None` at the end.
    pub(super) fn next_known(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        let piece = self.fingerprints.walk()?;
        Some(piece.into_iter().filter_map(|known| self.live(known)).collect())
    }

    /// A known fingerprint with the whole generation of its place, if it leads anywhere.
    fn live(&self, (fingerprint, mut place): (Fingerprint, Place)) -> Option<(Fingerprint, Place)> {
        let generation = self.slots.generation_for_new(place.slot)?;
        let is_current = generation & GENERATION_MASK == place.generation;
        place.generation = generation;
        is_current.then_some((fingerprint, place))
    }
}
