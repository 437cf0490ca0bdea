//! The write: takes a range ticket and goes the way of the write mode. Write-through and
//! write-around are here, write-back is in [`write_back`](crate::write_back).
//!
//! Write-through, in order: (1) The chunks' mappings are forgotten, durably if a durable mapping
//! may exist. (2) The origin is written. (3) The write is acknowledged. (4) The new chunks are
//! offered to insertion. Their mappings become durable only after a flush of the origin. A crash
//! between (1) and (2) leaves the old data on the origin and nothing in the cache. A crash between
//! (2) and (4) leaves the new data. Before the origin's flush it leaves the old or the new data, as
//! the origin kept it. No stale copy can come back. Write-around is the same without (4).
//!
//! It does not decide where chunks go.

pub(crate) mod load;

use crate::{decision_log::sink::LookupCause, error::EngineError, fill::insertion::Reason, shared::Shared};
use larder_core::{Lba, Lookup};
use larder_device::{IoBuf, IoError, IoErrorKind, IoFuture, IoOp, SharedBuf, WriteFlags};
use larder_format::WriteMode;
use std::sync::{Arc, atomic::Ordering::*};

impl Shared {
    /// Writes `data` to the volume at `offset`.
    pub fn write(self: &Arc<Self>, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let this = self.clone();
        IoFuture::boxed(async move {
            let len = data.len() as u64;
            this.write_any(offset, data, flags).await.map_err(|e| e.into_io(IoOp::Write, offset, len))
        })
    }

    /// Writes `data` to the volume at `offset`, in the mode that is set when its ticket is granted.
    ///
    /// # Errors
    /// Range and alignment; those of the devices; [`EngineError::FlashFailed`] in write-back.
    pub async fn write_any(
        self: &Arc<Self>,
        offset: u64,
        data: SharedBuf,
        flags: WriteFlags,
    ) -> Result<(), EngineError> {
        let flags = WriteFlags { fua: flags.fua || self.live.durable_writes() };
        self.check_request(IoOp::Write, offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let (first, count) = self.geometry.chunks_of(offset, data.len() as u64);
        let ticket = self.orders.change(first, count).granted().await;
        self.check_open()?;
        let mode = self.mode_of_change(first, count).await?;
        self.counters.writes.fetch_add(1, Relaxed);
        self.counters.write_bytes.fetch_add(data.len() as u64, Relaxed);
        if mode == WriteMode::Back {
            let written = {
                let _counted = self.writes.begin();
                self.write_back(offset, &data).await
            };
            match written {
                Ok(seq) if flags.fua => return self.make_durable(ticket, (first, count), seq + 1).await,
                Ok(_) => return Ok(()),
                Err(EngineError::FlashFailed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let ticket = Arc::new(ticket);
        self.change_origin(flags.fua, || {
            let (this, data, ticket) = (self.clone(), data.clone(), ticket.clone());
            async move {
                let _ticket = ticket;
                if mode != WriteMode::Back {
                    match this.write_to_origin(offset, data.clone(), flags, mode).await {
                        Err(EngineError::FlashFailed(_)) => {}
                        written => return written,
                    }
                }
                this.write_past_flash(offset, data, flags).await
            }
        })
        .await
    }

    async fn write_to_origin(
        self: &Arc<Self>,
        offset: u64,
        data: SharedBuf,
        flags: WriteFlags,
        mode: WriteMode,
    ) -> Result<(), EngineError> {
        let (first, count) = self.geometry.chunks_of(offset, data.len() as u64);
        // A partial chunk merges with its cached copy and so stays cached. The copy is read before
        // its mapping is forgotten.
        let mut whole = Vec::new();
        self.state.lock().flash.check()?;
        if mode == WriteMode::Through {
            for lba in (first.0..first.0 + count).map(Lba) {
                if let Some(chunk) = self.merge_for_write_through(lba, offset, &data).await {
                    whole.push((lba, chunk));
                }
            }
        }
        let change = self.begin_change(offset, data.len() as u64, mode == WriteMode::Through).await?;
        self.write_origin(offset, data, flags).await?;
        change.succeeded();
        let versions: Vec<u32> = {
            let state = self.state.lock();
            whole.iter().map(|&(lba, _)| state.versions.get(lba)).collect()
        };
        for ((lba, chunk), version) in whole.into_iter().zip(versions) {
            self.offer(lba, version, chunk, Reason::Clean);
        }
        Ok(())
    }

    /// Returns the content of chunk `lba` once `data` is written at `offset`, if the cache can know
    /// it.
    async fn merge_for_write_through(self: &Arc<Self>, lba: Lba, offset: u64, data: &SharedBuf) -> Option<SharedBuf> {
        let start = self.geometry.offset_of(lba);
        let len = self.geometry.chunk_len(lba) as u64;
        let end = offset + data.len() as u64;
        if offset <= start && start + len <= end {
            let from = (start - offset) as usize;
            return Some(data.slice(from..from + len as usize));
        }
        self.confirm(lba).await;
        let held = {
            let mut state = self.state.lock();
            match self.lookup(&mut state, lba, LookupCause::Merge) {
                Lookup::Zero => None,
                Lookup::Chunk { place, .. } => Some(self.hold(&state, place)),
                _ => return None,
            }
        };
        let mut chunk = match held {
            None => IoBuf::zeroed(self.geometry.chunk_bytes),
            Some(held) => self.read_whole(lba, held).await.ok()??,
        };
        chunk.truncate(len as usize);
        let (from, to) = (offset.max(start), end.min(start + len));
        chunk[(from - start) as usize..(to - start) as usize]
            .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        Some(chunk.freeze())
    }

    /// Writes to the origin; reads and merges first if its sectors are coarser than the request.
    ///
    /// # Errors
    /// Errors of the origin.
    pub async fn write_origin(
        self: &Arc<Self>,
        offset: u64,
        data: SharedBuf,
        flags: WriteFlags,
    ) -> Result<(), IoError> {
        let align = self.geometry.origin_align as u64;
        let (from, to) = (offset / align * align, (offset + data.len() as u64).next_multiple_of(align));
        let data = if from == offset && to == offset + data.len() as u64 {
            data
        } else {
            let mut wide = self.read_origin(from, IoBuf::new((to - from) as usize)).await?;
            let skip = (offset - from) as usize;
            wide[skip..skip + data.len()].copy_from_slice(&data);
            wide.freeze()
        };
        self.counters.origin_writes.fetch_add(1, Relaxed);
        self.counters.origin_bytes_written.fetch_add(data.len() as u64, Relaxed);
        let result = self.origin.write(from, data, flags).await;
        // A failed write may have changed the origin, too.
        self.state.lock().origin_flushes.note_written();
        debug_assert!(!matches!(&result, Err(error) if error.kind == IoErrorKind::Unaligned));
        self.note_origin(&result);
        result
    }
}
