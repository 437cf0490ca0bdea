//! Nitro's export of its indices to a checkpoint: at once, or piece by piece while they change.
//!
//! Invariants: it tells no dead fingerprint.
//!
//! Its pieces come from different moments.

use super::Nitro;
use crate::{
    lba_index::GENERATION_MASK,
    types::{Fingerprint, Place},
};

impl Nitro {
    /// Returns the known fingerprints, least recent first.
    pub(super) fn known_oldest_first(&self) -> Vec<(Fingerprint, Place)> {
        self.fingerprints.iter_oldest_first().filter_map(|known| self.live(known)).collect()
    }

    /// Begins an export of slots and fingerprints.
    pub(super) fn begin_pieces(&mut self) {
        self.slots.begin_export();
        self.fingerprints.begin_walk();
    }

    /// Returns the next known fingerprints; `None` at the end.
    pub(super) fn next_known(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        let piece = self.fingerprints.walk()?;
        Some(piece.into_iter().filter_map(|known| self.live(known)).collect())
    }

    /// Returns a known fingerprint with the full generation of its place, if it is live.
    fn live(&self, (fingerprint, mut place): (Fingerprint, Place)) -> Option<(Fingerprint, Place)> {
        let generation = self.slots.generation_for_new(place.slot)?;
        let is_current = generation & GENERATION_MASK == place.generation;
        place.generation = generation;
        is_current.then_some((fingerprint, place))
    }
}
