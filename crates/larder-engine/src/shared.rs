//! What every operation of one open cache shares: devices, sizes, the locked [`State`], counters and signals.
//!
//! Invariants: `state` is locked for a decision, or for a look, and never across an await.

use crate::{
    codec::Codec,
    conditions::Opening,
    config::Tuning,
    destage::ZeroPace,
    error::EngineError,
    log_room::Reservations,
    mode::CurrentMode,
    pins::Pins,
    refused::Refusals,
    retune::Live,
    state::State,
    state_lock::StateLock,
    status::Counters,
    store::Store,
    stripes::Stripes,
    superblock::SuperblockKeeper,
    sync::{Notify, Turns},
    tell::Telling,
    tickets::{ManyTickets, Tickets},
};
use larder_core::{Lba, SlotId, types::SECTOR_BYTES};
use larder_device::{BlockDevice, IoError, IoErrorKind, IoFuture, IoOp, Runtime, watched::Watch};
use larder_format::Layout;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*},
    },
    time::Duration,
};

/// Sizes of an open cache, all in bytes unless they say otherwise.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Chunk size.
    pub chunk_bytes: usize,
    /// Size of the volume: the origin's.
    pub volume_bytes: u64,
    /// Number of chunks; the last may be shorter.
    pub chunk_count: u64,
    /// Alignment of requests to the flash device.
    pub flash_align: usize,
    /// Alignment of requests to the origin.
    pub origin_align: usize,
    /// The flash's tag in every structure.
    pub flash_tag: u64,
    /// Entries of the LBA index at most: what a checkpoint holds and the RAM budget affords.
    pub index_entries_max: u64,
    /// Fragments at most, by the same.
    pub fragments_max: u64,
    /// Trimmed runs at most, by the same.
    pub zero_ranges_max: u64,
    /// Where things are on flash.
    pub layout: Layout,
    /// And what they are there.
    pub(crate) store: &'static dyn Store,
}

impl Geometry {
    /// Bytes of the origin in chunk `lba`.
    pub fn chunk_len(&self, lba: Lba) -> usize {
        let start = lba.0 * self.chunk_bytes as u64;
        self.volume_bytes.saturating_sub(start).min(self.chunk_bytes as u64) as usize
    }
    /// Byte offset of chunk `lba` on the volume.
    pub fn offset_of(&self, lba: Lba) -> u64 {
        lba.0 * self.chunk_bytes as u64
    }

    /// First chunk and number of chunks that a byte range touches.
    pub fn chunks_of(&self, offset: u64, len: u64) -> (Lba, u64) {
        let chunk = self.chunk_bytes as u64;
        let first = offset / chunk;
        (Lba(first), (offset + len).div_ceil(chunk) - first)
    }

    /// A record takes a multiple of so many bytes of flash.
    pub fn record_step_bytes(&self) -> u32 {
        self.store.record_step_bytes(&self.layout)
    }

    /// Byte offset on flash of byte `offset` of `slot`.
    pub fn flash_offset(&self, slot: SlotId, offset: u32) -> u64 {
        self.layout.weu_offset + u64::from(slot.0) * u64::from(self.layout.weu_bytes) + u64::from(offset)
    }
}

/// Conditions that operations wait for.
#[derive(Default)]
pub struct Signals {
    /// A slot became free, or the index has room.
    pub room: Notify,
    /// A segment was written, or failed.
    pub segments: Notify,
    /// The metadata log moved on, or failed.
    pub committed: Notify,
    /// The committer has work.
    pub commit_wanted: Notify,
    /// The evictor has work.
    pub evict_wanted: Notify,
    /// The destager has work.
    pub destage_wanted: Notify,
    /// Something was destaged.
    pub destaged: Notify,
    /// Tasks in a long wait look again: the pace changed, or the cache is closing.
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
    /// The fence is up, or could not be put up.
    pub fence: Notify,
}

/// What is shared.
pub struct Shared {
    /// The cache device.
    pub flash: Arc<dyn BlockDevice>,
    /// The slow device.
    pub origin: Arc<dyn BlockDevice>,
    /// Background work, time, computing.
    pub runtime: Arc<dyn Runtime>,
    /// Sizes.
    pub geometry: Geometry,
    /// Fingerprints and compression.
    pub codec: Codec,
    /// Options of this opening; those that may change are in `live`.
    pub tuning: Tuning,
    /// Options that may change.
    pub live: Live,
    /// Decisions and everything that changes with them.
    pub state: StateLock<State>,
    /// What of it, of the pins and of the counts each thread has for itself.
    pub stripes: Stripes,
    /// The superblock and its twin.
    pub superblock: SuperblockKeeper,
    /// The write mode.
    pub mode: Arc<CurrentMode>,
    /// Switches of the write mode.
    pub mode_switches: Arc<Tickets>,
    /// Flushes of the origin, one at a time.
    pub origin_flush_turns: Turns,
    /// Flushes of the flash come one after the other.
    pub flash_flush_turns: Turns,
    /// Readers in each slot.
    pub pins: Pins,
    /// Order among writes and trims.
    pub tickets: Arc<Tickets>,
    /// The length limit of requests that zero ranges of the origin.
    pub(crate) zero_pace: ZeroPace,
    /// Order among destages.
    pub destage_tickets: Arc<Tickets>,
    /// Order among the writes into one slot, its trim first.
    pub slot_turns: Arc<Tickets>,
    /// Order among the reads and writes of one block of the metadata region.
    pub region_turns: ManyTickets,
    /// Metadata slots that were read, or are being read, for requests that did not use them yet.
    pub region_slots_ahead: AtomicUsize,
    /// One checkpoint at a time.
    pub checkpoint_turn: Arc<Tickets>,
    /// Counts.
    pub counters: Counters,
    /// The origin's unanswered requests, and whether it answers well.
    pub origin_watch: Arc<Watch>,
    /// Writes that the flash refused and that are tried again.
    pub refusals: Refusals,
    /// The time of the last failed read of the flash.
    pub flash_read_failed_at: Mutex<Option<Duration>>,
    /// The listener for conditions.
    pub telling: Option<Arc<Telling>>,
    /// An eviction left a destage behind, because the origin does not answer.
    pub evict_left_behind: AtomicBool,
    /// What is known from the opening.
    pub opening: Opening,
    /// Conditions.
    pub signals: Signals,
    /// Entries of the log for which writers have reserved room.
    pub reservations: Reservations,
    /// Writes in flight, to see whether a worker's help pays.
    pub writes_in_flight: AtomicU32,
    /// Of them, those that wait until something leaves the cache.
    pub waiting_for_room: AtomicU32,
    /// Set when the cache begins to close: new requests, and those that wait for room, are refused.
    pub draining: AtomicBool,
    /// Set when everything is written and the background tasks may end.
    pub closing: AtomicBool,
    /// Set while a closing cache still needs commits.
    pub finishing: AtomicBool,
    /// Background tasks that run.
    pub tasks: AtomicU32,
    /// Ends that are under way, or wait for their turn. They are none of the tasks, for they wait until there are none.
    pub ends: AtomicU32,
    /// The cache was dropped: but for an end that is under way, nothing more begins.
    pub abandoned: AtomicBool,
}

impl Shared {
    /// Refuses a request that no front end should have let through.
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

    /// Refuses what comes after the end. Asked again by who waited for a ticket, for closing holds one over everything.
    pub fn check_open(&self) -> Result<(), EngineError> {
        if self.is_closing() { Err(EngineError::Closed) } else { Ok(()) }
    }

    /// Refuses to begin, or to wait for room: what would make room may be gone, and closing must end all the same.
    pub fn refuse_if_draining(&self) -> Result<(), EngineError> {
        if self.draining.load(Acquire) { Err(EngineError::Closed) } else { Ok(()) }
    }

    /// Index entries that writers in flight may add after room was asked for; less for a tiny index.
    pub fn room_wanted(&self) -> u64 {
        (self.geometry.index_entries_max / 16).min(64)
    }

    /// Something was mapped, whether or not it took a slot. The evictor forgets what may be forgotten while there is room for as many
    /// more as are asked for, before somebody finds none: where addresses share what is stored, mappings may be short and slots not.
    pub fn keep_room(&self, state: &State) {
        if !state.design.has_room(2 * self.room_wanted()) {
            self.signals.evict_wanted.notify();
        }
    }

    /// Spawns a background task that is counted, so that closing can wait for it.
    pub fn spawn_counted(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.fetch_add(1, AcqRel);
        let guard = TaskGuard(self.clone());
        self.runtime.spawn(Box::pin(async move {
            let _guard = guard;
            task.await;
        }));
    }

    /// Runs an operation to its end, also where whoever waits for it gives up: what it has under way on a device must
    /// not outlive its tickets, or it would overtake what comes after it.
    ///
    /// # Errors
    /// The operation's; cancelled where the runtime is torn down; [`EngineError::Closed`] where the cache was dropped.
    pub async fn to_its_end<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        if self.abandoned.load(Acquire) && self.ends.load(Acquire) == 0 {
            return Err(EngineError::Closed);
        }
        let (completer, result) = IoFuture::pending();
        self.spawn_counted(async move { completer.complete(Ok(operation.await)) });
        result.await?
    }

    /// Whether the cache is closing.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }
}

struct TaskGuard(Arc<Shared>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, AcqRel);
        self.0.signals.stopped.notify();
        self.0.signals.commit_wanted.notify();
    }
}
