//! The next try of a chunk whose record could not be read.
//!
//! A mapping that changed meanwhile is looked up again. Clean data comes from the origin. Dirty
//! data is lost, and the read fails.
//!
//! Invariants: a record is given up only after a read of it alone. A mapping is forgotten only if
//! it still leads to the damaged record.
//!
//! It does not read, or look the mapping up; [`read`](crate::read) does.

use super::want::Want;
use crate::{error::EngineError, shared::Shared, state::State};
use larder_core::{Lookup, Place};
use std::sync::atomic::Ordering::*;

/// Tries of one chunk with a record that was replaced, is damaged, or that the flash fails to read.
pub(crate) const TRIES_MAX: usize = 4;

/// A chunk whose record could not be read.
pub(super) struct Unread {
    /// The index of the wanted chunk.
    pub(super) index: usize,
    pub(super) place: Place,
    /// The device failed, so the record was not checked.
    pub(super) has_failed: bool,
}

/// The next try of a chunk.
pub(super) enum NextTry {
    /// The mapping is looked up again.
    LookUp,
    /// The origin has the chunk.
    Origin,
    /// The flash keeps failing, and the data is dirty.
    GiveUp,
}

/// The decision about the mapping of an unread record.
enum Verdict {
    /// The mapping stays, and is looked up again.
    Retry,
    /// The mapping is clean and leads to no data: the origin has the data.
    Forget,
    /// The mapping is dirty, and the flash keeps failing.
    GiveUp,
}

impl Shared {
    /// Decides anew for a chunk with an unread record, and forgets its mapping if it leads to no
    /// data.
    ///
    /// # Errors
    /// [`EngineError::DirtyDataLost`] if a dirty record fails its check twice.
    pub(super) fn next_try(
        &self,
        state: &mut State,
        want: &Want,
        unread: &Unread,
        attempt: usize,
    ) -> Result<NextTry, EngineError> {
        match self.judge(state, want, unread, attempt)? {
            Verdict::GiveUp => return Ok(NextTry::GiveUp),
            Verdict::Forget if self.log_is_crowded(state) => {
                // The next read of the chunk forgets it.
                self.signals.checkpoint_wanted.notify();
                return Ok(NextTry::Origin);
            }
            Verdict::Forget => {
                state.invalidate(want.lba);
            }
            Verdict::Retry => {}
        }
        // A mapping that is still to be confirmed is clean.
        let is_clean = state.unconfirmed(want.lba).is_some();
        Ok(if is_clean { NextTry::Origin } else { NextTry::LookUp })
    }

    /// Decides about the mapping, and notes the damage.
    ///
    /// # Errors
    /// [`EngineError::DirtyDataLost`] if a dirty record fails its check twice.
    fn judge(&self, state: &mut State, want: &Want, unread: &Unread, attempt: usize) -> Result<Verdict, EngineError> {
        let is_same = match state.design().peek(want.lba) {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => place == unread.place,
            _ => false,
        };
        let dirty = state.design().dirty_seq(want.lba);
        if unread.has_failed {
            // A record that the device fails to read is tried again by itself: the first read may
            // have included a broken neighbour. Then the origin has the data, if it is clean, or
            // was destaged meanwhile.
            let is_bad = is_same && attempt > 0;
            if is_bad {
                state.note_damaged(&unread.place);
            }
            return Ok(match dirty {
                None if is_bad => Verdict::Forget,
                Some(_) if attempt >= TRIES_MAX => Verdict::GiveUp,
                _ => Verdict::Retry,
            });
        }
        // A dirty record that fails its check is read again: the first read may have been wrong.
        state.note_damaged(&unread.place);
        if !is_same || dirty.is_some() && attempt == 0 {
            return Ok(Verdict::Retry);
        }
        self.counters.corrupt_records.fetch_add(1, Relaxed);
        if let Some(seq) = dirty {
            state.lost.note(want.lba, seq);
            return Err(EngineError::DirtyDataLost { offset: self.geometry.offset_of(want.lba) });
        }
        Ok(Verdict::Forget)
    }
}
