//! Room in the metadata log: who may add entries to it, and who waits for a checkpoint that frees some.
//!
//! A checkpoint needs the log itself: what was decided while it was made has to be in it, and whatever waits has to be before
//! that. So a quarter of the log is its reserve, and whoever adds entries stops before the log and all that waits for it
//! come into that: writers, trims and changes of the origin wait, destages and evictions too; insertions are dropped, and what is
//! read from a damaged clean record comes from the origin, and the record is forgotten by a later read.
//!
//! Invariants: all entries that may come without another question are counted: those in the queue, clean mappings that
//! wait for a flush of the origin or for their record (a flush that fails makes an entry of each), and one for each chunk that a
//! writer has asked for ([`Reserved`]), of whom there are as many as entries may wait, and those of each destage and eviction
//! that is under way ([`ReservedBatch`]).
//!
//! What it does not do: write the log; [`flush`](crate::flush) does.

use crate::{
    error::EngineError,
    region::HELD_ENTRIES_MAX,
    shared::Shared,
    state::{PENDING_ENTRIES_MAX, State},
    sync::either,
};
use larder_format::log::{LOG_ENTRY_BYTES, frame_bytes_for};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// Share of the log that may be filled; the rest is for the commits of a checkpoint. In percent.
pub const LOG_USED_PERCENT_MAX: u64 = 75;
/// Share that commits may fill beside a checkpoint, with what is to come after them; the rest is for padding of the checkpoint's
/// own frames. In percent.
const LOG_TAKEN_PERCENT_MAX: u64 = 90;
/// Share of the log from which on a checkpoint is worth it where the log is crowded. In percent.
const WORTH_PERCENT: u64 = 10;
/// Those who wait for room that others have reserved are woken when so many have given it back.
const WAKE_EVERY: u32 = 16;
/// Share of the log that entries which wait for it may take: one part of so many.
const PENDING_SHARE: u64 = 8;

/// Room for entries that writers have asked for.
#[derive(Default)]
pub struct Reservations {
    held: AtomicU32,
    /// As many are held as may be: nobody gets one until some were given back, so that who waits is woken by then.
    full: AtomicBool,
    /// Entries of destages and evictions that are under way.
    batches: AtomicU32,
}

/// Room for one entry of the log, until this is dropped. Whoever has it adds no more than that.
pub struct Reserved<'a>(&'a Shared);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let reservations = &self.0.reservations;
        let left = reservations.held.fetch_sub(1, SeqCst) - 1;
        // Not each of thousands that wait is woken for each that ends.
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
    /// Clean mappings that become entries of the log once their record is written.
    fn awaiting(&self) -> usize {
        let open = self.open.iter().flatten().map(|open| open.awaiting.len());
        open.sum::<usize>() + self.in_flight.awaiting()
    }

    /// Entries that come into the log without another question, those in its queue among them.
    fn waiting(&self) -> usize {
        self.log.entries.len() + self.unflushed.len() + self.awaiting()
    }
}

impl Shared {
    /// Log entries that may wait: bounded by the room that the log keeps in reserve for them.
    pub fn pending_entries_max(&self) -> usize {
        PENDING_ENTRIES_MAX.min((self.geometry.layout.log_bytes / LOG_ENTRY_BYTES as u64 / PENDING_SHARE) as usize)
    }

    /// Whether the log, with all that waits for it, has come to its reserve: then nothing is added that can wait for a
    /// checkpoint.
    pub fn log_is_crowded(&self, state: &State) -> bool {
        self.is_crowded_with(state, state.waiting())
    }

    fn is_crowded_with(&self, state: &State, waiting: usize) -> bool {
        let bytes = frame_bytes_for(waiting + self.reserved(), self.geometry.layout.sector_bytes) as u64;
        // Nothing comes into the log of a flash that failed, and nobody waits for it.
        !state.log.dead && state.log.area.position().used_bytes + bytes > self.log_share(LOG_USED_PERCENT_MAX)
    }

    /// Entries for which room is reserved.
    fn reserved(&self) -> usize {
        let Reservations { held, batches, .. } = &self.reservations;
        held.load(SeqCst) as usize + batches.load(SeqCst) as usize
    }

    /// Whether a commit would take the log's reserve. In a frame of its own a few entries take more than they did among others: it
    /// leaves room for those that are to come, too.
    pub fn commit_is_crowded(&self, state: &State) -> bool {
        let used = self.used_once_committed(state);
        let later = (state.waiting() - state.log.entries.len() + self.reserved()) * LOG_ENTRY_BYTES;
        used > self.log_share(LOG_USED_PERCENT_MAX) || used + later as u64 > self.log_share(LOG_TAKEN_PERCENT_MAX)
    }

    /// Whether a checkpoint would do something for a log that is crowded: free what is committed, or commit what waits, for the
    /// next one to free.
    pub fn checkpoint_helps(&self, state: &State) -> bool {
        self.used_once_committed(state) >= self.log_share(WORTH_PERCENT) || self.commit_is_crowded(state)
    }

    /// Bytes of the log in use once its queue is committed.
    fn used_once_committed(&self, state: &State) -> u64 {
        let bytes = frame_bytes_for(state.log.entries.len(), self.geometry.layout.sector_bytes) as u64;
        state.log.area.position().used_bytes + bytes
    }

    fn log_share(&self, percent: u64) -> u64 {
        self.geometry.layout.log_bytes / 100 * percent
    }

    /// Whether a clean mapping more may be made, as far as the log goes.
    pub fn may_insert(&self, state: &State) -> bool {
        let waiting = state.waiting();
        waiting < self.pending_entries_max()
            && state.design.held_entries() < HELD_ENTRIES_MAX
            && !self.is_crowded_with(state, waiting)
            && state.flash_failed.is_none()
            && !self.is_closing()
    }

    /// How many writers may be under way: each may add an entry to the log, a fragment or a cut through a trimmed run, and a mapping,
    /// and a checkpoint has room for so many. One at least, for the caller asked whether there is room for a few.
    fn writers_max(&self, state: &State) -> u64 {
        let dirty = state.design.dirty_counts();
        let geometry = &self.geometry;
        // A limit binds only where the volume has more chunks than that.
        let left = |max: u64, count: u64| if max < geometry.chunk_count { max.saturating_sub(count) } else { u64::MAX };
        let fragments = left(geometry.fragments_max, dirty.fragments);
        let runs = left(geometry.zero_ranges_max, dirty.runs);
        (self.pending_entries_max() as u64).min(fragments).min(runs).max(1)
    }

    /// Reserves room for a writer's chunk, where fewer have it than may. The caller asked under the same lock whether log and cache
    /// have room for a few.
    pub fn reserve(&self, state: &State) -> Option<Reserved<'_>> {
        let Reservations { held, full, .. } = &self.reservations;
        let others = u64::from(held.load(SeqCst));
        if others >= self.writers_max(state) || (others > 0 && !state.design.has_room(self.room_wanted() + others)) {
            full.store(true, SeqCst);
            // Where they have all been given back since, nobody would say so.
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

    /// Whether enough clean mappings wait for their record that it should be written.
    pub fn many_wait_for_records(&self, state: &State) -> bool {
        state.awaiting() >= self.pending_entries_max() / 2
    }

    /// Does `decide` under the lock, which is told whether the log is crowded, and says `None` to wait until it is not.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`]; why no checkpoint can be made; [`EngineError::Closed`].
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
                state.check_flash()?;
                let is_crowded = self.log_is_crowded(&state);
                if let Some(decided) = decide(&mut state, is_crowded) {
                    return Ok(decided);
                }
                // One that failed before this is tried again first.
                if let Some(error) = state.log.checkpoint_error(*asked.get_or_insert(state.log.checkpoint_tries)) {
                    return Err(error);
                }
            }
            self.check_open()?;
            self.signals.checkpoint_wanted.notify();
            either(checkpointed, reserved).await;
        }
    }

    /// Waits until the log has room, and reserves some for `count` entries of a destage or an eviction. A flash that failed has no
    /// log, and needs none.
    ///
    /// # Errors
    /// As [`Shared::with_log_room`], but for such a flash.
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
