//! The checkpoint: all mappings at once, to reuse the log before it and to shorten a restart.
//!
//! In order: (1) The position of the log is noted, and the export begins, while no entry is
//! between decision and queue.
//! (2) Slots, mappings, fragments, trimmed runs, fingerprints and the design's other data are
//! exported piece by piece. Operations go on meanwhile. The pieces go to the area that the last
//! checkpoint does not use. (3) In write-through and write-around the origin is flushed: pieces
//! name clean mappings that no log has yet. Then all decisions so far are committed. So each
//! mapping in a piece is durable, or durably forgotten. (4) The header is written, with a flush
//! before and after. (5) The superblock twins point to it, and name the newest frame. (6) The log
//! before the noted position is free. (7) If no frame lies behind that position, one without
//! entries is written and named. A crash before (5) leaves the last checkpoint and its log.
//!
//! The pieces are of different moments. Replaying the log from the noted position over them ends in
//! the right state. For each address the last entry after the position wins; without such an entry,
//! the piece is right.
//!
//! Invariants: one checkpoint at a time.
//!
//! It leaves the form of the blocks to [`blocks`].

mod blocks;
mod origin_mark;
pub(crate) mod tries;

use crate::{
    error::EngineError,
    log_area::LogPosition,
    refused::{Patience, Refused},
    shared::Shared,
    state::State,
    state_lock::StateGuard,
    sync::yield_now,
};
pub use blocks::{CheckpointTarget, write_blocks, write_header};
use larder_core::{Decider, history::Draft};
use larder_format::{CheckpointHeader, LogStart};
use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// Pause after a checkpoint failed.
const RETRY: Duration = Duration::from_millis(200);
/// Checkpoints that fail in a row because of the flash, after which the flash counts as failed.
const TRIES_MAX: u32 = 3;

/// The design, locked with all of the state.
struct LockedDesign<'a>(StateGuard<'a, State>);

impl Deref for LockedDesign<'_> {
    type Target = Decider;
    fn deref(&self) -> &Decider {
        self.0.design()
    }
}

impl DerefMut for LockedDesign<'_> {
    fn deref_mut(&mut self) -> &mut Decider {
        self.0.decide()
    }
}

impl Shared {
    /// Runs the checkpointer's task until the cache closes.
    pub(crate) async fn checkpointer(self: Arc<Self>) {
        let mut tries = 0;
        let mut refused: Option<(Patience, Refused<'_>)> = None;
        loop {
            let wanted = self.signals.checkpoint_wanted.listen();
            if self.is_closing() {
                return;
            }
            let (idle, crowded) = {
                let state = self.state.lock();
                let (is_used, crowded) = (self.log_is_used(&state), self.log_is_crowded(&state));
                let due = is_used || crowded && self.checkpoint_helps(&state);
                (!due || state.flash.is_failed(), crowded && !state.flash.is_failed())
            };
            if idle {
                // If other tasks' reservations crowd the log, a checkpoint frees nothing; their end
                // wakes the waiting tasks. The committer may have asked for a checkpoint before
                // some of them ended.
                if !crowded {
                    self.signals.checkpointed.notify();
                } else {
                    self.signals.commit_wanted.notify();
                }
                wanted.await;
                continue;
            }
            self.state.lock().checkpoint_tries.begin();
            match self.checkpoint(false).await {
                Ok(()) => (tries, refused) = (0, None),
                Err(error) => {
                    self.counters.checkpoint_errors.fetch_add(1, Relaxed);
                    tries += 1;
                    refused = self.wait_for_room(&error, refused);
                    self.note_failed_checkpoint(error, tries >= TRIES_MAX && refused.is_none());
                    let _ = self.runtime.delay(RETRY).await;
                }
            }
            self.signals.checkpointed.notify();
        }
    }

    /// Makes a checkpoint wait, as any write does, while the flash has no room for it.
    fn wait_for_room<'a>(
        &'a self,
        error: &EngineError,
        refused: Option<(Patience, Refused<'a>)>,
    ) -> Option<(Patience, Refused<'a>)> {
        let EngineError::Flash(error) = error else { return None };
        let (mut patience, refused) = match refused {
            Some((patience, refused)) => (patience, Some(refused)),
            None => (Patience::begin(self), None),
        };
        let waits = error.kind.is_shortage() && patience.is_left(self, error);
        waits.then(|| (patience, refused.unwrap_or_else(|| Refused::note(self, error))))
    }

    /// Notes a failed checkpoint, and fails the flash after the last try.
    ///
    /// Without checkpoints the log fills up, and no entry becomes durable. Tasks that wait for a
    /// checkpoint wait until the last try. The next one may succeed, and without the flash writes
    /// go past it.
    fn note_failed_checkpoint(&self, error: EngineError, last_try: bool) {
        match error {
            EngineError::Flash(error) if last_try => {
                self.fail_flash(error);
            }
            EngineError::Flash(_) => {}
            // A failed flush of the origin, a checkpoint that is too large, or the cache's end: not
            // the flash's fault.
            error => self.state.lock().checkpoint_tries.fail(error),
        }
    }

    /// Gathers the design's other data piece by piece, while operations go on: so many pages at
    /// most.
    async fn history(&self, pages: u64) -> Vec<u8> {
        let draft = self.state.lock().design().begin_history();
        let Some(mut draft) = draft else { return Vec::new() };
        draft.limit(pages);
        while self.add_to_history(&mut draft) {
            yield_now().await;
        }
        draft.finish()
    }

    fn add_to_history(&self, draft: &mut Draft) -> bool {
        self.state.lock().export_history(draft)
    }

    /// Begins the export. Returns the position of the log from which a replay over it starts, and
    /// the sequence number of the first entry there.
    fn begin_export(&self, clean_shutdown: bool) -> (LogPosition, u64) {
        let mut state = self.state.lock();
        if clean_shutdown {
            state.decide().persist_all();
        }
        state.decide().begin_export();
        state.unlogged.export_begins();
        (state.log.area().position(), state.log.first_seq())
    }

    /// Writes the export that began to the blocks of `target`. Returns their header.
    async fn export(&self, target: &CheckpointTarget) -> Result<CheckpointHeader, EngineError> {
        let design = || LockedDesign(self.state.lock());
        let damaged = self.state.lock().damaged_records();
        let header = write_blocks(&*self.flash, &self.geometry, target, &damaged, design, async |pages| {
            self.history(pages).await
        })
        .await;
        self.state.lock().unlogged.export_ends();
        let header = header?;
        self.counters.flash_metadata_bytes_written.fetch_add(header.total_bytes, Relaxed);
        Ok(header)
    }

    /// Writes a checkpoint; with `clean_shutdown`, one that marks a clean end.
    ///
    /// # Errors
    /// Errors of the devices; the last checkpoint is in force then.
    pub async fn checkpoint(self: &Arc<Self>, clean_shutdown: bool) -> Result<(), EngineError> {
        let _turn = self.orders.checkpoint().granted().await;
        if self.superblock.is_uncertain() {
            // A twin may name the checkpoint that failed last, in the area that this one is about
            // to overwrite.
            self.update_superblock(|_| {}).await?;
        }
        // (1)
        let (position, entry_seq) = self.begin_export(clean_shutdown);
        let log_start = LogStart { offset_in_log: position.offset, frame_seq: position.frame_seq };
        let target = CheckpointTarget::after(&self.superblock.get(), log_start, entry_seq);
        // (2)
        let header = self.export(&target).await?;
        // (3)
        if self.mode.leaves_writes_on_origin() {
            self.flush_origin().await.map_err(|error| self.origin_failed(error, false))?;
        }
        if clean_shutdown {
            // An end is tried once. So the next opening need not make the frame.
            let mut state = self.state.lock();
            if !self.log_is_crowded(&state) {
                state.commits.want_frame(position.frame_seq);
            }
        }
        self.commit_everything(true).await?;
        let durable_frame = self.durable_frame();
        // (4)
        self.flush_flash().await.map_err(EngineError::Flash)?;
        let pointer = write_header(&*self.flash, &self.geometry, &target, &header).await?;
        // No more write goes to the origin.
        let mark = if clean_shutdown { self.mark_of_origin().await } else { None };
        // (5)
        self.update_superblock(|superblock| {
            superblock.checkpoint = Some(pointer);
            superblock.log_start = log_start;
            superblock.entry_seq_next = entry_seq;
            superblock.note_durable_frame(durable_frame);
            superblock.clean_shutdown = clean_shutdown;
            // The log starts at a boundary of these sectors now.
            superblock.layout.sector_bytes = self.geometry.layout.sector_bytes;
            superblock.origin_state = mark.map(|mark| origin_mark::noted(mark, superblock.sequence));
        })
        .await?;
        // (6)
        {
            let mut state = self.state.lock();
            state.log.free_before(&position);
            state.checkpoint_tries.succeed();
            state.decide().export_is_durable();
        }
        self.counters.checkpoints.fetch_add(1, Relaxed);
        self.signals.checkpointed.notify();
        // (7) Not before (6): tries of a checkpoint that fails take no room in the log. If it
        // fails, the next checkpoint or opening makes the frame.
        if !clean_shutdown {
            let _ = self.name_a_frame().await;
        }
        Ok(())
    }
}
