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
//! Invariants: no clean mapping is made for a changing or doubtful chunk. If a cache has too many
//! written runs to keep them apart, a failed flush makes the whole volume doubtful.
//!
//! It does not watch destaging, because destaged data stays dirty until a flush succeeds. It needs
//! no doubts over a restart, because an opening begins with a flush.

pub(crate) mod runs;

use crate::{error::EngineError, shared::Shared, state::State};
use larder_core::{
    Lba,
    decisions::{Answer, Event},
    design::Leaving,
};
use larder_format::LogEntry;
use std::{ops::Range, sync::Arc};

/// Limit of the chunks of a change that are looked at one by one, under the lock.
const LOOKED_MAX: u64 = 1 << 12;
/// Tries of a change while flushes of the origin fail.
const TRIES_MAX: u32 = 5;

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
    /// The forgetting is durable if a mapping may be durable. A mapping that is in RAM alone is
    /// forgotten there alone ([`unlogged`](crate::unflushed::unlogged)). No new mapping is made
    /// until the change is dropped. With `cached_again` the new content is offered then.
    ///
    /// # Errors
    /// The errors of the commit and of [`Shared::with_log_room`].
    pub async fn begin_change(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        cached_again: bool,
    ) -> Result<OriginChange<'_>, EngineError> {
        let (first, count) = self.geometry.chunks_of(offset, len);
        let forget = |state: &mut State, is_crowded: bool| {
            // A chunk that cannot come back needs no room in the log.
            let may_come_back = state.may_come_back(first, count);
            if is_crowded && may_come_back && state.design().is_forgetting_logged(first, count) {
                return None;
            }
            let change = self.changing(state, offset, len);
            state.decisions.note(|| (Event::Change { first, count, again: cached_again }, Answer::Done));
            debug_assert!(
                state.design().dirty_from(first, 1).first().is_none_or(|&(lba, _)| lba.0 >= first.0 + count),
                "a write to the origin overtakes dirty data"
            );
            state.outdate_range(first, count);
            let mut any = false;
            if cached_again {
                (first.0..first.0 + count).for_each(|lba| any |= state.decide().suspend(Lba(lba)));
            } else {
                any = state.decide().unmap_each(first, count, Leaving::All);
            }
            if any && may_come_back {
                // One entry covers all chunks, because the log may have less room than a large
                // cache has mappings.
                let (first, count) = state.decide().retreat(first, count);
                let chunk_count = count.min(self.geometry.chunk_count - first.0);
                state.log.push(LogEntry::Invalidate { lba: first.0, chunk_count });
            }
            // An eviction or a failed write may have forgotten a mapping already, and not durably.
            let upto = state.log.forgets_below();
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
        OriginChange { shared: self, first, count, whole, succeeded: false, failures: state.origin_flushes.failures() }
    }

    /// Makes a change of the origin, to its end, and again if a flush of the origin failed
    /// meanwhile.
    ///
    /// The failed flush may have lost the first write. A client that learns of the flush would take
    /// each later acknowledgement for safe. The caller holds the ticket. With `fua` the write is
    /// durable by itself.
    ///
    /// # Errors
    /// The errors of the change, or the error of the flush if flushes fail again and again.
    pub async fn change_origin<F>(self: &Arc<Self>, fua: bool, change: impl Fn() -> F) -> Result<(), EngineError>
    where
        F: Future<Output = Result<(), EngineError>> + Send + 'static,
    {
        let mut tries = 0;
        loop {
            let failures = self.state.lock().origin_flushes.failures();
            self.to_its_end(change()).await?;
            tries += 1;
            // This look comes last: no step comes between it and the answer.
            let state = self.state.lock();
            if fua || state.origin_flushes.failures() == failures {
                return Ok(());
            }
            if tries == TRIES_MAX {
                return state.origin_flushes.last_error().cloned().map_or(Ok(()), |error| Err(error.into()));
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

impl State {
    /// Returns whether a crash may bring back a present mapping of a run of chunks. Says so of each
    /// long run.
    fn may_come_back(&self, first: Lba, count: u64) -> bool {
        let is_gone = |lba| self.unlogged.has(lba) || self.design().is_forgotten(lba);
        count > LOOKED_MAX || !(first.0..first.0 + count).map(Lba).all(is_gone)
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
        let is_whole = self.succeeded && state.origin_flushes.failures() == self.failures;
        let rewritten = if is_whole { self.whole.clone() } else { 0..0 };
        state.origin_changes.end(run, rewritten);
        // A read that began meanwhile may have seen the old or the new content: its fill is
        // outdated here.
        state.versions.bump_range(self.first, self.count);
        state.prefetch.remove_range(self.first, self.count);
    }
}
