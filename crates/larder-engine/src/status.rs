//! Counts of an open cache, and the status that is made of them.
//!
//! Invariants: counters only grow while a cache is open; ratios are computed when asked for.
//!
//! It does not keep history, or print.

pub(crate) mod counters;

pub(crate) mod names;

use crate::{
    conditions::condition::{Condition, Severity},
    conditions::{self},
    designs,
    fence::Raised,
    recover::recovered::{Recovered, RecoveryReport},
    shared::Shared,
    state::State,
    wear::account::WearStatus,
};
pub use counters::CounterValues;
use larder_format::Superblock;
pub use names::{compression_name, mode_name};
use std::sync::Arc;

/// The state of a cache, for people and programs. Bytes and counts; ratios between 0 and 1, or 1
/// and more.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Status {
    /// The design.
    pub design: &'static str,
    /// The write mode.
    pub mode: &'static str,
    /// `ok`, or the most serious fault.
    pub health: String,
    /// The flash failed: the cache goes on without it.
    pub degraded: bool,
    /// All conditions, the most serious first.
    pub conditions: Vec<Condition>,
    /// Chunk size.
    pub chunk_bytes: u64,
    /// The kind of a slot of the flash: a `WEU`, a `chunk` or a `subchunk`.
    pub slot: &'static str,
    /// Size of a slot, of any kind.
    pub slot_bytes: u64,
    /// Compression of new chunks.
    pub compression: &'static str,
    /// Deduplication: duplicates are stored once.
    pub dedup: bool,
    /// Size of the FP index in percent of the flash's chunks.
    pub fp_index_percent: u8,
    /// Size of the flash device as the cache uses it.
    pub flash_bytes: u64,
    /// Bytes of flash in slots that are not free.
    pub flash_bytes_used: u64,
    /// Size of the volume.
    pub origin_bytes: u64,
    /// The URI of the origin.
    pub origin: String,
    /// Volume bytes that a read would find in the cache.
    pub logical_bytes_cached: u64,
    /// Bytes among these that are known to be zero.
    pub zero_bytes_cached: u64,
    /// Volume bytes that only the cache has.
    pub dirty_bytes: u64,
    /// Volume bytes trimmed that the origin is yet to be told of.
    pub trimmed_bytes: u64,
    /// Runs that hold these bytes.
    pub trimmed_runs: u64,
    /// Volume bytes trimmed that the cache keeps to itself.
    pub kept_trim_bytes: u64,
    /// Runs that these are in.
    pub kept_trim_runs: u64,
    /// Dirty chunks that cannot be read back.
    pub lost_chunks: u64,
    /// Hits among the chunks that reads touched.
    pub read_hit_ratio: f64,
    /// Chunks inserted for each chunk stored; zeroes left out.
    pub dedup_ratio: f64,
    /// Content bytes of stored records, whole chunks and parts, for each byte stored.
    pub compression_ratio: f64,
    /// All bytes written to flash.
    pub flash_bytes_written: u64,
    /// The wear budget, and the bytes of the last 24 hours.
    #[serde(flatten)]
    pub wear: WearStatus,
    /// Bytes that a plain cache, without deduplication and compression, would have written. They
    /// are the whole chunks, and the sectors of fragments, of the same insertions.
    pub plain_cache_bytes_written: u64,
    /// Bytes allocated by the LBA index.
    pub lba_index_ram_bytes: u64,
    /// Bytes allocated by the FP index.
    pub fp_index_ram_bytes: u64,
    /// Bytes allocated by the slot table.
    pub slot_table_ram_bytes: u64,
    /// Bytes allocated by the lists of dirty chunks, fragments and trimmed runs.
    pub dirty_list_ram_bytes: u64,
    /// Bytes that the kinds of zeroed parts of chunks may take. They are no part of the index.
    pub zeroed_parts_ram_bytes: u64,
    /// Bytes of index RAM in all.
    pub index_ram_bytes: u64,
    /// Entries of the LBA index.
    pub lba_index_entries: u64,
    /// Entries of the FP index.
    pub fp_index_entries: u64,
    /// Entries that the design's paper would have changed in its metadata area since the opening. A
    /// design without one has 0.
    pub metadata_entries_changed: u64,
    /// Free slots.
    pub slots_free: u64,
    /// All slots.
    pub slots: u64,
    /// Share of the metadata log in use, in percent.
    pub log_used_percent: u64,
    /// This opening found mappings of an earlier one.
    pub warm_restart: bool,
    /// The report of this opening.
    pub recovery: RecoveryReport,
    /// Counts since the opening.
    #[serde(flatten)]
    pub counts: CounterValues,
    /// Values that had another name.
    #[serde(flatten)]
    pub older: OlderNames,
}

/// Values of a status under the names that they had when any slot was called a WEU.
#[derive(Clone, Debug, serde::Serialize)]
pub struct OlderNames {
    /// [`Status::slot_bytes`].
    pub weu_bytes: u64,
    /// [`CounterValues::evicted_slots`].
    pub evicted_weus: u64,
}

/// Returns the most serious condition if the cache is degraded, or else `ok`; the status lists all.
fn health_of(conditions: &[Condition]) -> String {
    let first = conditions.first().filter(|first| first.severity == Severity::Degraded);
    first.map_or_else(|| "ok".to_owned(), |first| first.what.clone())
}

fn ratio(a: u64, b: u64, when_none: f64) -> f64 {
    if b == 0 { when_none } else { a as f64 / b as f64 }
}

impl Status {
    /// Returns the status of an unopened flash.
    ///
    /// `fence` is a fence that is up, as its keeper reports it, or the keeper's reason for not
    /// knowing.
    pub fn of_unopened(found: &Recovered, fence: Result<Option<Raised>, String>) -> Status {
        let mut status = Status::of(&found.superblock, &found.state, CounterValues::default(), &found.report);
        status.conditions.extend(conditions::of_unopened(found, fence));
        conditions::most_serious_first(&mut status.conditions);
        status.health = health_of(&status.conditions);
        status
    }

    /// Adds the conditions that the cache's owner knows.
    pub fn add_conditions(&mut self, more: Vec<Condition>) {
        self.conditions.extend(more);
        conditions::most_serious_first(&mut self.conditions);
        self.health = health_of(&self.conditions);
    }

    /// Returns the status of a state: of an open cache, with its counts, or of a recovery, without
    /// counts.
    fn of(superblock: &Superblock, state: &State, counts: CounterValues, recovery: &RecoveryReport) -> Status {
        let layout = &superblock.layout;
        let chunk = u64::from(layout.chunk_bytes);
        let mut conditions: Vec<Condition> = superblock.detached.then(conditions::detached).into_iter().collect();
        conditions.extend(conditions::of_state(state, &counts, chunk));
        let (stats, dirty) = (state.design().stats(), state.design().dirty_counts());
        // The counts were taken one after the other while other threads grew them.
        let with_content = counts.inserted_chunks.saturating_sub(counts.zero_chunks);
        let stored_chunks = with_content.saturating_sub(counts.duplicate_chunks);
        Status {
            design: designs::find(superblock.design).map_or("unknown", |design| design.name),
            mode: mode_name(state.mode.get()),
            health: health_of(&conditions),
            degraded: state.flash.is_failed(),
            conditions,
            chunk_bytes: chunk,
            slot: layout.store().slot_name(),
            slot_bytes: layout.slot_bytes.into(),
            compression: compression_name(superblock.compression),
            dedup: superblock.dedup,
            fp_index_percent: superblock.fp_index_percent,
            flash_bytes: layout.flash_bytes,
            flash_bytes_used: (u64::from(layout.slot_count) - stats.slots_free) * u64::from(layout.slot_bytes),
            origin_bytes: superblock.origin.size_bytes,
            origin: superblock.origin.uri.to_string(),
            logical_bytes_cached: stats.mapped_chunks * chunk,
            zero_bytes_cached: stats.zero_chunks * chunk,
            dirty_bytes: dirty.chunks * chunk,
            trimmed_bytes: dirty.run_chunks * chunk,
            trimmed_runs: dirty.runs,
            kept_trim_bytes: 0,
            kept_trim_runs: 0,
            lost_chunks: state.lost.count(),
            read_hit_ratio: ratio(counts.read_hits + counts.prefetch_hits, counts.read_chunks, 0.0),
            dedup_ratio: ratio(with_content, stored_chunks, 1.0),
            compression_ratio: ratio(counts.stored_content_bytes, counts.stored_bytes, 1.0),
            flash_bytes_written: counts.flash_segment_bytes_written
                + counts.flash_region_bytes_written
                + counts.flash_log_bytes_written
                + counts.flash_metadata_bytes_written,
            wear: WearStatus::of(superblock),
            plain_cache_bytes_written: counts.inserted_chunks * chunk + counts.fragment_bytes,
            lba_index_ram_bytes: stats.lba_index_ram_bytes,
            fp_index_ram_bytes: stats.fp_index_ram_bytes,
            slot_table_ram_bytes: stats.slot_table_ram_bytes,
            dirty_list_ram_bytes: stats.dirty_ram_bytes,
            zeroed_parts_ram_bytes: state.zeroed_parts.ram_bytes() as u64,
            index_ram_bytes: stats.ram_bytes(),
            lba_index_entries: stats.lba_index_entries,
            fp_index_entries: stats.fp_index_entries,
            metadata_entries_changed: stats.metadata_entries_changed,
            slots_free: stats.slots_free,
            slots: layout.slot_count.into(),
            log_used_percent: state.log.area().used_percent(),
            warm_restart: recovery.checkpoint_mappings + recovery.log_entries > 0,
            recovery: *recovery,
            counts,
            older: OlderNames { weu_bytes: layout.slot_bytes.into(), evicted_weus: counts.evicted_slots },
        }
    }
}

impl Shared {
    /// Returns the status now.
    pub fn status(self: &Arc<Self>, recovery: &RecoveryReport) -> Status {
        // The conditions show the result.
        self.look_at_devices();
        let (superblock, counts) = (self.superblock.get(), self.counters.values());
        let state = self.state.lock();
        let mut status = Status::of(&superblock, &state, counts, recovery);
        status.wear = self.wear_status();
        let kept = self.kept(&state);
        status.kept_trim_bytes = kept.chunks * status.chunk_bytes;
        status.kept_trim_runs = kept.runs;
        status.trimmed_bytes -= status.kept_trim_bytes;
        status.trimmed_runs -= kept.runs;
        status.conditions = self.conditions(&state, &counts);
        status.health = health_of(&status.conditions);
        status
    }
}
