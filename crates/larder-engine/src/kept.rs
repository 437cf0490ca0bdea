//! Trims that the cache keeps to itself: they read as zeroes, and the origin is not told of them.
//!
//! A kept trim (`--trim keep`) is a trimmed run that is *advisory*. Log and checkpoint hold it, so
//! it outlives a crash. Kept runs fill the table of runs up to its half. The cache ignores and
//! counts a TRIM beyond that, of a part of a chunk, and outside write-back: the range reads as
//! before. Destaging writes kept runs to the origin as zeroes in three cases:
//! - the shortest ones, when writes fill the table;
//! - all of them, before a mode without dirty data;
//! - all of them, when the flash fails or loses its name.
//!
//! Invariants: a range whose TRIM was ignored is unchanged. Zeroes that the origin is owed stay
//! owed under a trim. Kept runs leave a quarter of the table to owed ones.
//!
//! It does not destage; [`destage`](crate::destage) does.

use crate::{config::policies::TrimPolicy, error::EngineError, shared::Shared, state::State, trim::zeroing::Zeroing};
use larder_core::{
    Lba,
    design::DirtyCounts,
    ranges::{Advisory, Run},
};
use larder_device::{IoOp, ZeroFlags};
use larder_format::WriteMode;
use std::sync::{Arc, atomic::Ordering::*};

/// The part of a TRIM that the cache keeps.
#[derive(Default)]
struct KeptTrim {
    /// Bytes that read as zeroes from now on.
    bytes: u64,
    /// The sequence number up to which a commit makes them durable; 0 for none.
    upto: u64,
}

impl Shared {
    /// Returns whether advisory runs stay in the cache now: a flash that failed does not hold them.
    pub(crate) fn keeps_trims(&self, state: &State) -> bool {
        self.tuning.trim == TrimPolicy::Keep && !state.flash.is_failed()
    }

    /// Returns the runs that the cache keeps to itself.
    pub(crate) fn kept(&self, state: &State) -> Advisory {
        if self.keeps_trims(state) { state.design().dirty_counts().advisory } else { Advisory::default() }
    }

    /// Returns the part of the dirty data that the origin is owed: all but kept trims.
    pub(crate) fn owed(&self, state: &State) -> DirtyCounts {
        let (dirty, kept) = (state.design().dirty_counts(), self.kept(state));
        let (runs, run_chunks) = (dirty.runs - kept.runs, dirty.run_chunks - kept.chunks);
        DirtyCounts { runs, run_chunks, ..dirty }
    }

    /// Returns the number of kept runs that must go: some from three quarters of the table on.
    ///
    /// Each write may cut a run in two. An eighth of the table goes at once, so that few batches do
    /// it.
    pub(crate) fn kept_runs_to_give(&self, state: &State) -> usize {
        let (max, runs) = (self.geometry.zero_ranges_max, state.design().dirty_counts().runs);
        let over = if runs < max / 4 * 3 { 0 } else { runs - max / 8 * 5 };
        over.min(self.kept(state).runs) as usize
    }

    /// Returns whether the table has room to keep a run. A run that joins a kept one takes no room.
    fn has_room_to_keep(&self, state: &State, run: &Run) -> bool {
        let end = run.first.0 + run.count;
        let joins =
            |from: u64| state.design().trimmed_from(Lba(from)).is_some_and(|it| it.first.0 <= end && it.advisory);
        joins(run.first.0.saturating_sub(1))
            || joins(run.first.0)
            || state.design().dirty_counts().runs < self.geometry.zero_ranges_max / 2
    }

    /// Carries out a TRIM that the origin is not told of.
    ///
    /// # Errors
    /// Faults of range and alignment; if a trim is durable at once, the errors of [`Shared::zero`].
    pub(crate) async fn keep_trim(self: &Arc<Self>, offset: u64, len: u64) -> Result<(), EngineError> {
        let Some(ticket) = self.admit_zeroes(IoOp::Discard, offset, len).await? else { return Ok(()) };
        let mut kept = KeptTrim::default();
        let result = self.keep_chunks(offset, len, &mut kept).await;
        self.counters.ignored_trim_bytes.fetch_add(len - kept.bytes, Relaxed);
        self.wake_destager_if_due();
        let is_durable = self.live.durable_writes() && kept.upto > 0;
        match result {
            Ok(()) if is_durable => self.make_durable(ticket, self.geometry.chunks_of(offset, len), kept.upto).await,
            // The flash no longer holds the kept part.
            Err(EngineError::FlashFailed(_)) if is_durable => {
                let flags = ZeroFlags { fua: true, ..ZeroFlags::default() };
                self.zero_on_origin(offset, len, Zeroing { flags, advisory: true }, (WriteMode::Back, ticket)).await
            }
            // Destaging brings the kept part to the origin, as all dirty data; the rest is ignored.
            Err(EngineError::FlashFailed(_)) => Ok(()),
            result => result,
        }
    }

    /// Keeps the whole chunks of a range while there is room.
    async fn keep_chunks(self: &Arc<Self>, offset: u64, len: u64, kept: &mut KeptTrim) -> Result<(), EngineError> {
        let whole = self.whole_chunks(offset, len);
        let mut at = whole.start;
        while at < whole.end && self.mode.get() == WriteMode::Back {
            let (_room, ()) = self.wait_until_writable(|_| ()).await?;
            let mut state = self.state.lock();
            let (owed, end) = next_of_a_kind(&state, at, whole.end);
            let count = state.design().trim_span(Lba(at), end - at);
            let run = Run { first: Lba(at), count, seq: 0, no_hole: false, advisory: true };
            let seq = match owed {
                // The chunk reads as zeroes, and the origin gets them.
                Some(owed) => owed.seq,
                None if self.keeps_trims(&state) && self.has_room_to_keep(&state, &run) => state.trim(run)?,
                None => return Ok(()),
            };
            kept.upto = kept.upto.max(seq + 1);
            at += count;
            let end = self.geometry.offset_of(Lba(at)).min(self.geometry.volume_bytes);
            kept.bytes += end - self.geometry.offset_of(Lba(at - count));
        }
        Ok(())
    }
}

/// Returns the run at a chunk, if the origin is owed its zeroes, and the end of its kind.
///
/// The end is the first chunk of the next kind, or `end`.
fn next_of_a_kind(state: &State, at: u64, end: u64) -> (Option<Run>, u64) {
    let mut from = at;
    while let Some(run) = state.design().trimmed_from(Lba(from)).filter(|run| run.first.0 < end) {
        match run.advisory {
            false if run.first.0 <= at => return (Some(run), end.min(run.first.0 + run.count)),
            false => return (None, run.first.0),
            true => from = run.first.0 + run.count,
        }
    }
    (None, end)
}
