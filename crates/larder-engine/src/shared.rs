//! The parts that all operations of an open cache share: devices, sizes, [`State`], counters,
//! signals.
//!
//! Invariants: `state` is locked for a decision, or for a look, and never across an await.

use crate::{
    conditions::condition::Opening, conditions::missing_mark::MissingMark, config::Tuning, destage::pace::ZeroPace,
    error::EngineError, evict::findings::EvictionFindings, fence::notes::Notes, geometry::Geometry,
    lifecycle::Lifecycle, log_room::reservations::Reservations, mode::current::CurrentMode, orders::Orders,
    origin_again::asking::AskingTask, pins::Pins, refused::refusals::Refusals, region::turns::RegionTurns,
    retune::live::Live, room::Room, state::State, state_lock::StateLock, status::counters::Counters, stripes::Stripes,
    superblock::SuperblockKeeper, sync::Notify, tell::telling::Telling, wear::account::WearAccount,
    write::load::WriteLoad,
};
use larder_codec::Codec;
use larder_core::types::SECTOR_BYTES;
use larder_device::{BlockDevice, IoError, IoErrorKind, IoFuture, IoOp, Runtime, watched::Watch};
use std::sync::Arc;

/// Conditions that operations wait for.
#[derive(Default)]
pub struct Signals {
    /// The index has room.
    pub index_room: Notify,
    /// A segment was written, or its write failed.
    pub segments: Notify,
    /// The metadata log moved on, or its write failed.
    pub committed: Notify,
    /// The committer has work.
    pub commit_wanted: Notify,
    /// The evictor has work.
    pub evict_wanted: Notify,
    /// The destager has work.
    pub destage_wanted: Notify,
    /// A writer waits at a limit, or much is dirty: the destage rate holds no longer.
    pub destage_urged: Notify,
    /// A chunk or a run was destaged.
    pub destaged: Notify,
    /// The pace changed, or the cache is closing: tasks in a long wait look again.
    pub pace: Notify,
    /// A checkpoint is due.
    pub checkpoint_wanted: Notify,
    /// A checkpoint ended.
    pub checkpointed: Notify,
    /// A prefetch ended.
    pub prefetched: Notify,
    /// The insertion queue changed.
    pub inserted: Notify,
    /// Writers gave back room in the log that they had reserved.
    pub reserved: Notify,
    /// A background task ended.
    pub stopped: Notify,
    /// The fence is up, or the attempt failed.
    pub fence: Notify,
}

/// The parts of an open cache that its operations share.
pub struct Shared {
    /// The cache device.
    pub(crate) flash: Arc<dyn BlockDevice>,
    /// The slow device.
    pub(crate) origin: Arc<dyn BlockDevice>,
    /// Background work, time and computing.
    pub(crate) runtime: Arc<dyn Runtime>,
    /// Sizes.
    pub(crate) geometry: Geometry,
    /// Fingerprints and compression.
    pub(crate) codec: Codec,
    /// Options of this opening; `live` has those that may change.
    pub(crate) tuning: Tuning,
    /// Options that may change.
    pub(crate) live: Live,
    /// Decisions and everything that changes with them.
    pub(crate) state: StateLock<State>,
    /// Parts of the state lock, the pins and the counters, one for each thread.
    pub(crate) stripes: Stripes,
    /// The superblock and its twin.
    pub(crate) superblock: SuperblockKeeper,
    /// The wear budget.
    pub(crate) wear: Arc<WearAccount>,
    /// The write mode.
    pub(crate) mode: Arc<CurrentMode>,
    /// Orders among operations.
    pub(crate) orders: Orders,
    /// Readers in each slot.
    pub(crate) pins: Pins,
    /// The length limit of requests that zero ranges of the origin.
    pub(crate) zero_pace: ZeroPace,
    /// Order among the reads and writes of one block of the metadata region.
    pub(crate) region_turns: RegionTurns,
    /// The notes of the superblock's number.
    pub(crate) notes: Notes,
    /// The missing note of the origin's mark.
    pub(crate) missing_mark: MissingMark,
    /// Counts.
    pub(crate) counters: Counters,
    /// The origin's unanswered requests and its health.
    pub(crate) origin_watch: Arc<Watch>,
    /// The task that asks the failing origin again.
    pub(crate) asking: AskingTask,
    /// Writes that the flash refused and the cache tries again.
    pub(crate) refusals: Refusals,
    /// The listener for conditions.
    pub(crate) telling: Option<Arc<Telling>>,
    /// Findings of the last evictions.
    pub(crate) evictions: EvictionFindings,
    /// Findings of the opening.
    pub(crate) opening: Opening,
    /// Conditions.
    pub(crate) signals: Signals,
    /// Records that wait for a slot.
    pub(crate) room: Room,
    /// Entries of the log for which writers have reserved room.
    pub(crate) reservations: Reservations,
    /// Writes under way.
    pub(crate) writes: WriteLoad,
    /// The flash's unanswered requests, and its standing.
    pub(crate) flash_watch: Arc<Watch>,
    /// The steps from the opening to the end.
    pub(crate) life: Lifecycle,
}

impl Shared {
    /// Returns an error for a request that no front end should have let through.
    pub fn check_request(&self, op: IoOp, offset: u64, len: u64) -> Result<(), EngineError> {
        let sector = SECTOR_BYTES as u64;
        if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            return Err(IoError::new(IoErrorKind::Unaligned, op, offset, len).into());
        }
        if offset.checked_add(len).is_none_or(|end| end > self.geometry.volume_bytes) {
            return Err(IoError::new(IoErrorKind::OutOfRange, op, offset, len).into());
        }
        self.check_open()
    }

    /// Returns an error after the close. A request asks again once it has its ticket, because the
    /// close holds a ticket over all chunks.
    pub fn check_open(&self) -> Result<(), EngineError> {
        if self.is_closing() { Err(EngineError::Closed) } else { Ok(()) }
    }

    /// Returns an error if the cache is closing. Room may never come then, and the close must still
    /// end.
    pub fn refuse_if_draining(&self) -> Result<(), EngineError> {
        if self.life.is_draining() { Err(EngineError::Closed) } else { Ok(()) }
    }

    /// Returns the index entries that writers in flight may add after a look for room. A tiny index
    /// has fewer.
    pub fn room_wanted(&self) -> u64 {
        (self.geometry.index_entries_max / 16).min(64)
    }

    /// Wakes the evictor if the index has little room left after a mapping.
    ///
    /// The evictor forgets mappings while there is room for as many more as are asked for, before a
    /// writer finds none. If addresses share records, the index may fill up before the slots do.
    pub fn keep_room(&self, state: &State) {
        if !state.design().has_room(2 * self.room_wanted()) {
            self.signals.evict_wanted.notify();
        }
    }

    /// Spawns a counted background task, for which the close waits.
    pub fn spawn_counted(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.life.task_begins();
        let guard = TaskGuard(self.clone());
        self.runtime.spawn(Box::pin(async move {
            let _guard = guard;
            task.await;
        }));
    }

    /// Runs an operation to its end, even if its caller drops the future.
    ///
    /// Its device requests must not outlive its tickets, or they would overtake later operations.
    ///
    /// # Errors
    /// Errors of the operation; cancelled if the runtime is torn down; [`EngineError::Closed`]
    /// after the cache was dropped.
    pub async fn to_its_end<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        if !self.life.admits_work() {
            return Err(EngineError::Closed);
        }
        let (completer, result) = IoFuture::pending();
        self.spawn_counted(async move { completer.complete(Ok(operation.await)) });
        result.await?
    }

    /// Returns whether the cache is closing.
    pub fn is_closing(&self) -> bool {
        self.life.is_closing()
    }
}

struct TaskGuard(Arc<Shared>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.life.task_is_over();
        self.0.signals.stopped.notify();
        self.0.signals.commit_wanted.notify();
    }
}
