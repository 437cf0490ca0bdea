//! Going on without a flash that failed.
//!
//! A flash fails when it is gone, when one flush fails, or when checkpoints fail again and again.
//! It also fails when it refuses a segment or a log frame until the retries end
//! ([`refused`](crate::refused)). Until the cache is opened again, no record is stored on it, and
//! no entry becomes durable there. Mapped chunks stay mapped: readable records and the origin serve
//! the reads. Readable dirty data is destaged.
//!
//! A write goes past the flash, in order: (1) The fence is up. (2) No destage of these chunks is
//! under way. (3) The dirty data of partly covered chunks is on the origin. (4) The chunks' clean
//! mappings are forgotten. (5) The origin is written. (6) The dirty mappings are forgotten, too.
//! (7) The write is acknowledged. A write that fails in (5) may have changed the origin: a clean
//! mapping that stayed would show the old content until the next opening.
//!
//! Invariants: dirty data that is not durable on the flash is destaged only behind the fence. The
//! flash may hold an older clean copy, which must not come back.
//!
//! It does not take the flash back; the next opening does.

pub(crate) mod flash_health;

use crate::{
    degraded::flash_health::UndurableRun, destage::reach::Reach, error::EngineError, shared::Shared,
    trim::zeroing::Zeroing, unflushed::waiting::Asker,
};
use larder_core::{Lba, design::Leaving, ranges::Run};
use larder_device::{IoError, IoErrorKind, SharedBuf, WriteFlags};
use std::sync::{Arc, atomic::Ordering::*};

impl Shared {
    /// Fails the flash with `error`, and hands the error back, for `map_err`. A cancelled operation
    /// is no failure: the runtime ends.
    pub fn fail_flash(&self, error: IoError) -> IoError {
        if error.kind == IoErrorKind::Cancelled {
            return error;
        }
        {
            let mut state = self.state.lock();
            if state.flash.is_failed() {
                return error;
            }
            state.note_fault();
            let undurable = state.log.die();
            state.commits.drop_requests();
            state.flash.fail(error.clone(), undurable);
            state.unflushed.clear();
            state.unlogged.clear();
        }
        self.room.call_all();
        let signals = &self.signals;
        for signal in [
            &signals.index_room,
            &signals.segments,
            &signals.committed,
            &signals.commit_wanted,
            &signals.evict_wanted,
            &signals.destage_wanted,
            &signals.destaged,
            &signals.checkpoint_wanted,
            &signals.checkpointed,
            &signals.inserted,
        ] {
            signal.notify();
        }
        self.wear.wake();
        self.conditions_changed();
        error
    }

    /// Counts a failed read of the flash. A flash that is gone has failed.
    pub fn note_flash_read_error(&self, error: &IoError) {
        self.count_flash_read_error();
        if error.kind == IoErrorKind::Gone {
            self.fail_flash(error.clone());
        }
    }

    /// Counts a failed read of the flash.
    pub(crate) fn count_flash_read_error(&self) {
        self.counters.flash_read_errors.fetch_add(1, Relaxed);
        self.state.lock().flash.read_failed(self.runtime.now());
        self.conditions_changed();
    }

    /// Writes `data` to the origin, past the flash. The caller holds the ticket.
    ///
    /// # Errors
    /// [`EngineError::NoFence`]; errors of the origin. If the rest of a partly covered chunk cannot
    /// go to the origin first: [`EngineError::DirtyDataLost`] if it is damaged,
    /// [`EngineError::FlashFailed`] if it cannot be read.
    pub async fn write_past_flash(
        self: &Arc<Self>,
        offset: u64,
        data: SharedBuf,
        flags: WriteFlags,
    ) -> Result<(), EngineError> {
        let len = data.len() as u64;
        let this = self.clone();
        self.past_flash(offset, len, async move { Ok(this.write_origin(offset, data, flags).await?) }).await
    }

    /// Zeroes a range of the origin, past the flash. The caller holds the ticket.
    ///
    /// # Errors
    /// As [`Shared::write_past_flash`].
    pub(crate) async fn zero_past_flash(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        how: Zeroing,
    ) -> Result<(), EngineError> {
        let this = self.clone();
        self.past_flash(offset, len, async move { Ok(this.zero_origin(offset, len, how).await?) }).await
    }

    async fn past_flash(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        change: impl Future<Output = Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        // (1)
        self.ensure_fence().await?;
        let (first, count) = self.geometry.chunks_of(offset, len);
        // (3) before (2), because destaging takes the same tickets; no write can make these chunks
        // dirty meanwhile.
        for lba in [first, Lba(first.0 + count - 1)] {
            let start = self.geometry.offset_of(lba);
            let whole = offset <= start && start + self.geometry.chunk_len(lba) as u64 <= offset + len;
            if !whole {
                self.bring_to_origin(lba, Lba(lba.0 + 1)).await?;
            }
        }
        // (2)
        let _destages = self.orders.destage(first, count).granted().await;
        // (4)
        let origin_change = {
            let mut state = self.state.lock();
            let origin_change = self.changing(&mut state, offset, len);
            state.versions.bump_range(first, count);
            state.prefetch.remove_range(first, count);
            state.decide().unmap_each(first, count, Leaving::Clean);
            origin_change
        };
        // (5) If it fails, the origin may have changed, too: the change is over, and did not
        // succeed.
        change.await?;
        origin_change.succeeded();
        // (6)
        {
            let mut state = self.state.lock();
            state.outdate_range(first, count);
            state.decide().unmap_each(first, count, Leaving::All);
        }
        self.counters.writes_past_flash.fetch_add(1, Relaxed);
        self.signals.destaged.notify();
        Ok(())
    }

    /// Carries out a FLUSH without the flash. Data that was not durable there goes to the origin,
    /// and the origin is flushed.
    ///
    /// # Errors
    /// [`EngineError::NoFence`]; [`EngineError::FlashFailed`] if some of it cannot be read or
    /// written; errors of the origin.
    pub async fn flush_past_flash(self: &Arc<Self>, asker: &Asker) -> Result<(), EngineError> {
        if self.fence_undurable().await? {
            self.destage_all(Reach::All).await;
            if self.undurable_left() {
                // Only a failed flash leaves data undurable.
                self.state.lock().flash.check()?;
            }
        }
        self.flush_origin_for(asker).await
    }

    /// Puts the fence up if data that was not durable on a failed flash is missing on the origin.
    /// Returns whether there is such data.
    ///
    /// # Errors
    /// [`EngineError::NoFence`].
    pub(crate) async fn fence_undurable(self: &Arc<Self>) -> Result<bool, EngineError> {
        let is_needed = self.undurable_left();
        if is_needed {
            self.ensure_fence().await?;
        }
        Ok(is_needed)
    }

    /// Returns whether data that was not durable when the flash failed is still missing on the
    /// origin.
    ///
    /// Overwritten data does not count.
    fn undurable_left(&self) -> bool {
        let mut state = self.state.lock();
        let (flash, design) = state.flash_and_design();
        flash.retain_undurable(|&UndurableRun { first, count, seq }| {
            // The rest of a run may be in pieces, with other data between them.
            let end = first.0 + count;
            let next = |run: &Run| design.trimmed_from(Lba(run.first.0 + run.count));
            let mut runs = std::iter::successors(design.trimmed_from(first), next);
            design.dirty_seq(first) == Some(seq)
                || runs.by_ref().take_while(|run| run.first.0 < end).any(|run| run.seq == seq)
        })
    }
}
