//! Room in the metadata log: the right to add entries, and the wait for a checkpoint that frees
//! some.
//!
//! A checkpoint needs the log itself: the decisions of its duration go into it, behind all waiting
//! entries. So a quarter of the log is its reserve. Tasks that add entries stop before the log and
//! all waiting entries reach the reserve. Writers, trims, changes of the origin, destages and
//! evictions wait. Insertions are dropped. A read of a damaged clean record goes to the origin, and
//! a later read forgets the record.
//!
//! Invariants: all entries that may come without another request are counted. They are:
//! - the entries in the queue;
//! - the clean mappings that wait for a flush of the origin or for their record (a failed flush
//!   may make an entry of each);
//! - one for each chunk that a writer has asked for ([`Reserved`]), as many at most as entries may
//!   wait;
//! - the entries of each destage and eviction under way ([`ReservedBatch`]).
//!
//! It does not write the log; [`flush`](crate::flush) does.

pub(crate) mod reservations;

use crate::{error::EngineError, log_room::reservations::Reservations, shared::Shared, state::State, sync::either};
use larder_core::limits::{CHECKPOINT_DUE_PERCENT, commit_due, pending_entries_max};
use larder_format::log::{LOG_ENTRY_BYTES, frame_bytes_for};
use std::sync::atomic::Ordering::*;

/// Share of the log that may be filled; the rest is for the commits of a checkpoint. In percent.
pub const LOG_USED_PERCENT_MAX: u64 = 75;
/// Share that commits beside a checkpoint may fill, with the entries that are to come. The rest is
/// for padding of the checkpoint's own frames. In percent.
const LOG_TAKEN_PERCENT_MAX: u64 = 90;
/// Share of the log from which on a checkpoint of a crowded log is worth it. In percent.
const WORTH_PERCENT: u64 = 10;
/// Returned reservations after which the waiting tasks are woken.
const WAKE_EVERY: u32 = 16;

/// Room for one entry of the log, until this is dropped. The holder adds no more than one.
pub struct Reserved<'a>(&'a Shared);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let reservations = &self.0.reservations;
        let left = reservations.held.fetch_sub(1, SeqCst) - 1;
        // Every `WAKE_EVERY`-th end wakes the waiting tasks, which may be thousands.
        if left.is_multiple_of(WAKE_EVERY) && reservations.full.swap(false, SeqCst) {
            self.0.signals.reserved.notify();
        }
    }
}

/// Room for the entries of a destage or an eviction, until this is dropped.
pub struct ReservedBatch<'a>(&'a Shared, u32);

impl Drop for ReservedBatch<'_> {
    fn drop(&mut self) {
        self.0.reservations.batches.fetch_sub(self.1, SeqCst);
        self.0.signals.reserved.notify();
    }
}

impl State {
    /// Returns the entries that come into the log without another request, those in its queue among
    /// them.
    fn waiting(&self) -> usize {
        self.log.len() + self.unflushed.len() + self.writer.awaiting()
    }
}

impl Shared {
    /// Returns the limit of waiting log entries: the log keeps room in reserve for them.
    pub fn pending_entries_max(&self) -> usize {
        pending_entries_max(self.geometry.layout.log_bytes / LOG_ENTRY_BYTES as u64) as usize
    }

    /// Returns the waiting entries from which a commit is due.
    fn pending_entries_due(&self) -> usize {
        commit_due(self.pending_entries_max() as u64) as usize
    }

    /// Returns whether the log, with all waiting entries, has come to its reserve.
    ///
    /// Then only entries that cannot wait for a checkpoint are added.
    pub fn log_is_crowded(&self, state: &State) -> bool {
        self.is_crowded_with(state, state.waiting())
    }

    /// Returns whether a checkpoint is due, for the entries of the log and the mappings it lacks.
    pub fn log_is_used(&self, state: &State) -> bool {
        let left_out = state.unlogged.left_out() * LOG_ENTRY_BYTES as u64;
        let used = state.log.area().position().used_bytes + left_out;
        used * 100 >= self.geometry.layout.log_bytes * CHECKPOINT_DUE_PERCENT
    }

    fn is_crowded_with(&self, state: &State, waiting: usize) -> bool {
        let bytes = frame_bytes_for(waiting + self.reserved(), self.geometry.layout.sector_bytes) as u64;
        // No entry comes into the log of a flash that failed, and no task waits for it.
        !state.log.is_dead() && state.log.area().position().used_bytes + bytes > self.log_share(LOG_USED_PERCENT_MAX)
    }

    /// Returns the entries for which room is reserved.
    fn reserved(&self) -> usize {
        let Reservations { held, batches, .. } = &self.reservations;
        held.load(SeqCst) as usize + batches.load(SeqCst) as usize
    }

    /// Returns whether a commit would take the log's reserve.
    ///
    /// In a frame of its own a few entries take more room than among others. So the commit also
    /// leaves room for the entries to come.
    pub fn commit_is_crowded(&self, state: &State) -> bool {
        let used = self.used_once_committed(state);
        let later = (state.waiting() - state.log.len() + self.reserved()) * LOG_ENTRY_BYTES;
        used > self.log_share(LOG_USED_PERCENT_MAX) || used + later as u64 > self.log_share(LOG_TAKEN_PERCENT_MAX)
    }

    /// Returns whether a checkpoint would help a crowded log.
    ///
    /// It helps if it frees committed entries, or commits waiting ones that the next checkpoint
    /// frees.
    pub fn checkpoint_helps(&self, state: &State) -> bool {
        self.used_once_committed(state) >= self.log_share(WORTH_PERCENT) || self.commit_is_crowded(state)
    }

    /// Returns the bytes of the log in use once its queue is committed.
    fn used_once_committed(&self, state: &State) -> u64 {
        let bytes = frame_bytes_for(state.log.len(), self.geometry.layout.sector_bytes) as u64;
        state.log.area().position().used_bytes + bytes
    }

    fn log_share(&self, percent: u64) -> u64 {
        self.geometry.layout.log_bytes / 100 * percent
    }

    /// Returns whether a commit is due, though no task asks for one.
    pub(crate) fn commit_is_due(&self, state: &State) -> bool {
        let entries = state.log.len();
        entries >= self.pending_entries_due() || entries > 0 && state.wants_commit()
    }

    /// Returns whether writers have to wait for a commit.
    pub(crate) fn commit_is_overdue(&self, state: &State) -> bool {
        state.log.len() >= self.pending_entries_max() || state.needs_commit() && !state.log.is_empty()
    }

    /// Returns whether the mappings that wait for a flush of the origin are to be drained.
    pub(crate) fn drain_is_due(&self, state: &State) -> bool {
        state.unflushed.len() >= self.pending_entries_due() || state.wants_commit()
    }

    /// Returns whether the log allows one more clean mapping.
    pub fn may_insert(&self, state: &State) -> bool {
        let waiting = state.waiting();
        waiting < self.pending_entries_max()
            && !state.needs_commit()
            && !self.is_crowded_with(state, waiting)
            && !state.flash.is_failed()
            && !self.is_closing()
    }

    /// Returns the limit of writers under way.
    ///
    /// Each may add a log entry, a fragment or a cut through a trimmed run, and a mapping, for
    /// which a checkpoint needs room. The limit is one at least: the caller found room for a few.
    fn writers_max(&self, state: &State) -> u64 {
        let dirty = state.design().dirty_counts();
        let geometry = &self.geometry;
        // A limit binds only if the volume has more chunks than that.
        let left = |max: u64, count: u64| if max < geometry.chunk_count { max.saturating_sub(count) } else { u64::MAX };
        let fragments = left(geometry.fragments_max, dirty.fragments);
        let runs = left(geometry.zero_ranges_max, dirty.runs);
        (self.pending_entries_max() as u64).min(fragments).min(runs).max(1)
    }

    /// Reserves room for a writer's chunk, if the limit of writers allows it.
    ///
    /// Under the same lock, the caller found room for a few in log and cache.
    pub fn reserve(&self, state: &State) -> Option<Reserved<'_>> {
        let Reservations { held, full, .. } = &self.reservations;
        let others = u64::from(held.load(SeqCst));
        if others >= self.writers_max(state) || (others > 0 && !state.design().has_room(self.room_wanted() + others)) {
            full.store(true, SeqCst);
            // If all were given back since, no drop would wake the waiting writers.
            if held.load(SeqCst) > 0 {
                return None;
            }
            full.store(false, SeqCst);
        }
        if full.load(SeqCst) {
            return None;
        }
        held.fetch_add(1, SeqCst);
        Some(Reserved(self))
    }

    /// Returns whether enough clean mappings wait for their records to have these written.
    pub fn many_wait_for_records(&self, state: &State) -> bool {
        state.writer.awaiting() >= self.pending_entries_due()
    }

    /// Runs `decide` under the lock, with whether the log is crowded. `None` from it means to wait
    /// for room.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`]; the reason for failed checkpoints; [`EngineError::Closed`].
    pub async fn with_log_room<R>(
        &self,
        mut decide: impl FnMut(&mut State, bool) -> Option<R>,
    ) -> Result<R, EngineError> {
        let mut asked = None;
        loop {
            let checkpointed = self.signals.checkpointed.listen();
            let reserved = self.signals.reserved.listen();
            {
                let mut state = self.state.lock();
                state.flash.check()?;
                let is_crowded = self.log_is_crowded(&state);
                if let Some(decided) = decide(&mut state, is_crowded) {
                    return Ok(decided);
                }
                // A checkpoint that failed before this call is tried again first.
                let tries = *asked.get_or_insert(state.checkpoint_tries.begun());
                if let Some(error) = state.checkpoint_tries.error_after(tries) {
                    return Err(error.clone());
                }
            }
            self.check_open()?;
            self.signals.checkpoint_wanted.notify();
            either(checkpointed, reserved).await;
        }
    }

    /// Waits until the log has room, and reserves some for `count` entries of a destage or an
    /// eviction.
    ///
    /// A flash that failed has no log, and needs no room.
    ///
    /// # Errors
    /// As [`Shared::with_log_room`], except for such a flash.
    pub async fn reserve_batch(&self, count: usize) -> Result<ReservedBatch<'_>, EngineError> {
        let count = count as u32;
        let take = || {
            self.reservations.batches.fetch_add(count, SeqCst);
            ReservedBatch(self, count)
        };
        match self.with_log_room(|_, is_crowded| (!is_crowded).then(take)).await {
            Err(EngineError::FlashFailed(_)) => Ok(take()),
            reserved => reserved,
        }
    }
}
