//! FLUSH, and the committer behind it: makes decisions durable, in their order.
//!
//! A commit, in order: (1) Under the lock, the waiting entries are counted, and the segments that
//! they depend on are closed. (2) Those segments are written. (3) The flash is flushed if entries
//! name records. (4) The entries are written as frames of the metadata log, each frame with FUA,
//! one after the other. A crash before (4) leaves the state of the commit before. A crash within
//! (4) leaves a prefix of the entries, because recovery stops at the first frame that is not whole.
//! Data is durable before any entry that names it. After each frame the committer looks at the
//! file's [`standing`](crate::standing), for the requests that wait.
//!
//! A commit waits for the flash alone. Entries that wait for a flush of the origin are not in the
//! queue yet: see [`unflushed`](crate::unflushed).
//!
//! A checkpoint and an opening may want a frame where no entry waits. Such a frame has no entry,
//! and names a place up to which the log was durable ([`durable_frame`](crate::durable_frame)).
//!
//! One commit runs at a time, in a task of its own. Requests during a commit share the next one.
//!
//! Invariants: entries leave the queue only when they are durable. After a failure no write is
//! acknowledged as durable until a later commit of the same entries succeeds.

pub(crate) mod commits;

use crate::{error::EngineError, shared::Shared, state::State, sync::either, unflushed::waiting::Asker};
use larder_device::{IoBuf, IoError, IoErrorKind, IoOp, Runtime, SharedBuf, WriteFlags};
use larder_format::{
    FrameStart, LogEntry, WriteMode,
    log::{encode_frame_into, entries_that_fit, frame_bytes_for, frame_crc},
};
use std::{
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// The time of a request for a commit, in counts.
#[derive(Clone, Copy)]
pub(crate) struct CommitAsked {
    /// Commits that were over.
    commits: u64,
    /// Tries to write a checkpoint that had begun.
    checkpoint_tries: u64,
}

impl State {
    /// Returns the present counts.
    pub(crate) fn asked_now(&self) -> CommitAsked {
        CommitAsked { commits: self.commits.over(), checkpoint_tries: self.checkpoint_tries.begun() }
    }
}

impl Shared {
    /// Carries out a FLUSH: makes every write durable that completed before this call.
    ///
    /// In write-back the flash holds it; in the other modes the origin does. `asker` gets the
    /// failures that no client has seen.
    ///
    /// # Errors
    /// Errors of the devices: then no write is promised.
    pub async fn flush(self: &Arc<Self>, asker: &Asker) -> Result<(), EngineError> {
        self.counters.flushes.fetch_add(1, Relaxed);
        let (mode, upto) = {
            let state = self.state.lock();
            (state.mode.get(), state.log.next_seq())
        };
        if mode != WriteMode::Back {
            return self.flush_origin_for(asker).await;
        }
        self.flush_below(upto, asker).await
    }

    /// Makes durable the entries below `upto`, and all writes past the flash, in write-back.
    ///
    /// # Errors
    /// As [`Shared::flush`].
    pub(crate) async fn flush_below(self: &Arc<Self>, upto: u64, asker: &Asker) -> Result<(), EngineError> {
        match self.commit(upto).await {
            Ok(_) | Err(EngineError::FlashFailed(_)) => self.flush_what_flash_loses().await?,
            Err(error) => return Err(error),
        }
        // The failure also matters if no entry waited for the log, because writes then went to the
        // origin. A flash that was cut short has failed by now.
        let failed = self.state.lock().flash.is_failed();
        if failed {
            self.flush_past_flash(asker).await
        } else if self.mode.leaves_writes_on_origin() {
            self.flush_origin_for(asker).await
        } else {
            // Before the switch of the mode, the clients had to flush the origin.
            self.tell(asker)
        }
    }

    /// Makes the log entries below `upto` durable, and the records that they name.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`].
    pub async fn commit(self: &Arc<Self>, upto: u64) -> Result<(), EngineError> {
        self.commit_below(upto, false).await
    }

    async fn commit_below(self: &Arc<Self>, upto: u64, use_reserve: bool) -> Result<(), EngineError> {
        let mut asked_at = None;
        loop {
            let committed = self.signals.committed.listen();
            let checkpointed = self.signals.checkpointed.listen();
            {
                let state = self.state.lock();
                if state.log.durable_below() >= upto {
                    return Ok(());
                }
                state.flash.check()?;
                // A failure counts for the tasks that asked before it.
                let asked = *asked_at.get_or_insert(state.asked_now());
                self.check_commits(&state, asked, use_reserve)?;
            }
            self.request(upto, false, use_reserve);
            either(committed, checkpointed).await;
        }
    }

    /// Makes all decisions durable, and closes open segments of clean data, too.
    ///
    /// Clean mappings that wait for a flush of the origin go on waiting. With `use_reserve` it
    /// serves the checkpoint that frees the log, even if the log is nearly full.
    ///
    /// # Errors
    /// As [`Shared::commit`].
    pub async fn commit_everything(self: &Arc<Self>, use_reserve: bool) -> Result<(), EngineError> {
        let (goal, asked) = {
            let state = self.state.lock();
            (state.commits.clean_closed() + 1, state.asked_now())
        };
        // The segments' clean mappings are logged once they are written. That is after the start of
        // the commit that closed them, so one more commit makes those entries durable.
        loop {
            let committed = self.signals.committed.listen();
            let checkpointed = self.signals.checkpointed.listen();
            {
                let state = self.state.lock();
                if state.commits.clean_closed() > goal {
                    break;
                }
                state.flash.check()?;
                self.check_commits(&state, asked, use_reserve)?;
            }
            self.request(0, true, use_reserve);
            either(committed, checkpointed).await;
        }
        let upto = self.state.lock().log.next_seq();
        self.commit_below(upto, use_reserve).await
    }

    /// Returns the reason why no commit comes for a task that asked at `asked`.
    pub(crate) fn check_commits(
        &self,
        state: &State,
        asked: CommitAsked,
        use_reserve: bool,
    ) -> Result<(), EngineError> {
        if let Some(error) = state.commits.error_after(asked.commits) {
            return Err(EngineError::Io(error.clone()));
        }
        if !use_reserve
            && self.commit_is_crowded(state)
            && let Some(error) = state.checkpoint_tries.error_after(asked.checkpoint_tries)
        {
            return Err(error.clone());
        }
        if state.commits.have_ended() { Err(EngineError::Closed) } else { Ok(()) }
    }

    /// Asks the committer for a commit of the entries below `upto`.
    pub fn request_commit(&self, upto: u64, close_clean: bool) {
        self.request(upto, close_clean, false);
    }

    fn request(&self, upto: u64, close_clean: bool, use_reserve: bool) {
        {
            let mut state = self.state.lock();
            let upto = upto.min(state.log.next_seq());
            state.commits.request(upto, close_clean, use_reserve);
        }
        self.signals.commit_wanted.notify();
    }

    /// Runs the committer's task until the cache closes.
    pub(crate) async fn committer(self: Arc<Self>) {
        // The last commit failed, and no task has asked for another yet.
        let mut failed = false;
        loop {
            let wanted = self.signals.commit_wanted.listen();
            let checkpointed = self.signals.checkpointed.listen();
            let (work, crowded) = {
                let state = self.state.lock();
                // The checkpoint that frees the log has the rest of it, and commits the entries
                // that wait by then.
                let crowded = self.commit_is_crowded(&state) && !state.commits.may_use_reserve();
                // Entries without a waiting task are not tried again and again, and do not keep a
                // cache from ending.
                let many = self.commit_is_due(&state) && !failed && !self.life.is_committer_alone();
                ((state.commits.are_requested(&state.log) || many) && !state.log.is_dead(), crowded)
            };
            if work && crowded && !self.is_closing() {
                self.signals.checkpoint_wanted.notify();
                either(wanted, checkpointed).await;
            } else if work {
                let result = self.run_commit().await;
                failed = result.is_err();
                {
                    let mut state = self.state.lock();
                    state.commits.end(result);
                    if self.log_is_used(&state) {
                        self.signals.checkpoint_wanted.notify();
                    }
                }
                self.counters.commits.fetch_add(1, Relaxed);
                self.signals.committed.notify();
            } else if self.life.is_committer_alone() {
                // The last task to end: the others may still need commits.
                self.state.lock().commits.end_for_good();
                self.signals.committed.notify();
                return;
            } else {
                wanted.await;
                failed = false;
            }
        }
    }

    async fn run_commit(self: &Arc<Self>) -> Result<(), IoError> {
        // (1)
        let (count, first_seq, segments_below, closed_clean, names_records) = {
            let mut state = self.state.lock();
            let all = state.commits.begin();
            state.close_for_commit(self.geometry.flash_tag, all);
            (state.log.len(), state.log.first_seq(), state.writer.next_seq(), all, state.log.has_any(names_record))
        };
        // (2)
        self.send_segments();
        if !self.segments_written_below(segments_below).await {
            self.state.lock().flash.check_device()?;
            return Err(IoError::new(IoErrorKind::Io, IoOp::Write, 0, 0));
        }
        // (3) Entries that only forget depend on their frame alone.
        if names_records || closed_clean {
            self.flush_flash().await?;
        }
        // (4)
        let mut done = 0;
        while done < count {
            done += self.put_frame(first_seq + done as u64, count - done).await?;
        }
        let lacks_frame = {
            let state = self.state.lock();
            state.commits.lack_frame(&state.log)
        };
        if lacks_frame {
            self.put_frame(first_seq + done as u64, 0).await?;
        }
        // Metadata slots that waited for the commit.
        self.send_segments();
        if closed_clean {
            self.state.lock().commits.close_clean();
        }
        Ok(())
    }

    /// Writes the next frame, with at most `count` entries. Returns their number.
    ///
    /// # Errors
    /// Errors of the device.
    async fn put_frame(&self, first_entry_seq: u64, count: usize) -> Result<usize, IoError> {
        let (offset, buf, entries) = self.build_frame(first_entry_seq, count)?;
        let (bytes, crc) = (buf.len() as u64, frame_crc(&buf));
        self.write_frame(offset, buf.freeze()).await?;
        self.counters.flash_log_bytes_written.fetch_add(bytes, Relaxed);
        let mut state = self.state.lock();
        state.flash.check_device()?;
        state.log.frame_is_durable(bytes, entries, crc);
        state.note_committed();
        Ok(entries)
    }

    /// Flushes the flash. An error fails the flash: the fate of earlier writes is unknown.
    ///
    /// A later flush that succeeds says nothing about those writes. So one flush runs at a time: a
    /// second one beside it might succeed for those writes, and be believed.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) async fn flush_flash(&self) -> Result<(), IoError> {
        let _turn = self.orders.flush_flash().granted().await;
        self.state.lock().flash.check_device()?;
        self.flash.flush().await.map_err(|error| self.fail_flash(error))?;
        self.counters.flash_flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Builds the next frame of at most `count` entries. Returns its offset, its bytes and its
    /// entry count.
    ///
    /// # Errors
    /// The error of a failed flash; [`IoErrorKind::NoSpace`] if the log is full.
    fn build_frame(&self, first_entry_seq: u64, count: usize) -> Result<(u64, IoBuf, usize), IoError> {
        let layout = &self.geometry.layout;
        let state = self.state.lock();
        // The look is under this lock: a failing flash drops the entries.
        state.flash.check_device()?;
        let sector = layout.sector_bytes;
        let mut entries_max = layout.frame_entries_max().min(count).min(state.log.len());
        // The frame fills the end of the region: bytes that it skips are lost until a checkpoint
        // frees them.
        let before_end = entries_that_fit(state.log.area().before_end() / u64::from(sector) * u64::from(sector));
        if (1..entries_max).contains(&before_end) {
            entries_max = before_end;
        }
        let bytes = frame_bytes_for(entries_max, sector);
        let position = state.log.area().position();
        // A checkpoint makes room. It needs commits itself, and writers keep a quarter of the log
        // free for them. Only a checkpoint that fails again and again leads to a full log.
        let full = || {
            IoError::new(IoErrorKind::NoSpace, IoOp::Write, 0, 0)
                .with_detail("the metadata log is full, and no checkpoint could be written")
        };
        let offset = state.log.area().place(bytes as u64).ok_or_else(full)?;
        let start = FrameStart {
            flash_tag: self.geometry.flash_tag,
            frame_seq: position.frame_seq,
            first_entry_seq,
            durable_frame_seq: position.frame_seq.saturating_sub(1),
            previous_crc: state.log.previous_crc(),
        };
        debug_assert_eq!(state.log.first_seq(), first_entry_seq);
        let entries = state.log.first(entries_max);
        drop(state);
        let mut buf = IoBuf::new(bytes);
        encode_frame_into(&start, &entries, sector, &mut buf).expect("a frame of at most the largest size encodes");
        Ok((layout.log_offset + offset, buf, entries_max))
    }

    /// Writes a frame. A retry writes the same bytes to the same place, because the first try may
    /// be there.
    async fn write_frame(&self, offset: u64, frame: SharedBuf) -> Result<(), IoError> {
        let result = self.until_taken(|| self.write_frame_once(offset, &frame)).await;
        result.map_err(|error| self.fail_flash(error))
    }

    /// Writes a frame and reads it back. A device may acknowledge the last frame of the log and
    /// misplace or lose it. No later opening could find that out.
    async fn write_frame_once(&self, offset: u64, frame: &SharedBuf) -> Result<(), IoError> {
        self.flash.write(offset, frame.clone(), WriteFlags { fua: true }).await?;
        let found = match self.flash.read(offset, IoBuf::new(frame.len())).await {
            // The first read may have been wrong.
            Ok(found) if found[..] != frame[..] => self.flash.read(offset, found).await,
            found => found,
        };
        match found {
            Ok(found) if found[..] == frame[..] => Ok(()),
            Ok(_) => Err(IoError::new(IoErrorKind::Io, IoOp::Write, offset, frame.len() as u64)
                .with_detail("the flash acknowledged a frame of the metadata log that is not where it was written")),
            // A failed read says nothing about the write.
            Err(error) if error.kind != IoErrorKind::Cancelled => {
                self.count_flash_read_error();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for a commit at an interval, and for a flush of the origin. Looks at the standing of
    /// both devices.
    ///
    /// So clean mappings survive a crash even if no client flushes. It holds the cache only for a
    /// moment at a time, so a closed cache is freed, and its devices with it.
    pub(crate) async fn commit_timer(this: std::sync::Weak<Shared>, runtime: Arc<dyn Runtime>, interval: Duration) {
        loop {
            let _ = runtime.delay(interval).await;
            let Some(shared) = this.upgrade() else { return };
            if shared.is_closing() {
                return;
            }
            shared.look_at_devices();
            shared.wear.wake();
            let (due, clean_waits, upto) = {
                let state = shared.state.lock();
                let clean_waits = state.writer.has_awaiting_in_open();
                let any = clean_waits || !state.log.is_empty();
                (any && !state.flash.is_failed(), clean_waits, state.log.next_seq())
            };
            if due {
                shared.request_commit(upto, clean_waits);
            }
            shared.drain();
        }
    }
}

/// Returns whether the entry depends on a record, which must be durable first.
fn names_record(entry: &LogEntry) -> bool {
    matches!(entry, LogEntry::Map { .. } | LogEntry::Fragment { .. })
}
