//! Mappings, whose work may go on once the lock of the state is given back.
//!
//! Invariants: changed metadata slots are queued under the lock of their decision.
//!
//! It does not log a mapping.

use crate::{state::State, state_lock::StateGuard};
use larder_core::{Lba, NewMapping};

impl State {
    /// Maps `lba` clean.
    pub(crate) fn map_at_once(&mut self, lba: Lba, new: NewMapping) {
        self.decide().map(lba, new, None);
        self.note_changed_entries();
    }
}

impl StateGuard<'_, State> {
    /// Maps `lba` dirty under its sequence number.
    ///
    /// The guard has the part that may run beside later decisions.
    pub(crate) fn map_beside_others(&mut self, lba: Lba, new: NewMapping, seq: u64) {
        self.defer(|state| state.decide().map_deferring(lba, new, Some(seq)));
        self.note_changed_entries();
    }
}
