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
    conditions::{condition::Opening, devices::Watches, missing_mark::MissingMark},
    config::Tuning,
    config::policies::{OriginChanged, TrimPolicy},
    designs,
    destage::reach::Reach,
    error::EngineError,
    evict::findings::EvictionFindings,
    fence::notes::Notes,
    fence::raising::behind_fence,
    geometry::Geometry,
    lifecycle::Lifecycle,
    log_room::reservations::Reservations,
    orders::Orders,
    origin_again::asking::AskingTask,
    origin_state,
    pins::Pins,
    recover::recovered::RecoveryReport,
    recover::{index_limits, new_design, recover_by},
    refused::refusals::Refusals,
    region::turns::RegionTurns,
    retune::live::{Live, Pace},
    shared::{Shared, Signals},
    state::State,
    state_lock::StateLock,
    status::Status,
    status::counters::Counters,
    stripes::Stripes,
    superblock::SuperblockKeeper,
    tell::telling::{Conditional, Telling},
    unflushed::waiting::{Asker, Audience},
    walk::Reader,
    write::load::WriteLoad,
};
use larder_codec::Codec;
use larder_core::{Lba, Lookup, SlotId, types::SECTOR_BYTES};
use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, Runtime, SharedBuf, WriteFlags,
    ZeroFlags,
    driver::block_on,
    runtime::compute,
    watched::{Watch, WatchedDevice},
};
use larder_format::{DirectoryPath, Superblock, WriteMode};
use std::{sync::Arc, time::Duration};

/// Longest request in bytes.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// An open cache.
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
    info: DeviceInfo,
    recovery: RecoveryReport,
}

impl Cache {
    /// Opens the cache on `flash` in front of `origin`, after a clean end or a crash alike.
    ///
    /// # Errors
    /// Faults of the flash or the origin; a refused device is not written. If a device or the
    /// keeper of the fence fails once the opening writes, the next opening finds the same cache.
    pub async fn open(
        flash: Arc<dyn BlockDevice>,
        origin: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        tuning: Tuning,
    ) -> Result<Cache, EngineError> {
        let watched = |device, watch: &Option<Arc<Watch>>| match watch {
            Some(watch) => (device, watch.clone()),
            None => WatchedDevice::over(device, runtime.clone()),
        };
        let (flash, flash_watch) = watched(flash, &tuning.flash_watch);
        let (origin, origin_watch) = watched(origin, &tuning.origin_watch);
        let hangs_after = tuning.origin_timeout;
        let watches = Watches { flash: Some(flash_watch.clone()), origin: origin_watch.clone(), hangs_after };
        let telling = Telling::begin(&tuning.listener, watches, &runtime);
        let reader = Reader { flash: &*flash, workers: Some(&*runtime), progress: tuning.progress.as_deref() };
        let found = recover_by(reader, Some(&*origin), &tuning).await?;
        found.superblock.check_writable()?;
        // The state that this opening read must survive a power cut.
        flash.flush().await?;
        origin.flush().await?;
        if found.superblock.detached {
            return Err(EngineError::Detached);
        }
        let emptied = behind_fence(&found, &tuning, &runtime).await?;
        let mut found = found;
        let mut origin_changed = None;
        if !emptied && origin_state::check(&found, &*origin, &tuning).await? {
            origin_changed = Some(tuning.origin_changed);
            if tuning.origin_changed == OriginChanged::Drop {
                origin_state::drop_copies(&*flash, found).await?;
                found = recover_by(reader, Some(&*origin), &tuning).await?;
            }
        }
        let superblock = found.superblock;
        let codec = Codec::new(
            superblock.hash_key,
            superblock.compression,
            tuning.zstd_level,
            superblock.dedup && superblock.fp_index_percent > 0,
        );
        let mut state = found.state;
        state.origin_flushes.note_durable();
        if emptied {
            state.empty(new_design(&superblock, found.geometry.chunk_count)?);
        }
        let design = designs::find(superblock.design)?;
        let limits = index_limits(&superblock, design, found.geometry.chunk_count);
        state.note_opened(design.name, &found.geometry, limits, design.store.packing(&found.geometry.layout));
        let opening = Opening { superblock_repaired: found.repair, emptied, origin_changed };
        let slots = superblock.layout.slot_count;
        let stripes = Stripes::new(tuning.read_stripes);
        let info = volume_info(&superblock, &found.geometry, &state, &*origin, tuning.trim);
        let shared = Arc::new(Shared {
            flash_watch,
            flash,
            origin,
            runtime,
            geometry: found.geometry,
            codec,
            mode: state.mode.clone(),
            state: StateLock::new(state, &stripes, tuning.share_after_reads),
            live: Live::new(Pace::from(&tuning)),
            tuning,
            superblock: SuperblockKeeper::new(superblock, found.repair),
            orders: Orders::default(),
            pins: Pins::new(slots, stripes.count()),
            zero_pace: Default::default(),
            region_turns: RegionTurns::new(stripes.count()),
            notes: Notes::default(),
            missing_mark: MissingMark::default(),
            counters: Counters::new(&stripes),
            stripes,
            origin_watch,
            asking: AskingTask::default(),
            refusals: Refusals::default(),
            telling,
            evictions: EvictionFindings::default(),
            opening,
            signals: Signals::default(),
            reservations: Reservations::default(),
            writes: WriteLoad::default(),
            life: Lifecycle::default(),
        });
        let cache = Cache { shared: shared.clone(), info, recovery: found.report };
        if let Some(telling) = &shared.telling {
            let cache: Arc<dyn Conditional> = shared.clone();
            telling.of_cache(Arc::downgrade(&cache));
        }
        // It runs to its end even if the caller drops the future: the cache has no owner then, and
        // is dropped.
        shared
            .to_its_end(async move {
                begin(&cache.shared, emptied).await?;
                Ok(cache)
            })
            .await
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

    /// Blocking [`Cache::read`] into a slice.
    ///
    /// # Errors
    /// Those of the read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let buf = block_on(self.read(offset, IoBuf::new(out.len())))?;
        out.copy_from_slice(&buf);
        Ok(())
    }

    /// Blocking [`Cache::write`] of a slice.
    ///
    /// # Errors
    /// Those of the write.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        block_on(self.write(offset, IoBuf::copy_of(data).freeze(), WriteFlags::default()))
    }

    /// Blocking [`Cache::flush`].
    ///
    /// # Errors
    /// Those of the flush.
    pub fn flush_blocking(&self) -> Result<(), EngineError> {
        block_on(self.flush())
    }

    /// Blocking TRIM.
    ///
    /// # Errors
    /// Those of the trim.
    pub fn trim(&self, offset: u64, len: u64) -> Result<(), EngineError> {
        block_on(self.shared.trim(offset, len))
    }

    /// Blocking [`Cache::close`].
    ///
    /// # Errors
    /// Those of the close.
    pub fn close_blocking(&self) -> Result<(), EngineError> {
        block_on(self.close())
    }
}

/// Returns the description of the volume for front ends.
fn volume_info(
    superblock: &Superblock,
    geometry: &Geometry,
    state: &State,
    origin: &dyn BlockDevice,
    trim: TrimPolicy,
) -> DeviceInfo {
    DeviceInfo {
        name: superblock.volume_name.to_string(),
        size_bytes: geometry.volume_bytes,
        sector_bytes: SECTOR_BYTES as u32,
        physical_sector_bytes: 4096,
        optimal_io_bytes: geometry.chunk_bytes as u32,
        request_bytes_max: REQUEST_BYTES_MAX,
        // A TRIM that the cache ignores leaves the old data.
        discard_zeroes: trim != TrimPolicy::Keep,
        zeroes_fast: state.mode.get() == WriteMode::Back || origin.info().zeroes_fast,
        read_only: false,
    }
}

/// Does the first writes of an opening, in order, and starts the background tasks.
async fn begin(shared: &Arc<Shared>, emptied: bool) -> Result<(), EngineError> {
    let place = shared.tuning.fence.0.as_ref().map_or_else(String::new, |keeper| keeper.place());
    let state_dir = DirectoryPath::new(place)?;
    if let Some(keeper) = shared.tuning.fence.0.clone() {
        compute(&*shared.runtime, move || keeper.prepare()).await?.map_err(EngineError::State)?;
    }
    let newest = shared.tuning.fence.0.as_ref().map_or(0, |keeper| keeper.newest_superblock());
    let (names_frames, durable_frame) = (shared.geometry.store.names_frames(), shared.durable_frame());
    // This repairs a damaged twin, too, because both are written.
    shared
        .superblock
        .update(&*shared.flash, &shared.counters, |superblock| {
            superblock.sequence = superblock.sequence.max(newest + 1);
            superblock.clean_shutdown = false;
            superblock.state_dir = state_dir;
            // From here on each write to a slot names a frame of the log. The bit keeps out
            // programs that do not know such names.
            superblock.log_positions |= names_frames;
            // The bit is durable before the log holds the first trim of the kind.
            superblock.kept_trims |= shared.tuning.trim != TrimPolicy::Zero;
            superblock.origin_state = None;
            // Recovery read the log up to this frame, and the flash was flushed since.
            superblock.note_durable_frame(durable_frame);
        })
        .await?;
    let mode = shared.mode.get();
    shared.note_mode(mode).await?;
    shared.spawn_counted(shared.clone().committer());
    // On coarser sectors the superblock records the position where the log goes on. That precedes
    // any write to log or slots; no entry waits yet. After a crash before it, the old log counts,
    // and no frame follows it.
    let grows = shared.geometry.layout.sector_bytes > shared.superblock.get().layout.sector_bytes;
    if grows && !emptied {
        shared.checkpoint(false).await?;
    }
    // The log's queue is empty, so a checkpoint needs no room in the log, however full it is. A
    // failed one is tried again.
    if !emptied && shared.log_is_crowded(&shared.state.lock()) {
        let _ = shared.checkpoint(false).await;
    }
    if emptied {
        shared.leave_fence().await?;
    }
    shared.name_a_frame().await?;
    shared.spawn_counted(shared.clone().evictor());
    shared.spawn_counted(shared.clone().destager());
    shared.spawn_counted(shared.clone().checkpointer());
    let interval = Duration::from_millis(shared.tuning.commit_interval_ms.max(1));
    let timer = Shared::commit_timer(Arc::downgrade(shared), shared.runtime.clone(), interval);
    shared.runtime.spawn(Box::pin(timer));
    Ok(())
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
                    let extent = match state.design.peek(lba) {
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
        self.shared.state.lock().design.slot_of(lba)
    }
}
