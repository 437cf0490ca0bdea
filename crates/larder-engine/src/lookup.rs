//! The lookup of an address for a request, which counts as a use.
//!
//! The design answers. An address whose data it replaced may come back: its content is still
//! stored, for another address.
//!
//! Invariants: each lookup is in the log of decisions. No address comes back while the origin may
//! lack its content.
//!
//! It does not pin places, or read metadata slots; its callers do both under the same lock.

use crate::{decision_log::sink::LookupCause, shared::Shared, state::State};
use larder_core::{Fingerprint, Lba, Lookup, NewMapping};

impl Shared {
    /// Looks up the mapping of `lba`, which counts as a use.
    ///
    /// An address that the design replaced is mapped again here, as a fill would map it. That needs
    /// its content to be stored still, and the origin to have it for sure.
    pub(crate) fn lookup(&self, state: &mut State, lba: Lba, cause: LookupCause) -> Lookup {
        let found = state.decide().lookup(lba);
        if found != Lookup::Miss {
            state.note_lookup(lba, cause, &found, false);
            return found;
        }
        let remembered = state.design().remembered(lba);
        let held_back = remembered.is_some()
            && (state.origin_changes.forbids_clean_copy(lba) || !self.may_insert(state) || !self.index_has_room(state));
        let found = remembered.filter(|_| !held_back).and_then(|fingerprint| map_again(state, lba, fingerprint));
        if found.is_some() {
            self.keep_room(state);
        }
        let found = found.unwrap_or(Lookup::Miss);
        state.note_lookup(lba, cause, &found, held_back);
        found
    }
}

/// Maps an address that the design replaced to its content, if that is still stored.
fn map_again(state: &mut State, lba: Lba, fingerprint: Fingerprint) -> Option<Lookup> {
    let place = state.find_duplicate(&fingerprint)?;
    state.prefetch.remove(lba);
    state.map_clean(lba, NewMapping::Duplicate { place }, Some(fingerprint));
    Some(Lookup::Chunk { place, duplicate: true })
}
