//! Reading a chunk again, whose record could not be read.
//!
//! A mapping that changed meanwhile is looked up again. Clean data comes from the origin. Dirty
//! data is lost, and the read fails.
//!
//! Invariants: a record is given up only after a read of it alone. A mapping is forgotten only if
//! it still leads to the damaged record.
//!
//! It does not offer the chunk that the origin gives in its place.

use super::{Miss, Plan, TRIES_MAX, Unread, want::Want};
use crate::{error::EngineError, shared::Shared, state::State};
use larder_core::Lookup;
use larder_device::{IoBuf, IoError, IoErrorKind, IoOp};
use std::{
    slice,
    sync::{Arc, atomic::Ordering::*},
};

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
    /// Serves a chunk whose record could not be read.
    pub(super) async fn read_damaged(
        self: &Arc<Self>,
        want: &Want,
        mut unread: Unread,
        buf: &mut IoBuf,
    ) -> Result<(), EngineError> {
        for attempt in 0.. {
            self.confirm(want.lba).await;
            let Some(plan) = self.plan_again(want, &unread, attempt)? else { break };
            match self.carry_out(slice::from_ref(want), vec![plan], buf).await?.pop() {
                Some(again) => unread = again,
                None => return Ok(()),
            }
        }
        let (offset, len) = (self.geometry.offset_of(want.lba) + want.from as u64, want.len as u64);
        Err(IoError::new(IoErrorKind::Io, IoOp::Read, offset, len).with_detail("the flash device keeps failing").into())
    }

    /// Decides anew for a chunk with an unread record. Returns `None` if no try is left.
    fn plan_again(self: &Arc<Self>, want: &Want, unread: &Unread, attempt: usize) -> Result<Option<Plan>, EngineError> {
        let mut state = self.state.lock();
        match self.judge(&mut state, want, unread, attempt)? {
            Verdict::GiveUp => return Ok(None),
            Verdict::Forget if self.log_is_crowded(&state) => {
                // The next read of the chunk forgets it.
                self.signals.checkpoint_wanted.notify();
                return Ok(Some(Plan::Origin(Miss::Damaged)));
            }
            Verdict::Forget => {
                state.invalidate(want.lba);
            }
            Verdict::Retry => {}
        }
        if state.unconfirmed(want.lba).is_some() {
            // A mapping that is still to be confirmed is clean.
            return Ok(Some(Plan::Origin(Miss::Damaged)));
        }
        Ok(Some(match self.plan_known(&mut state, want, true) {
            Plan::Origin(_) | Plan::Wait => Plan::Origin(Miss::Damaged),
            known => known,
        }))
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
