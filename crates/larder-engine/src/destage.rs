//! Destaging: dirty data goes to the origin, in the order of its addresses, at a limited rate.
//!
//! In order, for a batch: (1) The batch is durable on flash. (2) The origin gets zeroes for trimmed
//! runs. Records are read and written there, neighbours as one write, fragments sector run by
//! sector run. (3) One flush of the origin covers the batch. (4) Each mapping whose sequence number
//! is still the newest is marked clean, and the mark is logged. A crash before the mark is durable
//! leaves the data dirty, and it is destaged again, to the same effect. The mark is durable before
//! a slot is reused, because freeing a slot commits.
//!
//! Invariants: at most one destage of a chunk is in flight (tickets of their own order them). Dirty
//! data that cannot be read stays dirty and is passed over.
//!
//! This file chooses the time and the batch; `destage/chunks.rs` and `destage/runs.rs` do the work.
//!
//! It does not decide when a slot goes; [`evict`](crate::evict) does, and destages through here.

mod chunks;
mod limits;
pub(crate) mod pace;
mod runs;

pub(crate) use limits::Limit;

pub(crate) mod reach;

use crate::{
    destage::reach::{Reach, Wanted},
    error::EngineError,
    shared::Shared,
    standing::nameless,
    state::State,
    sync::{Notified, either},
};
use larder_core::{Lba, limits::DESTAGED_AT_ONCE, ranges::Run, wear::WearLevel};
use std::{sync::Arc, time::Duration};

/// Limit of chunks in a batch without pressure: a reader that misses waits behind one batch at
/// most.
const BATCH_CHUNKS_RELAXED: usize = 32;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Trimmed runs in a batch at most.
const BATCH_RUNS_MAX: usize = 256;
/// Kept runs among which a batch finds the shortest, at most.
const KEPT_RUNS_LOOKED_AT_MAX: usize = 256;
/// Pause after a turn that wrote nothing.
const IDLE: Duration = Duration::from_millis(1);
/// Turns in a row that may write nothing before a cache that loses its flash waits longer.
const IDLE_TURNS_MAX: u32 = 8;
/// Turns without progress after which the rest counts as impossible to destage. The turns of a
/// round over the dirty data come on top.
const IDLE_TURNS_OF_ALL: u64 = 64;
/// Turns without progress after which a range counts as impossible to destage.
const RANGE_TRIES_MAX: u32 = 3;
/// Pause after the origin failed, doubling up to the maximum.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The chunks and runs that one batch destages.
#[derive(Default)]
pub(crate) struct Batch {
    /// Dirty chunks, ascending.
    pub lbas: Vec<Lba>,
    /// Trimmed runs, ascending.
    pub runs: Vec<Run>,
}

impl Shared {
    /// Wakes the destager if the low watermark is passed.
    pub(crate) fn wake_destager_if_due(&self) {
        let wanted = self.destage_wanted(&self.state.lock());
        self.ask_for_destage(wanted);
    }

    /// Returns how soon dirty data is to be destaged.
    pub(crate) fn destage_wanted(&self, state: &State) -> Wanted {
        if !self.destage_due(state) {
            Wanted::Not
        } else if self.destage_urgent(state) {
            Wanted::Now
        } else {
            Wanted::AtRate
        }
    }

    /// Wakes the destager, if it is wanted.
    pub(crate) fn ask_for_destage(&self, wanted: Wanted) {
        if wanted != Wanted::Not {
            self.signals.destage_wanted.notify();
        }
        if wanted == Wanted::Now {
            self.signals.destage_urged.notify();
        }
    }

    /// Waits at a limit for the next destage, without a delay by the rate.
    pub(crate) async fn wait_for_destage(&self, destaged: Notified<'_>) {
        let _counted = self.writes.wait_for_destage();
        self.ask_for_destage(Wanted::Now);
        destaged.await;
    }

    /// Returns whether the rate does not limit a due destage: much is dirty, or a writer waits.
    fn destage_urgent(&self, state: &State) -> bool {
        state.flash.loses_content()
            || self.writes.waits_for_destage()
            || self.dirty_percent(state) >= u64::from(self.live.get().dirty_high_percent)
            || self.too_dirty(state)
            || self.owed(state).runs >= self.geometry.zero_ranges_max / 2
            || self.kept_runs_to_give(state) > 0
    }

    /// Pauses for the destage rate, until a destage is urgent or the pace changes.
    async fn pause_for_rate(&self, pause: Duration, pace: Notified<'_>) {
        let urged = self.signals.destage_urged.listen();
        if !self.destage_urgent(&self.state.lock()) {
            either(self.runtime.delay(pause), either(urged, pace)).await;
        }
    }

    /// Returns whether the low watermark is passed, or the origin is to be asked for a write.
    fn destage_due(&self, state: &State) -> bool {
        let dirty = state.design().dirty_counts();
        if state.flash.loses_content() {
            // All readable data must reach the origin.
            return dirty.chunks > state.lost.count() || self.owed(state).runs > 0;
        }
        // Only a write shows that an origin whose writes failed takes writes again.
        let owed = self.owed(state);
        self.origin_watch.fails_writes() && (owed.chunks > state.lost.count() || owed.runs > 0)
            || self.dirty_percent(state) >= u64::from(self.live.get().dirty_low_percent)
            || owed.runs >= self.geometry.zero_ranges_max / 4
            // Each chunk that is dirty once writes go past the flash costs a frame of the log.
            || owed.chunks > state.lost.count() && self.wear_level() >= WearLevel::Saving
            || self.kept_runs_to_give(state) > 0
            || self.too_dirty(state)
    }

    /// Runs the destager's task: keeps the dirty share below the low watermark until the cache
    /// closes.
    pub(crate) async fn destager(self: Arc<Self>) {
        let mut cursor = Lba(0);
        let mut pause = RETRY_FIRST;
        let mut idle_turns = 0;
        loop {
            let wanted = self.signals.destage_wanted.listen();
            // The listener comes before the look at the end, which cuts every pause short.
            let pace = self.signals.pace.listen();
            let (due, urgent, loses_flash) = {
                let state = self.state.lock();
                (self.destage_due(&state), self.destage_urgent(&state), state.flash.loses_content())
            };
            if self.is_closing() {
                return;
            }
            if !due {
                if loses_flash {
                    // After a failure the next look and the end try again.
                    let _ = self.note_if_destaged().await;
                }
                // A task that waits for a destage may wait for a change that came about otherwise.
                self.signals.destaged.notify();
                wanted.await;
                continue;
            }
            let began = self.runtime.now();
            let chunks_max = if urgent { DESTAGED_AT_ONCE } else { BATCH_CHUNKS_RELAXED };
            match self.destage_next(&mut cursor, chunks_max, Reach::Owed).await {
                // The batch was empty, or the end of the volume was passed: a pause keeps the loop
                // from spinning.
                Ok(0) => {
                    idle_turns += 1;
                    // Without the flash some of the data may never come: a look every millisecond
                    // is needless.
                    let often = !loses_flash || idle_turns < IDLE_TURNS_MAX;
                    either(self.runtime.delay(if often { IDLE } else { RETRY_MAX }), pace).await;
                }
                Ok(bytes) => {
                    idle_turns = 0;
                    pause = RETRY_FIRST;
                    let rate = self.live.get().destage_rate_bytes_per_s;
                    if !urgent && rate > 0 {
                        // Bytes say little about a disk that seeks: half of its time is left to
                        // readers, too.
                        let spent = self.runtime.now().saturating_sub(began);
                        let earliest = Duration::from_secs_f64(bytes as f64 / rate as f64).max(2 * spent);
                        self.pause_for_rate(earliest - spent, pace).await;
                    }
                }
                Err(()) => {
                    either(self.runtime.delay(self.pause_before_retry(pause)), pace).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Destages all data that is dirty now, durably. Returns false if a part failed.
    ///
    /// It puts the fence up for data that is not durable on a failed flash. Without a fence that
    /// data stays dirty.
    pub(crate) async fn destage_all(self: &Arc<Self>, reach: Reach) -> bool {
        self.destage_or_tell(reach).await.unwrap_or(false)
    }

    /// Destages all, as [`Shared::destage_all`], for a requester that gets the reason of a fence.
    ///
    /// # Errors
    /// [`EngineError::NoFence`] if a part failed and the fence was refused.
    pub(crate) async fn destage_or_tell(self: &Arc<Self>, reach: Reach) -> Result<bool, EngineError> {
        let this = self.clone();
        // The flush comes even without dirty data: it covers writes through the cache, or past a
        // failed flash.
        let all = async move {
            let destaged = this.destage_everything(reach).await?
                && this.keep_durably().await.is_ok()
                && this.flush_origin().await.is_ok();
            if destaged && reach == Reach::All {
                // After a failure the destager and the end try again.
                let _ = this.note_destaged().await;
            }
            Ok(destaged)
        };
        self.to_its_end(all).await
    }

    /// Makes the trims that the cache keeps durable.
    ///
    /// Such a trim may have replaced data that the origin lacks. If a crash took the trim alone,
    /// older data would come back than that.
    async fn keep_durably(self: &Arc<Self>) -> Result<(), EngineError> {
        let upto = {
            let state = self.state.lock();
            (self.kept(&state).runs > 0).then(|| state.log.next_seq())
        };
        match upto {
            Some(upto) => self.commit(upto).await,
            None => Ok(()),
        }
    }

    async fn destage_everything(self: &Arc<Self>, reach: Reach) -> Result<bool, EngineError> {
        let mut cursor = Lba(0);
        let mut turns_without_progress = 0;
        let (mut is_fence_asked, mut refused) = (false, Ok(()));
        loop {
            let left = || {
                let state = self.state.lock();
                let dirty = if reach == Reach::All { state.design().dirty_counts() } else { self.owed(&state) };
                (dirty.chunks + dirty.run_chunks, self.kept(&state).runs)
            };
            let (before, kept_runs) = left();
            if before == 0 {
                return Ok(true);
            }
            // The flash may fail in the middle. A refusal of the fence stops no other data.
            if !is_fence_asked {
                match self.fence_undurable().await {
                    Ok(is_needed) => is_fence_asked = is_needed,
                    error => (is_fence_asked, refused) = (true, error.map(drop)),
                }
            }
            let result = self.destage_next(&mut cursor, DESTAGED_AT_ONCE, reach).await;
            let (after, _) = left();
            turns_without_progress = if after < before { 0 } else { turns_without_progress + 1 };
            // A partial failure, or a flash that does not give data back, does not stop the rest.
            // An origin that takes no write ends the work.
            let origin_refuses = result.is_err() && after >= before && self.origin_watch.error().is_some();
            // A turn may find only kept runs.
            let turns_of_all = before / DESTAGED_AT_ONCE as u64 + kept_runs / KEPT_RUNS_LOOKED_AT_MAX as u64;
            if origin_refuses || turns_without_progress > IDLE_TURNS_OF_ALL + turns_of_all {
                return refused.map(|()| false);
            }
        }
    }

    /// Destages the dirty data of chunks, with trimmed parts and kept trims. The caller holds their
    /// ticket, or keeps writes off otherwise.
    ///
    /// # Errors
    /// [`EngineError::DirtyDataLost`] if some of it is damaged. The error of the origin, or
    /// [`EngineError::FlashFailed`], if some of it stays dirty.
    pub(crate) async fn bring_to_origin(self: &Arc<Self>, first: Lba, end: Lba) -> Result<(), EngineError> {
        let (mut at, mut tries) = (first, 0);
        loop {
            let (mut batch, is_lost) = {
                let state = self.state.lock();
                let Some(next) = first_dirty(&state, at, end) else { return Ok(()) };
                tries = if next > at { 1 } else { tries + 1 };
                at = next;
                let (batch, _) = next_batch(&state, at, self.batch_chunks(end.0 - at.0), KeptShare::All);
                (batch, state.lost.has(at))
            };
            if is_lost || tries > RANGE_TRIES_MAX {
                return Err(self.why_not_on_origin(at));
            }
            batch.lbas.retain(|&lba| lba < end);
            batch.runs.retain(|run| run.first < end);
            batch.runs.iter_mut().for_each(|run| run.count = run.count.min(end.0 - run.first.0));
            // A batch may be done in part: the next look tells.
            if self.destage_batch(&batch).await.is_err() && self.origin_watch.error().is_some() {
                tries = RANGE_TRIES_MAX;
            }
        }
    }

    /// Returns the number of chunks in a batch, at most `max`.
    fn batch_chunks(&self, max: u64) -> usize {
        let max = DESTAGED_AT_ONCE.min(usize::try_from(max).unwrap_or(usize::MAX)).max(1);
        (BATCH_BYTES_MAX / self.geometry.chunk_bytes).clamp(1, max)
    }

    /// Returns the reason why chunk `lba` is still dirty after its destage.
    fn why_not_on_origin(&self, lba: Lba) -> EngineError {
        let state = self.state.lock();
        if state.lost.has(lba) {
            return EngineError::DirtyDataLost { offset: self.geometry.offset_of(lba) };
        }
        // It may succeed later: if the origin answers again, or the flash can be read after all.
        match (self.origin_watch.error(), state.flash.failure().cloned()) {
            (Some(error), _) => EngineError::Io(error),
            (None, Some(error)) => EngineError::FlashFailed(error),
            (None, None) if self.is_closing() => EngineError::Closed,
            (None, None) => EngineError::Flash(nameless("the origin lacks dirty data on it")),
        }
    }

    /// Destages one batch from `cursor` on, around the end of the volume. Returns the bytes written
    /// to the origin.
    async fn destage_next(self: &Arc<Self>, cursor: &mut Lba, chunks_max: usize, reach: Reach) -> Result<u64, ()> {
        let from = *cursor;
        let chunks_max = self.batch_chunks(chunks_max as u64);
        let (batch, end) = {
            let state = self.state.lock();
            let kept = match reach {
                Reach::Owed if self.keeps_trims(&state) => KeptShare::Give(self.kept_runs_to_give(&state)),
                _ => KeptShare::All,
            };
            next_batch(&state, from, chunks_max, kept)
        };
        *cursor = end.unwrap_or(Lba(0));
        if batch.lbas.is_empty() && batch.runs.is_empty() {
            // No data from the cursor on: the next turn begins at the start, unless this one did.
            if from == Lba(0) {
                self.signals.destaged.notify();
            }
            return Ok(0);
        }
        self.destage_batch(&batch).await
    }

    /// Destages chunks and trimmed runs, with one flush of the origin. Returns the bytes written to
    /// the origin.
    ///
    /// # Errors
    /// As [`Shared::destage`].
    pub(crate) async fn destage_batch(self: &Arc<Self>, batch: &Batch) -> Result<u64, ()> {
        let Batch { lbas, runs } = batch;
        let (Some(run), Some(last)) = (runs.first(), runs.last()) else { return self.destage(lbas).await };
        let first = lbas.first().map_or(run.first, |&lba| lba.min(run.first));
        let end = lbas.last().map_or(0, |lba| lba.0 + 1).max(last.first.0 + last.count);
        let _ticket = self.orders.destage(first, end - first.0).granted().await;
        let _room = self.reserve_batch(runs::MARKS_MAX + lbas.len()).await.map_err(|_| ())?;
        let failures = self.state.lock().origin_flushes.failures();
        let zeroed = self.zero_runs(runs).await;
        let written = self.destage_held(lbas).await;
        // The flush of the chunks flushed the zeroes, too.
        let zeroed = self.finish_runs(zeroed, failures).await;
        Ok(written? + zeroed?)
    }

    /// Makes dirty data up to sequence number `newest` durable on flash. Returns the limit up to
    /// which it may be destaged.
    async fn make_destageable(self: &Arc<Self>, newest: u64) -> Result<u64, ()> {
        let upto = {
            let state = self.state.lock();
            // Each destaged chunk adds an entry; the commit keeps the waiting ones within their
            // limit.
            let many = state.log.len() >= self.pending_entries_max();
            if many { state.log.next_seq() } else { newest + 1 }
        };
        match self.commit(upto).await {
            Ok(_) => Ok(newest),
            Err(EngineError::FlashFailed(_)) => {
                let state = self.state.lock();
                // Data that is not durable may have an older clean copy on flash: only the fence
                // keeps that away.
                let durable = state.log.durable_below().saturating_sub(1);
                Ok(if state.fence.is_up() { newest } else { newest.min(durable) })
            }
            Err(_) => Err(()),
        }
    }

    /// Flushes the origin after a destage. `failures` is the count of failed flushes before its
    /// writes.
    ///
    /// A flush that failed since then, for another task, may have lost the writes.
    async fn flush_destaged(self: &Arc<Self>, failures: u64) -> Result<(), ()> {
        self.flush_origin().await.map_err(|_| ())?;
        if self.state.lock().origin_flushes.failures() == failures { Ok(()) } else { Err(()) }
    }
}

/// The share of advisory runs in a batch.
#[derive(Clone, Copy)]
enum KeptShare {
    /// All runs: the cache keeps none.
    All,
    /// This many of the near runs, the shortest first, because they cost the origin least.
    Give(usize),
}

/// Returns the first dirty or trimmed chunk from `from` on, below `end`.
fn first_dirty(state: &State, from: Lba, end: Lba) -> Option<Lba> {
    let chunk = state.design().dirty_from(from, 1).first().map(|&(lba, _)| lba);
    let run = state.design().trimmed_from(from).map(|run| run.first.max(from));
    chunk.into_iter().chain(run).min().filter(|&lba| lba < end)
}

/// Returns the next batch from `from` on, and its end. It has at most `chunks_max` chunks and the
/// runs among them.
fn next_batch(state: &State, from: Lba, chunks_max: usize, share: KeptShare) -> (Batch, Option<Lba>) {
    let mut lbas: Vec<Lba> = state.design().dirty_from(from, chunks_max).into_iter().map(|(lba, _)| lba).collect();
    let mut end = lbas.last().filter(|_| lbas.len() == chunks_max).map(|last| Lba(last.0 + 1));
    let (mut runs, mut kept): (Vec<Run>, Vec<Run>) = Default::default();
    let mut at = from;
    while let Some(run) = state.design().trimmed_from(at).filter(|run| end.is_none_or(|end| run.first < end)) {
        if runs.len() == BATCH_RUNS_MAX || kept.len() == KEPT_RUNS_LOOKED_AT_MAX {
            end = Some(run.first);
            lbas.retain(|&lba| lba < run.first);
            break;
        }
        at = Lba(run.first.0 + run.count);
        if run.advisory && matches!(share, KeptShare::Give(_)) {
            // The run goes whole: a part of it would make no room.
            kept.push(run);
        } else {
            // The run may begin before the cursor.
            let first = run.first.max(from);
            runs.push(Run { first, count: at.0 - first.0, ..run });
        }
    }
    if let KeptShare::Give(count) = share {
        kept.sort_by_key(|run| run.count);
        runs.extend(kept.into_iter().take(count));
        runs.sort_by_key(|run| run.first);
    }
    (Batch { lbas, runs }, end)
}
