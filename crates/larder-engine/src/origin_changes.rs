//! Chunks with new content on the origin, and those whose new content the origin may have lost.
//!
//! Reads of such chunks must not be cached for good.
//!
//! A write-through or write-around changes the origin in three steps. The chunks are *changing*
//! until the write is over. They are *written* until a flush that began later succeeds. When a
//! flush fails, the origin may have forgotten all changing and written chunks, though reads show
//! them until the power goes. No later flush makes them durable. Such chunks are *doubtful* until a
//! write, of any kind, covers them whole. If a clean copy of one became durable on flash, a power
//! loss could leave the copy and take the original. Reads would then change when the copy is
//! evicted.
//!
//! Invariants: no clean mapping is made for a changing or doubtful chunk. If more runs are written
//! than are kept apart, a failed flush makes the whole volume doubtful.
//!
//! It leaves destaging alone, whose data stays dirty until a flush succeeds. It does not forget
//! doubts at an opening, which begins with a flush.

use crate::{error::EngineError, shared::Shared, state::State};
use larder_core::{
    Lba,
    decisions::{Answer, Event},
    design::Leaving,
    ranges::{Run, RunMap},
};
use larder_format::LogEntry;
use std::{ops::Range, sync::Arc};

/// Runs that are kept apart: about 4 MiB.
const RUNS_MAX: usize = 64 << 10;
/// Tries of a change while flushes of the origin fail.
const TRIES_MAX: u32 = 5;

/// The changes of the origin; see the module.
#[derive(Default)]
pub struct OriginChanges {
    /// First chunk and end of each change that is under way.
    changing: Vec<(u64, u64)>,
    /// Written runs, with the number of the write.
    written: RunMap,
    /// All writes below this number count for the whole volume.
    overflowed_below: u64,
    next_number: u64,
    doubtful: RunMap,
    /// The whole volume is doubtful.
    all_doubtful: bool,
}

impl OriginChanges {
    /// Returns whether a clean copy of the chunk, as the origin shows it, must not be mapped.
    pub fn is_unsettled(&self, lba: Lba) -> bool {
        self.all_doubtful || self.is_changing(lba) || self.doubtful.get(lba).is_some()
    }

    /// Returns whether the chunk is being changed.
    pub fn is_changing(&self, lba: Lba) -> bool {
        self.changing.iter().any(|&(first, end)| (first..end).contains(&lba.0))
    }

    /// Returns the number of chunks that a failed flush may have taken, or `None` if that is any
    /// chunk.
    pub fn doubtful_chunks(&self) -> Option<u64> {
        (!self.all_doubtful).then(|| self.doubtful.chunks())
    }

    /// Returns the number below which a flush that begins now covers the writes.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Notes a successful flush for the writes below `upto`.
    pub fn flushed(&mut self, upto: u64) {
        let left: Vec<Run> = self.written.iter().filter(|run| run.seq >= upto).collect();
        self.written = RunMap::default();
        left.into_iter().for_each(|run| self.written.insert(run));
        if self.overflowed_below <= upto {
            self.overflowed_below = 0;
        }
    }

    /// Notes a failed flush.
    pub fn flush_failed(&mut self) {
        self.all_doubtful |= self.overflowed_below > 0;
        let lost: Vec<Run> = std::mem::take(&mut self.written).iter().collect();
        lost.into_iter().for_each(|run| self.doubt(run.first.0, run.first.0 + run.count));
        for (first, end) in self.changing.clone() {
            self.doubt(first, end);
        }
        self.overflowed_below = 0;
    }

    fn doubt(&mut self, first: u64, end: u64) {
        if self.doubtful.len() >= RUNS_MAX {
            self.all_doubtful = true;
        } else {
            self.doubtful.insert(Run::new(Lba(first), end - first, 0));
        }
    }

    /// Ends the change of `run`. `rewritten` is the part that is whole on the origin without a
    /// failed flush meanwhile.
    fn end(&mut self, run: (u64, u64), rewritten: Range<u64>) {
        if let Some(at) = self.changing.iter().position(|&changing| changing == run) {
            self.changing.swap_remove(at);
        }
        let (first, end) = run;
        // If a flush fails before these are flushed, they are doubtful again.
        self.rewritten(rewritten);
        if self.written.len() >= RUNS_MAX {
            self.written = RunMap::default();
            self.overflowed_below = self.next_number + 1;
        }
        self.written.insert(Run::new(Lba(first), end - first, self.next_number));
        self.next_number += 1;
    }

    /// Ends the doubt about chunks that the origin got whole. No flush failed since the write
    /// began.
    pub fn rewritten(&mut self, chunks: Range<u64>) {
        self.doubtful.remove(Lba(chunks.start), chunks.end.saturating_sub(chunks.start));
    }
}

/// A change of the origin under way, from [`Shared::begin_change`] or [`Shared::changing`]. It is
/// dropped when it is over, even if it failed.
pub struct OriginChange<'a> {
    shared: &'a Shared,
    first: Lba,
    count: u64,
    /// Chunks that the change covers whole.
    whole: Range<u64>,
    succeeded: bool,
    /// Failed flushes when it began.
    failures: u64,
}

impl Shared {
    /// Begins a change of `len` bytes of the origin at `offset`, and forgets the mappings of these
    /// chunks.
    ///
    /// The forgetting is durable if a mapping may be durable. No new mapping is made until the
    /// change is dropped. With `cached_again` the new content is offered then.
    ///
    /// # Errors
    /// Those of the commit, and of [`Shared::with_log_room`].
    pub async fn begin_change(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        cached_again: bool,
    ) -> Result<OriginChange<'_>, EngineError> {
        let (first, count) = self.geometry.chunks_of(offset, len);
        let forget = |state: &mut State, is_crowded: bool| {
            // A chunk that is not mapped, and cannot come back, needs no room in the log.
            if is_crowded && state.design.is_forgetting_logged(first, count) {
                return None;
            }
            let change = self.changing(state, offset, len);
            state.decisions.note(|| (Event::Change { first, count, again: cached_again }, Answer::Done));
            debug_assert!(
                state.design.dirty_from(first, 1).first().is_none_or(|&(lba, _)| lba.0 >= first.0 + count),
                "a write to the origin overtakes dirty data"
            );
            state.outdate_range(first, count);
            let mut any = false;
            if cached_again {
                (first.0..first.0 + count).for_each(|lba| any |= state.design.suspend(Lba(lba)));
            } else {
                any = state.design.unmap_each(first, count, Leaving::All);
            }
            if any {
                // One entry covers all chunks, because the log may have less room than a large
                // cache has mappings.
                state.log.push(LogEntry::Invalidate { lba: change.first.0, chunk_count: change.count });
            }
            // An eviction or a failed write may have forgotten a mapping already, and not durably.
            let upto = Some(state.log.forgets_below).filter(|&upto| upto > state.log.durable_below);
            Some((change, upto))
        };
        let (change, upto) = self.with_log_room(forget).await?;
        if let Some(upto) = upto {
            self.commit(upto).await?;
        }
        Ok(change)
    }

    /// Begins a change of `len` bytes of the origin at `offset`. No clean mapping is made there
    /// meanwhile.
    ///
    /// The end of the change outdates reads of the meantime. The caller forgets the present
    /// mappings.
    pub fn changing(&self, state: &mut State, offset: u64, len: u64) -> OriginChange<'_> {
        let (first, count) = self.geometry.chunks_of(offset, len);
        state.origin_changes.changing.push((first.0, first.0 + count));
        let whole = self.whole_chunks(offset, len);
        OriginChange { shared: self, first, count, whole, succeeded: false, failures: state.origin_flush_failures }
    }

    /// Makes a change of the origin, to its end, and again if a flush of the origin failed
    /// meanwhile.
    ///
    /// The origin may have forgotten the earlier write. A client that is told of the flush would
    /// take any later acknowledgement for safe. The caller holds the ticket. `fua`: the write is
    /// durable by itself.
    ///
    /// # Errors
    /// Those of the change; that of the flush if flushes fail again and again.
    pub async fn change_origin<F>(self: &Arc<Self>, fua: bool, change: impl Fn() -> F) -> Result<(), EngineError>
    where
        F: Future<Output = Result<(), EngineError>> + Send + 'static,
    {
        let mut tries = 0;
        loop {
            let failures = self.state.lock().origin_flush_failures;
            self.to_its_end(change()).await?;
            tries += 1;
            // This look comes last: no step comes between it and the answer.
            let state = self.state.lock();
            if fua || state.origin_flush_failures == failures {
                return Ok(());
            }
            if tries == TRIES_MAX {
                return state.origin_flushes.last_error.clone().map_or(Ok(()), |error| Err(error.into()));
            }
        }
    }

    /// Returns the chunks that a range covers whole. The volume's last one is among them if the
    /// range reaches its end.
    pub fn whole_chunks(&self, offset: u64, len: u64) -> Range<u64> {
        let chunk = self.geometry.chunk_bytes as u64;
        let to_end = offset + len == self.geometry.volume_bytes;
        offset.div_ceil(chunk)..if to_end { self.geometry.chunk_count } else { (offset + len) / chunk }
    }
}

impl OriginChange<'_> {
    /// Notes that the origin has all of the change.
    pub fn succeeded(mut self) {
        self.succeeded = true;
    }
}

impl Drop for OriginChange<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let run = (self.first.0, self.first.0 + self.count);
        let is_whole = self.succeeded && state.origin_flush_failures == self.failures;
        let rewritten = if is_whole { self.whole.clone() } else { 0..0 };
        state.origin_changes.end(run, rewritten);
        // A read that began meanwhile may have seen the old or the new content: its fill is
        // outdated here.
        state.versions.bump_range(self.first, self.count);
        state.prefetch.remove_range(self.first, self.count);
    }
}
