//! TRIM and write-zeroes: the range reads as zeroes in every mode; after a crash, too, once
//! flushed.
//!
//! Write-back: whole chunks become a run in the log, one with the runs that it touches. Destaging
//! writes it to the origin as zeroes (punched if the origin can).
//! [`zeroed_parts`](crate::zeroed_parts) zeroes parts of chunks. Write-through and write-around:
//! mappings are forgotten durably, then the origin writes zeroes. [`TrimPolicy`] sets the treatment
//! of a TRIM.
//!
//! Invariants: only a TRIM that is passed on becomes a plain discard, on an origin that promises
//! zeroes.
//!
//! It does not keep trims; `kept.rs` does. It does not trim the flash; eviction does,
//! slot by slot.

pub(crate) mod zeroing;

use crate::trim::zeroing::Zeroing;
use crate::{config::TrimPolicy, error::EngineError, shared::Shared, state::State, tickets::Ticket};
use larder_core::{
    Lba,
    decisions::{Answer, Event},
    ranges::Run,
};
use larder_device::{IoBuf, IoErrorKind, IoOp, SharedBuf, WriteFlags, ZeroFlags};
use larder_format::{LogEntry, WriteMode};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::*},
};

impl Shared {
    /// Carries out a client's TRIM of `len` bytes at `offset`.
    ///
    /// # Errors
    /// As [`Shared::zero`].
    pub async fn trim(self: &Arc<Self>, offset: u64, len: u64) -> Result<(), EngineError> {
        let how = |advisory| Zeroing { flags: ZeroFlags::default(), advisory };
        match self.tuning.trim {
            TrimPolicy::Zero => self.zero_as(IoOp::Discard, offset, len, how(false)).await,
            TrimPolicy::Pass => self.zero_as(IoOp::Discard, offset, len, how(true)).await,
            TrimPolicy::Keep => self.keep_trim(offset, len).await,
        }
    }

    /// Makes `len` bytes at `offset` read as zeroes.
    ///
    /// # Errors
    /// Faults of range and alignment, and errors of the devices. With `fast_only`,
    /// [`larder_device::IoErrorKind::Unsupported`] if the origin would need zeroes written the slow
    /// way.
    pub async fn zero(self: &Arc<Self>, offset: u64, len: u64, flags: ZeroFlags) -> Result<(), EngineError> {
        self.zero_as(IoOp::WriteZeroes, offset, len, Zeroing { flags, advisory: false }).await
    }

    async fn zero_as(self: &Arc<Self>, op: IoOp, offset: u64, len: u64, how: Zeroing) -> Result<(), EngineError> {
        let flags = ZeroFlags { fua: how.flags.fua || self.live.durable_writes(), ..how.flags };
        let how = Zeroing { flags, ..how };
        let Some(ticket) = self.admit_zeroes(op, offset, len).await? else { return Ok(()) };
        let (first, count) = self.geometry.chunks_of(offset, len);
        let mode = self.mode_of_change(first, count).await?;
        if mode == WriteMode::Back {
            let zeroed = self.zero_chunks(offset, len, how).await;
            self.wake_destager_if_due();
            match zeroed {
                Ok(upto) if flags.fua => {
                    return self.make_durable(ticket, (first, count), upto).await;
                }
                Ok(_) => return Ok(()),
                Err(EngineError::FlashFailed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.zero_on_origin(offset, len, how, (mode, ticket)).await
    }

    /// Waits for the turn of a client's zeroes, and counts them. Returns `None` for an empty range.
    pub(crate) async fn admit_zeroes(&self, op: IoOp, offset: u64, len: u64) -> Result<Option<Ticket>, EngineError> {
        self.check_request(op, offset, len)?;
        if len == 0 {
            return Ok(None);
        }
        let (first, count) = self.geometry.chunks_of(offset, len);
        let ticket = self.orders.change(first, count).granted().await;
        self.check_open()?;
        self.counters.trims.fetch_add(1, Relaxed);
        self.counters.trim_bytes.fetch_add(len, Relaxed);
        Ok(Some(ticket))
    }

    /// Zeroes a range of the origin for a client, without dirty data or past a flash that failed.
    pub(crate) async fn zero_on_origin(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        how: Zeroing,
        (mode, ticket): (WriteMode, Ticket),
    ) -> Result<(), EngineError> {
        let ticket = Arc::new(ticket);
        // Only a flush makes a discard durable.
        let fua = how.flags.fua && !self.discards(how);
        self.change_origin(fua, || {
            let (this, ticket) = (self.clone(), ticket.clone());
            async move {
                let _ticket = ticket;
                this.zero_through(offset, len, how, mode).await
            }
        })
        .await
    }

    async fn zero_through(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        how: Zeroing,
        mode: WriteMode,
    ) -> Result<(), EngineError> {
        let change = match mode {
            WriteMode::Back => None,
            WriteMode::Through | WriteMode::Around => match self.begin_change(offset, len, false).await {
                Err(EngineError::FlashFailed(_)) => None,
                change => Some(change?),
            },
        };
        let Some(change) = change else { return self.zero_past_flash(offset, len, how).await };
        self.zero_origin(offset, len, how).await?;
        change.succeeded();
        Ok(())
    }

    /// Zeroes a range in the cache. Returns the number below which a commit makes all of it
    /// durable.
    async fn zero_chunks(self: &Arc<Self>, offset: u64, len: u64, how: Zeroing) -> Result<u64, EngineError> {
        let Zeroing { flags: ZeroFlags { no_hole, .. }, advisory } = how;
        let end = offset + len;
        let chunk = self.geometry.chunk_bytes as u64;
        let Range { start: whole_first, end: whole_end } = self.whole_chunks(offset, len);
        if whole_first >= whole_end {
            return self.zero_parts(offset, end, how).await;
        }
        let mut upto = self.zero_parts(offset, whole_first * chunk, how).await?;
        let mut at = whole_first;
        while at < whole_end {
            let (_room, ()) = self.wait_until_writable(|_| ()).await?;
            self.wait_for_runs().await?;
            let mut state = self.state.lock();
            let count = state.design().trim_span(Lba(at), whole_end - at);
            let seq = state.trim(Run { first: Lba(at), count, seq: 0, no_hole, advisory })?;
            upto = upto.max(seq + 1);
            at += count;
        }
        Ok(upto.max(self.zero_parts(whole_end * chunk, end, how).await?))
    }

    /// Waits while the runs are as many as a checkpoint holds or the RAM budget affords.
    pub(crate) async fn wait_for_runs(self: &Arc<Self>) -> Result<(), EngineError> {
        loop {
            let destaged = self.signals.destaged.listen();
            {
                let state = self.state.lock();
                state.flash.check()?;
                // A new run may cut an old one in two.
                if state.design().dirty_counts().runs + 2 < self.geometry.zero_ranges_max {
                    return Ok(());
                }
            }
            self.refuse_if_draining()?;
            self.wait_for_destage(destaged).await;
        }
    }

    /// Zeroes a range of the origin, widened by reading if its sectors are coarser.
    ///
    /// # Errors
    /// Errors of the origin.
    pub(crate) async fn zero_origin(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        how: Zeroing,
    ) -> Result<(), larder_device::IoError> {
        let align = self.geometry.origin_align as u64;
        let (from, to) = (offset.next_multiple_of(align), (offset + len) / align * align);
        let zeroes = |len: u64| -> SharedBuf { IoBuf::zeroed(len as usize).freeze() };
        let write = WriteFlags { fua: how.flags.fua };
        if from >= to {
            return self.write_origin(offset, zeroes(len), write).await;
        }
        if offset < from {
            self.write_origin(offset, zeroes(from - offset), write).await?;
        }
        let discards = self.discards(how);
        let discarded = if discards { self.origin.discard(from, to - from).await.map(Some) } else { Ok(None) };
        let result = match discarded {
            Ok(Some(())) => Ok(&self.counters.origin_discard_bytes),
            // An origin that refuses the discard after all gets zeroes.
            Err(error) if error.kind != IoErrorKind::Unsupported => Err(error),
            _ => {
                let zeroed = self.origin.write_zeroes(from, to - from, how.flags).await;
                zeroed.map(|()| &self.counters.origin_zero_bytes)
            }
        };
        self.state.lock().origin_flushes.note_written();
        self.note_origin(&result);
        result?.fetch_add(to - from, Relaxed);
        if to < offset + len {
            self.write_origin(to, zeroes(offset + len - to), write).await?;
        }
        if discards && how.flags.fua { self.flush_origin().await } else { Ok(()) }
    }

    /// Returns whether the origin gets a plain discard, after which it promises zeroes.
    fn discards(&self, how: Zeroing) -> bool {
        how.advisory && self.tuning.trim == TrimPolicy::Pass && self.origin.info().discard_zeroes
    }
}

impl State {
    /// Makes a run of chunks read as zeroes until its destage. Returns the sequence number.
    ///
    /// The trim also covers the runs of its kind that it touches, and all become one.
    ///
    /// # Errors
    /// As [`StateGuard::map_dirty`](crate::state_lock::StateGuard::map_dirty).
    pub fn trim(&mut self, run: Run) -> Result<u64, EngineError> {
        self.flash.check()?;
        let Run { first, count, .. } = run;
        self.outdate_range(first, count);
        let Run { first, count, no_hole, advisory, .. } = self.with_touching_runs(run);
        let seq = self.log.push(LogEntry::Trim { lba: first.0, chunk_count: count, dirty: true, no_hole, advisory });
        self.decisions.note(|| (Event::Trim { first, count, seq }, Answer::Done));
        self.decide().trim(Run { first, count, seq, no_hole, advisory });
        Ok(seq)
    }

    /// Returns a run, extended by the trimmed runs of the same kind that it touches.
    fn with_touching_runs(&self, wanted: Run) -> Run {
        let (mut start, mut end) = (wanted.first.0, wanted.first.0 + wanted.count);
        let run_at = |lba: u64| {
            let found = self.design().trimmed_from(Lba(lba)).filter(|run| run.first.0 <= lba);
            found.filter(|run| run.is_of_a_kind_with(&wanted))
        };
        if let Some(run) = start.checked_sub(1).and_then(run_at) {
            start = run.first.0;
            end = end.max(run.first.0 + run.count);
        }
        if let Some(run) = run_at(end) {
            end = run.first.0 + run.count;
        }
        Run { first: Lba(start), count: end - start, ..wanted }
    }
}
