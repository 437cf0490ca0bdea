//! Opening: a cache on a flash in front of an origin, after a clean end and a crash alike.
//!
//! In order: (1) to (3) The state is recovered, without a write ([`recover`](crate::recover), which
//! lists all steps). (4) Both devices are flushed. Then the opening is refused, or finds out which
//! content it must drop. It drops all content behind a fence, and clean copies if another program
//! changed the origin. (5) The first write rewrites both twins. It repairs a damaged twin, and
//! removes the mark of an orderly end. (6) A checkpoint follows on coarser sectors, over mappings
//! that could not be read, and behind a fence, which then goes down. The background tasks start as
//! they are needed.
//!
//! Invariants: an opening that is refused changes nothing, but for copies that it was told to drop.
//! If a later step fails, the next opening finds the same cache.
//!
//! It does not read the structures on flash.

use crate::{
    cache::Cache,
    conditions::{condition::Opening, devices::Watches, missing_mark::MissingMark},
    config::Tuning,
    config::policies::{OriginChanged, TrimPolicy},
    designs,
    error::EngineError,
    evict::findings::EvictionFindings,
    fence::notes::Notes,
    fence::raising::behind_fence,
    lifecycle::Lifecycle,
    log_room::reservations::Reservations,
    orders::Orders,
    origin_again::asking::AskingTask,
    origin_state::{self, Change},
    pins::Pins,
    recover::recovered::Recovered,
    recover::{index_limits, new_design, recover_by},
    refused::refusals::Refusals,
    region::turns::RegionTurns,
    retune::live::{Live, Pace},
    room::Room,
    shared::{Shared, Signals},
    state_lock::StateLock,
    status::counters::Counters,
    stripes::Stripes,
    superblock::SuperblockKeeper,
    tell::telling::{Conditional, Telling},
    walk::Reader,
    wear::{account::WearAccount, metered::MeteredDevice},
    write::load::WriteLoad,
};
use larder_codec::Codec;
use larder_device::{
    BlockDevice, Runtime,
    runtime::compute,
    watched::{Watch, WatchedDevice},
};
use larder_format::{DirectoryPath, Superblock};
use std::{sync::Arc, time::Duration};

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
        let devices = Devices::watched(flash, origin, runtime, &tuning);
        let telling = devices.begin_telling(&tuning);
        let found = devices.find(&tuning).await?;
        let recovery = found.recovered.report;
        let shared = devices.share(found, tuning, telling)?;
        if let Some(telling) = &shared.telling {
            let cache: Arc<dyn Conditional> = shared.clone();
            telling.of_cache(Arc::downgrade(&cache));
        }
        let cache = Cache::over(shared.clone(), recovery);
        // It runs to its end even if the caller drops the future: the cache has no owner then, and
        // is dropped.
        shared
            .to_its_end(async move {
                begin(cache.shared()).await?;
                Ok(cache)
            })
            .await
    }
}

/// The devices of an opening, under watch, and its runtime.
struct Devices {
    flash: Arc<dyn BlockDevice>,
    flash_watch: Arc<Watch>,
    origin: Arc<dyn BlockDevice>,
    origin_watch: Arc<Watch>,
    runtime: Arc<dyn Runtime>,
}

/// The cache that an opening found.
struct FoundCache {
    recovered: Recovered,
    opening: Opening,
}

impl Devices {
    /// Puts the devices under watch, unless the tuning has their watches.
    fn watched(
        flash: Arc<dyn BlockDevice>,
        origin: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        tuning: &Tuning,
    ) -> Devices {
        let watched = |device, watch: &Option<Arc<Watch>>| match watch {
            Some(watch) => (device, watch.clone()),
            None => WatchedDevice::over(device, runtime.clone()),
        };
        let (flash, flash_watch) = watched(flash, &tuning.flash_watch);
        let (origin, origin_watch) = watched(origin, &tuning.origin_watch);
        Devices { flash, flash_watch, origin, origin_watch, runtime }
    }

    /// Begins to tell the listener conditions: first those of the devices alone.
    fn begin_telling(&self, tuning: &Tuning) -> Option<Arc<Telling>> {
        let watches = Watches {
            flash: Some(self.flash_watch.clone()),
            origin: self.origin_watch.clone(),
            hangs_after: tuning.origin_timeout,
        };
        Telling::begin(&tuning.listener, watches, &self.runtime)
    }

    /// Recovers the state, without a write to the flash.
    async fn recover(&self, tuning: &Tuning) -> Result<Recovered, EngineError> {
        let workers = Some(&*self.runtime);
        let reader = Reader { flash: &*self.flash, workers, progress: tuning.progress.as_deref() };
        recover_by(reader, Some(&*self.origin), tuning).await
    }

    /// Recovers the state, refuses a cache that must not be opened, and finds out which content to
    /// drop.
    async fn find(&self, tuning: &Tuning) -> Result<FoundCache, EngineError> {
        // (1) to (3)
        let mut recovered = self.recover(tuning).await?;
        recovered.superblock.check_writable()?;
        // (4) The state that this opening read must survive a power cut.
        self.flash.flush().await?;
        self.origin.flush().await?;
        if recovered.superblock.detached {
            return Err(EngineError::Detached);
        }
        let emptied = behind_fence(&recovered, tuning, &self.runtime).await?;
        let (repair, mut report) = (recovered.repair, recovered.report);
        let mut origin_changed = None;
        if !emptied {
            let check = origin_state::check(&recovered, &*self.origin, tuning).await?;
            origin_changed = check.action;
            report.origin_is_unchanged = check.change == Change::Absent;
        }
        if origin_changed == Some(OriginChanged::Drop) {
            origin_state::drop_copies(&*self.flash, recovered).await?;
            recovered = self.recover(tuning).await?;
        }
        recovered.report = report;
        recovered.state.origin_flushes.note_durable();
        if emptied {
            recovered.state.empty(new_design(&recovered.superblock, recovered.geometry.chunk_count)?);
        }
        let is_incomplete = recovered.is_incomplete;
        let opening = Opening { superblock_repaired: repair, emptied, origin_changed, is_incomplete };
        Ok(FoundCache { recovered, opening })
    }

    /// Returns the shared parts of the cache that was found.
    fn share(
        self,
        found: FoundCache,
        tuning: Tuning,
        telling: Option<Arc<Telling>>,
    ) -> Result<Arc<Shared>, EngineError> {
        let Devices { flash, flash_watch, origin, origin_watch, runtime } = self;
        let FoundCache { recovered: Recovered { superblock, repair, state, geometry, .. }, opening } = found;
        let design = designs::find(superblock.design)?;
        let limits = index_limits(&superblock, design, geometry.chunk_count);
        state.note_opened(design.name, &geometry, limits, design.store.packing(&geometry.layout));
        let stripes = Stripes::new(tuning.read_stripes);
        let wear = Arc::new(WearAccount::new(&superblock, tuning.wear, tuning.wall_seconds)?);
        Ok(Arc::new(Shared {
            flash_watch,
            flash: MeteredDevice::over(flash, &wear, &runtime),
            origin,
            runtime,
            codec: codec(&superblock, &tuning),
            mode: state.mode.clone(),
            wear,
            state: StateLock::new(state, &stripes, tuning.share_after_reads),
            live: Live::new(Pace::from(&tuning)),
            tuning,
            pins: Pins::new(geometry.layout.slot_count, stripes.count()),
            room: Room::new(geometry.store.served_by_slot(&geometry.layout)),
            geometry,
            superblock: SuperblockKeeper::new(superblock, repair),
            orders: Orders::default(),
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
        }))
    }
}

/// Returns the codec of the cache that `superblock` describes.
fn codec(superblock: &Superblock, tuning: &Tuning) -> Codec {
    let has_fingerprints = superblock.dedup && superblock.fp_index_percent > 0;
    Codec::new(superblock.hash_key, superblock.compression, tuning.zstd_level, has_fingerprints)
}

/// Does the first writes of an opening, in order, and starts the background tasks.
async fn begin(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let emptied = shared.opening.emptied;
    // (5)
    mark_as_open(shared).await?;
    shared.spawn_counted(shared.clone().wear_keeper());
    let mode = shared.mode.get();
    shared.note_mode(mode).await?;
    shared.spawn_counted(shared.clone().committer());
    // (6) On coarser sectors the superblock records the position where the log goes on. That
    // precedes any write to log or slots; no entry waits yet. After a crash before it, the old log
    // counts, and no frame follows it.
    //
    // It also keeps a forgotten mapping from a later opening. A change of its chunk logs nothing.
    let grows = shared.geometry.layout.sector_bytes > shared.superblock.get().layout.sector_bytes;
    if (grows || shared.opening.is_incomplete) && !emptied {
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

/// Prepares the keeper's place, and writes both superblock twins for the first time. That repairs a
/// damaged twin, too.
async fn mark_as_open(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let keeper = &shared.tuning.fence.0;
    let state_dir = DirectoryPath::new(keeper.as_ref().map_or_else(String::new, |keeper| keeper.place()))?;
    if let Some(keeper) = keeper.clone() {
        compute(&*shared.runtime, move || keeper.prepare()).await?.map_err(EngineError::State)?;
    }
    let newest = keeper.as_ref().map_or(0, |keeper| keeper.newest_superblock());
    let (names_frames, durable_frame) = (shared.geometry.store.names_frames(), shared.durable_frame());
    shared
        .write_superblock(|superblock| {
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
        .await
}
