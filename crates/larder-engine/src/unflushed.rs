//! Clean mappings that wait, outside the metadata log, for a flush of the origin.
//!
//! In write-through and write-around a clean mapping may copy bytes that the origin has not made
//! durable. If the mapping became durable first, a power loss could leave the copy and take the
//! original. Reads would then change when the copy is evicted. So such a mapping stays here,
//! outside the queue of the log, until the origin is flushed. A commit that forgets a mapping
//! therefore never has to flush the origin.
//!
//! Invariants:
//! - An entry goes to the log after a successful flush that began while the entry was here. It goes
//!   only if it is still its chunk's mapping. A failed flush forgets all entries here and all that
//!   still wait for their record: the bytes that they copy may be lost.
//! - A chunk has at most one entry, the newest, with a number of its own. A chunk that was
//!   forgotten, and mapped to the same record again, waits for another flush.
//! - No entry is here while the origin has nothing to flush.
//!
//! It does not decide when the origin is flushed. FLUSH, destaging and checkpoints do, and
//! [`Shared::drain`], for the commit timer and for a queue of insertions that fills up. Forgetting
//! a mapping never flushes.

pub(crate) mod flushes;
pub(crate) mod unlogged;
pub(crate) mod waiting;

use crate::{error::EngineError, places::from_format, shared::Shared, state::State};
use larder_core::{Fingerprint, Lba, Lookup};
use larder_device::{IoError, IoOp};
use larder_format::LogEntry;
use std::sync::{Arc, atomic::Ordering::*};
pub use waiting::{Asker, Audience};

impl State {
    /// Returns whether clean mappings wait for a flush of the origin before they become durable.
    ///
    /// In write-back they need none while no write goes past the flash: data that a destage wrote
    /// without a flush is dirty still.
    fn origin_matters(&self) -> bool {
        self.mode.leaves_writes_on_origin() && self.origin_flushes.are_due()
    }

    /// Logs a clean mapping whose record was written, if it is still its chunk's mapping.
    ///
    /// If the origin may lose the original, the entry waits for a flush.
    pub fn log_clean(&mut self, entry: LogEntry) {
        match self.still_mapped(&entry) {
            Some(lba) if self.origin_matters() && !self.log.is_dead() => self.unflushed.insert(lba, entry),
            still => self.log_settled(entry, still.is_some()),
        }
    }

    /// Logs a clean mapping whose original is durable on the origin, if `is_mapped`.
    fn log_settled(&mut self, entry: LogEntry, is_mapped: bool) {
        if let LogEntry::Map { lba, place, .. } = &entry {
            self.note_clean(Lba(*lba), &from_format(place), is_mapped);
        }
        if let LogEntry::Map { lba, .. } | LogEntry::MapZero { lba, .. } = entry
            && self.unlogged.has(Lba(lba))
            && (is_mapped || self.design().peek(Lba(lba)) == Lookup::Miss)
        {
            self.unlogged.remove(Lba(lba));
        }
        if is_mapped {
            match self.is_transient(&entry) {
                true => self.unlogged.leave_out(),
                false => _ = self.log.push(entry),
            }
        }
    }

    fn is_transient(&mut self, entry: &LogEntry) -> bool {
        let (LogEntry::Map { lba, .. } | LogEntry::MapZero { lba, .. }) = entry else { return false };
        self.decide().is_transient(Lba(*lba))
    }

    /// Returns the chunk of a clean mapping, if it still maps to the entry's place.
    fn still_mapped(&self, entry: &LogEntry) -> Option<Lba> {
        let (lba, current) = match entry {
            LogEntry::Map { lba, place, fingerprint, .. } => {
                let (lba, place) = (Lba(*lba), from_format(place));
                (lba, self.design().maps_to(lba, &place, &Fingerprint(*fingerprint)))
            }
            LogEntry::MapZero { lba, .. } => (Lba(*lba), self.design().peek(Lba(*lba)) == Lookup::Zero),
            _ => return None,
        };
        (current && self.design().dirty_seq(lba).is_none()).then_some(lba)
    }

    /// Notes a successful flush of the origin that began when `upto` was the next number.
    fn origin_was_flushed(&mut self, upto: u64, changes_upto: u64) {
        self.origin_changes.flushed(changes_upto);
        // Without a write since the last flush began, that flush also covers the later entries.
        let upto = if self.origin_flushes.are_due() { upto } else { u64::MAX };
        for entry in self.unflushed.take_below(upto) {
            let is_mapped = self.still_mapped(&entry).is_some();
            self.log_settled(entry, is_mapped);
        }
    }

    /// Notes a failed flush of the origin: earlier writes may be lost, even if a later flush
    /// succeeds.
    fn origin_flush_failed(&mut self, error: &IoError, is_repeated: bool) {
        let has_writes = self.mode.leaves_writes_on_origin();
        let loses_more = self.origin_flushes.fail(error, is_repeated);
        self.origin_changes.flush_failed();
        // In write-back, destages are tried again.
        if loses_more && (has_writes || self.flash.is_failed()) {
            self.origin_flushes.leave_untold();
        }
        let mut lost = self.unflushed.take_below(u64::MAX);
        if has_writes {
            // Their records' completions would insert them here as if no flush had failed.
            lost.extend(self.writer.take_awaiting());
        }
        for entry in lost {
            match self.still_mapped(&entry) {
                Some(lba) => drop(self.invalidate(lba)),
                None => self.log_settled(entry, false),
            }
        }
    }
}

impl Shared {
    /// Flushes the origin, unless no write came since a flush that is over.
    ///
    /// One flush runs at a time. Requests meanwhile share the next one.
    ///
    /// # Errors
    /// Errors of the origin, of this flush or of one that failed since the call.
    pub async fn flush_origin(self: &Arc<Self>) -> Result<(), IoError> {
        self.flush_origin_once(false).await
    }

    /// Flushes the origin after a flush that failed, for no requester.
    ///
    /// # Errors
    /// As [`Shared::flush_origin`].
    pub(crate) async fn flush_origin_again(self: &Arc<Self>) -> Result<(), IoError> {
        self.flush_origin_once(true).await
    }

    async fn flush_origin_once(self: &Arc<Self>, is_repeated: bool) -> Result<(), IoError> {
        let (failures, wanted) = {
            let flushes = &self.state.lock().origin_flushes;
            if !flushes.are_due() {
                return Ok(());
            }
            (flushes.failures(), flushes.begun() + 1)
        };
        // It runs to its end even if the requester gives up: other tasks need its outcome.
        let this = self.clone();
        let flushed =
            self.to_its_end(async move { Ok(this.flush_origin_in_turn(failures, wanted, is_repeated).await) });
        flushed.await.unwrap_or_else(|error| Err(error.into_io(IoOp::Flush, 0, 0)))
    }

    async fn flush_origin_in_turn(
        self: &Arc<Self>,
        failures: u64,
        wanted: u64,
        is_repeated: bool,
    ) -> Result<(), IoError> {
        let _turn = self.orders.flush_origin().granted().await;
        let (upto, changes_upto) = {
            let mut state = self.state.lock();
            let flushes = &mut state.origin_flushes;
            if let Some(error) = flushes.last_error().filter(|_| flushes.failures() != failures) {
                return Err(error.clone());
            }
            // Without a failure since, the flushes that began since are over and succeeded.
            if flushes.begun() >= wanted || !flushes.are_due() {
                return Ok(());
            }
            flushes.begin();
            (state.unflushed.next_number(), state.origin_changes.next_number())
        };
        self.counters.origin_flushes.fetch_add(1, Relaxed);
        let result = self.origin.flush().await;
        self.note_origin(&result);
        let mut state = self.state.lock();
        state.origin_flushes.end();
        match &result {
            Ok(()) => state.origin_was_flushed(upto, changes_upto),
            Err(error) => {
                self.counters.origin_flush_failures.fetch_add(1, Relaxed);
                state.origin_flush_failed(error, is_repeated);
            }
        }
        // Metadata slots that waited for the flush.
        let outgoing = self.take_outbox(&mut state);
        drop(state);
        self.send(outgoing);
        result
    }

    /// Flushes the origin as [`Shared::flush_origin`], for a requester that relies on it.
    ///
    /// An earlier failed flush may have lost a client's write. A device reports that once, and the
    /// next flush succeeds.
    ///
    /// # Errors
    /// Errors of the origin, of this flush or of an earlier one that this audience was not told of.
    pub async fn flush_origin_for(self: &Arc<Self>, asker: &Asker) -> Result<(), EngineError> {
        let result = self.flush_origin().await;
        let untold = self.tell(asker);
        result.map_err(|error| self.origin_failed(error, false))?;
        untold
    }

    /// Returns the failure of a flush of the origin, with its name.
    pub(crate) fn origin_failed(&self, error: IoError, is_earlier: bool) -> EngineError {
        EngineError::Origin { name: self.origin.info().name.clone(), error, is_earlier }
    }

    /// Tells of a failed flush of the origin, if this audience has not been told of it.
    ///
    /// # Errors
    /// The error of the flush.
    pub fn tell(&self, asker: &Asker) -> Result<(), EngineError> {
        let state = self.state.lock();
        let Some((number, error)) = state.origin_flushes.untold(asker.whom) else { return Ok(()) };
        asker.heard.store(*number, Relaxed);
        Err(self.origin_failed(error.clone(), true))
    }

    /// Returns the requester's answer, and counts its failure as told. The caller hands it on at
    /// once.
    pub fn answer<T, E>(&self, asker: &Asker, answer: Result<T, E>) -> Result<T, E> {
        let heard = asker.heard.load(Relaxed);
        if answer.is_err() && heard > 0 {
            self.state.lock().origin_flushes.note_told(asker.whom, heard);
        }
        answer
    }

    /// Flushes the origin in the background, and then logs the entries that wait for it. No task
    /// waits.
    pub fn drain(self: &Arc<Self>) {
        if !self.state.lock().unflushed.begin_drain() {
            return;
        }
        let this = self.clone();
        self.spawn_counted(async move {
            // The next FLUSH is told of a failure.
            let _ = this.flush_origin().await;
            let upto = {
                let mut state = this.state.lock();
                state.unflushed.end_drain();
                state.log.next_seq()
            };
            this.request_commit(upto, false);
        });
    }
}

#[cfg(test)]
mod tests;
