//! [`Cache`]: an open cache. It is a [`BlockDevice`] for front ends. It has async operations for
//! embedders that drive themselves, and blocking operations for other callers.
//!
//! Invariants: dropping a `Cache` without [`Cache::close`] is like a crash: background work stops,
//! and all flushed data is safe. Operations under way go on to the end of their step. An embedder
//! that opens the same devices again in one process first waits for them with [`Cache::abandon`],
//! or ends the runtime. Otherwise a late step could overwrite the writes of the next opening. A
//! close or an opening whose future is dropped goes on to its end while the cache is there. The
//! same holds for a detach or a mode switch that has stopped writes; before that, it leaves no
//! trace.
//!
//! It leaves all of the work to the verbs.

use crate::{
    config::policies::TrimPolicy,
    destage::reach::Reach,
    error::EngineError,
    recover::recovered::RecoveryReport,
    shared::Shared,
    status::Status,
    unflushed::waiting::{Asker, Audience},
};
use larder_core::{Lba, Lookup, SlotId, types::SECTOR_BYTES};
use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, SharedBuf, WriteFlags, ZeroFlags,
    driver::block_on,
};
use larder_format::WriteMode;
use std::sync::Arc;

/// Longest request in bytes.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// An open cache.
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
    info: DeviceInfo,
    recovery: RecoveryReport,
}

impl Cache {
    /// Returns the cache over its shared parts, with the report of its opening.
    pub(crate) fn over(shared: Arc<Shared>, recovery: RecoveryReport) -> Cache {
        let info = volume_info(&shared);
        Cache { shared, info, recovery }
    }

    /// Reads `buf.len()` bytes at `offset`; both are multiples of 512.
    pub fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.shared.read(offset, buf)
    }

    /// Writes `data` at `offset`; offset and length are multiples of 512.
    pub fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.shared.write(offset, data, flags)
    }

    /// Makes every completed write durable.
    pub async fn flush(&self) -> Result<(), EngineError> {
        let asker = Asker::new(Audience::Client);
        self.shared.answer(&asker, self.shared.flush(&asker).await)
    }

    /// Makes a range read as zeroes.
    pub async fn zero(&self, offset: u64, len: u64, flags: ZeroFlags) -> Result<(), EngineError> {
        self.shared.zero(offset, len, flags).await
    }

    /// Writes all dirty data to the origin, except trims that the cache keeps.
    ///
    /// Returns false if some of the data is still dirty. Returns false once after a flush of the
    /// origin failed: data that was written through may be lost there. Returns false while the
    /// cache is being closed: the close reports a failed flush.
    pub async fn destage_all(&self) -> bool {
        let destaged = !self.shared.is_closing() && self.shared.destage_all(Reach::Owed).await;
        let asker = Asker::new(Audience::Operator);
        // A failed flush that a close will report is left to it.
        let told = self.shared.refuse_if_draining().and_then(|()| self.shared.tell(&asker));
        self.shared.answer(&asker, told).is_ok() && destaged
    }

    /// Changes the write mode; see [`mode`](crate::mode).
    pub async fn set_mode(&self, mode: WriteMode) -> Result<(), EngineError> {
        self.shared.check_open()?;
        let asker = Asker::new(Audience::Operator);
        self.shared.answer(&asker, self.shared.set_mode(mode, &asker).await)
    }

    /// Writes a checkpoint now.
    pub async fn checkpoint(&self) -> Result<(), EngineError> {
        self.shared.check_open()?;
        let shared = self.shared.clone();
        self.shared.to_its_end(async move { shared.checkpoint(false).await }).await
    }

    /// Waits until the offered insertions are stored, without an eviction. It is for tests and
    /// benches that count.
    pub async fn wait_for_insertions(&self) {
        self.shared.wait_for_insertions().await;
    }

    /// Returns the write mode.
    pub fn mode(&self) -> WriteMode {
        self.shared.mode.get()
    }

    /// Returns the status now.
    pub fn status(&self) -> Status {
        self.shared.status(&self.recovery)
    }

    /// Returns the report of the opening.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Reads into a slice, as [`Cache::read`], and blocks the thread.
    ///
    /// # Errors
    /// Errors of the read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let buf = block_on(self.read(offset, IoBuf::new(out.len())))?;
        out.copy_from_slice(&buf);
        Ok(())
    }

    /// Writes a slice, as [`Cache::write`], and blocks the thread.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        block_on(self.write(offset, IoBuf::copy_of(data).freeze(), WriteFlags::default()))
    }

    /// Makes writes durable, as [`Cache::flush`], and blocks the thread.
    ///
    /// # Errors
    /// Errors of the flush.
    pub fn flush_blocking(&self) -> Result<(), EngineError> {
        block_on(self.flush())
    }

    /// Carries out a TRIM, and blocks the thread.
    ///
    /// # Errors
    /// Errors of the trim.
    pub fn trim(&self, offset: u64, len: u64) -> Result<(), EngineError> {
        block_on(self.shared.trim(offset, len))
    }

    /// Ends the cache in order, as [`Cache::close`], and blocks the thread.
    ///
    /// # Errors
    /// Errors of the close.
    pub fn close_blocking(&self) -> Result<(), EngineError> {
        block_on(self.close())
    }
}

/// Returns the description of the volume for front ends.
fn volume_info(shared: &Shared) -> DeviceInfo {
    DeviceInfo {
        name: shared.superblock.get().volume_name.to_string(),
        size_bytes: shared.geometry.volume_bytes,
        sector_bytes: SECTOR_BYTES as u32,
        physical_sector_bytes: 4096,
        optimal_io_bytes: shared.geometry.chunk_bytes as u32,
        request_bytes_max: REQUEST_BYTES_MAX,
        // A TRIM that the cache ignores leaves the old data.
        discard_zeroes: shared.tuning.trim != TrimPolicy::Keep,
        zeroes_fast: shared.mode.get() == WriteMode::Back || shared.origin.info().zeroes_fast,
        read_only: false,
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl BlockDevice for Cache {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.shared.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.shared.write(offset, data, flags)
    }

    fn flush(&self) -> IoFuture<()> {
        let shared = self.shared.clone();
        IoFuture::boxed(async move {
            let asker = Asker::new(Audience::Client);
            let flushed = shared.flush(&asker).await.map_err(|e| e.into_io(IoOp::Flush, 0, 0));
            shared.answer(&asker, flushed)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        let shared = self.shared.clone();
        IoFuture::boxed(
            async move { shared.trim(offset, len).await.map_err(|e| e.into_io(IoOp::Discard, offset, len)) },
        )
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        let shared = self.shared.clone();
        IoFuture::boxed(async move {
            let slow = shared.mode.get() != WriteMode::Back && !shared.origin.info().zeroes_fast;
            if flags.fast_only && slow {
                return Err(IoError::new(IoErrorKind::Unsupported, IoOp::WriteZeroes, offset, len));
            }
            shared.zero(offset, len, flags).await.map_err(|e| e.into_io(IoOp::WriteZeroes, offset, len))
        })
    }

    /// Returns the cache's knowledge of a range, or the origin's answer if the cache has none.
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        /// Limit of chunks that one answer covers.
        const CHUNKS_MAX: u64 = 1 << 14;
        let shared = self.shared.clone();
        IoFuture::boxed(async move {
            let geometry = &shared.geometry;
            let (first, count) = geometry.chunks_of(offset, len);
            let mut extents: Vec<Extent> = Vec::new();
            let mut unknown: Option<(u64, u64)> = None;
            let end = offset + len;
            {
                let state = shared.state.lock();
                for lba in (first.0..first.0 + count.min(CHUNKS_MAX)).map(Lba) {
                    let from = geometry.offset_of(lba).max(offset);
                    let to = (geometry.offset_of(lba) + geometry.chunk_bytes as u64).min(end);
                    let extent = match state.design().peek(lba) {
                        Lookup::Miss if extents.is_empty() => {
                            unknown = Some((unknown.map_or(from, |(start, _)| start), to));
                            continue;
                        }
                        _ if unknown.is_some() => break,
                        Lookup::Miss => break,
                        Lookup::Zero => Extent { len: to - from, hole: true, zero: true },
                        Lookup::Chunk { .. } | Lookup::Fragment { .. } => {
                            Extent { len: to - from, hole: false, zero: false }
                        }
                    };
                    match extents.last_mut() {
                        Some(last) if (last.hole, last.zero) == (extent.hole, extent.zero) => last.len += extent.len,
                        _ => extents.push(extent),
                    }
                }
            }
            match unknown {
                Some((from, to)) => {
                    let align = geometry.origin_align as u64;
                    if !from.is_multiple_of(align) || !to.is_multiple_of(align) {
                        return Ok(vec![Extent { len: to - from, hole: false, zero: false }]);
                    }
                    shared.origin.extents(from, to - from).await
                }
                None => Ok(extents),
            }
        })
    }
}

impl Cache {
    /// Returns the slot that holds the record of `lba`'s newest content, for tests.
    pub fn slot_of(&self, lba: Lba) -> Option<SlotId> {
        self.shared.state.lock().design().slot_of(lba)
    }
}
