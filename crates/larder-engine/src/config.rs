//! Options: fixed ones of a new cache ([`CreateOptions`]), and those of an opening ([`Tuning`]).
//! Every queue and buffer of the engine has its maximum here or as a constant beside it.
//!
//! It does not read files or arguments.

pub(crate) mod policies;

use crate::decision_log::sink::DecisionLog;
use crate::fence::Keeper;
use crate::tell::telling::Listener;
use crate::walk::Progress;
use crate::wear::account::WearLimit;
use larder_core::{DESIGNS, limits::DIRTY_HIGH_PERCENT};
use larder_device::watched::Watch;
use larder_format::{Compression, DesignId, WriteMode};
pub use policies::{OriginChanged, TrimPolicy};
use std::sync::Arc;
use std::time::Duration;

/// The default time limit after which an origin with an unanswered request counts as hanging.
pub const ORIGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The options of a new cache.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Chunk size in bytes: a power of two, 4 KiB to 128 KiB.
    pub chunk_bytes: u32,
    /// WEU size in bytes: a power of two, 512 KiB to 4 MiB.
    pub slot_bytes: u32,
    /// Write mode.
    pub mode: WriteMode,
    /// Caching design.
    pub design: DesignId,
    /// Compression of chunks.
    pub compression: Compression,
    /// Deduplication: duplicate chunks are stored once.
    pub dedup: bool,
    /// The FP index ratio (Nitro §3.1): 100, 75, 50, 25 or 0 percent of a full index. A full index
    /// knows two chunks for each that the flash would hold raw, since they are stored compressed.
    pub fp_index_percent: u8,
    /// RAM budget of the indices in bytes (0: none): fewer chunks are cached if it binds. The least
    /// is 1 MiB.
    pub ram_budget_bytes: u64,
    /// Name of the volume, for people; at most 64 bytes.
    pub name: String,
    /// The origin's URI for later openings; at most 1,024 bytes.
    pub origin_uri: String,
    /// Identification of the origin beyond its size; 0 for none.
    pub origin_identity: u64,
    /// 16 random bytes that identify the flash.
    pub flash_uuid: [u8; 16],
    /// 32 random bytes that key the fingerprints.
    pub hash_key: [u8; 32],
}

/// The first design of the table.
const DESIGN_DEFAULT: DesignId = match DesignId::named(DESIGNS[0].name) {
    Some(id) => id,
    None => panic!("the format has no number for the first design"),
};

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            chunk_bytes: 8 << 10,
            slot_bytes: 2 << 20,
            mode: WriteMode::Back,
            design: DESIGN_DEFAULT,
            compression: Compression::Lz4,
            dedup: true,
            fp_index_percent: 100,
            ram_budget_bytes: 0,
            name: String::new(),
            origin_uri: String::new(),
            origin_identity: 0,
            flash_uuid: [0; 16],
            hash_key: [0; 32],
        }
    }
}

/// Options that may be chosen anew at each opening.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Destaging begins when this share of the flash is dirty, in percent, at the limited rate.
    pub dirty_low_percent: u8,
    /// From this share on destaging has no rate limit, in percent.
    pub dirty_high_percent: u8,
    /// From this share on writes wait for destaging, in percent.
    pub dirty_max_percent: u8,
    /// Rate limit of destaging in bytes a second; 0 for none.
    pub destage_rate_bytes_per_s: u64,
    /// Destage operations in flight at once.
    pub destage_depth: usize,
    /// Limit of the bytes of read data that wait for insertion; more is dropped.
    pub insert_queue_bytes_max: usize,
    /// Insertions of read data that are computed at once.
    pub insert_depth: usize,
    /// Bytes of prefetched data kept in RAM; 0 turns prefetching off.
    pub prefetch_bytes_max: usize,
    /// zstd level, if zstd compresses.
    pub zstd_level: i32,
    /// The keeper of the fence for writes past a failed flash; without one such writes are refused.
    pub fence: Keeper,
    /// The order to drop dirty data behind a raised fence, though the origin may lack that data.
    pub discard_fenced: bool,
    /// Open though the origin is larger than when the cache was made. It serves to destage all
    /// data, and detach.
    pub accept_grown_origin: bool,
    /// The action when another program changed the origin since the last orderly end.
    pub origin_changed: OriginChanged,
    /// The treatment of a TRIM.
    pub trim: TrimPolicy,
    /// Largest age of an entry that waits for the metadata log, in milliseconds. It is the age of
    /// the oldest clean mapping that a crash forgets.
    pub commit_interval_ms: u64,
    /// Every write and trim is over when it is durable, as with FUA. CacheDedup §3.3 treats dirty
    /// blocks and their metadata so. In write-back, simultaneous writes are committed together; in
    /// the other modes each goes to the origin with FUA. Without this option, a flush or FUA makes
    /// them durable, as on a disk with a volatile write cache.
    pub durable_writes: bool,
    /// Threads that can look up at once without disturbing one another. The number is rounded up to
    /// a power of two; 0 stands for as many as can run at once.
    pub read_stripes: usize,
    /// Read hits in a row, with no decision between them, from which on they share the lock; 0 for
    /// always. A decision after shared ones takes all stripes, which lasts about as long as a few
    /// hits.
    pub share_after_reads: u32,
    /// Origin or flash hang when a request has waited for its answer this long: a condition reports
    /// it. The request goes on waiting.
    pub origin_timeout: Duration,
    /// The watch that the caller has put before the origin. With `None`, the opening puts one
    /// there.
    pub origin_watch: Option<Arc<Watch>>,
    /// The watch that the caller has put before the flash; else as for the origin.
    pub flash_watch: Option<Arc<Watch>>,
    /// Limit of the wait of writes for which the flash has no space; after it the flash counts as
    /// failed. With `None`, they wait as long as the shortage lasts.
    pub flash_full_timeout: Option<Duration>,
    /// Limit of the wait of an orderly end for the origin's change mark.
    pub mark_wait_max: Duration,
    /// The budget of flash writes; with `None`, the one of the last opening goes on.
    pub wear: Option<WearLimit>,
    /// The time of the opening, in seconds since 1970, or 0 if it is unknown.
    ///
    /// The wear budget goes on from the last opening by it.
    pub wall_seconds: u64,
    /// The listener to conditions: the cache reports each one when it is raised and when it is
    /// over.
    pub listener: Listener,
    /// The progress of the recovery at opening.
    pub progress: Option<Arc<Progress>>,
    /// The listener to decisions, which gets the data that a simulator needs to decide the same.
    pub decisions: DecisionLog,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            dirty_low_percent: 10,
            dirty_high_percent: DIRTY_HIGH_PERCENT,
            dirty_max_percent: 70,
            destage_rate_bytes_per_s: 32 << 20,
            destage_depth: 8,
            insert_queue_bytes_max: 16 << 20,
            insert_depth: 4,
            prefetch_bytes_max: 8 << 20,
            zstd_level: 1,
            fence: Keeper::default(),
            discard_fenced: false,
            accept_grown_origin: false,
            origin_changed: OriginChanged::Refuse,
            trim: TrimPolicy::default(),
            commit_interval_ms: 1000,
            durable_writes: false,
            read_stripes: 0,
            share_after_reads: 8,
            origin_timeout: ORIGIN_TIMEOUT,
            origin_watch: None,
            flash_watch: None,
            flash_full_timeout: None,
            mark_wait_max: Duration::from_secs(5),
            wear: None,
            wall_seconds: 0,
            listener: Listener::default(),
            progress: None,
            decisions: DecisionLog::default(),
        }
    }
}
