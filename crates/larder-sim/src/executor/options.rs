//! The options of a cache under replay: its sizes, and the moments of its background work.
//!
//! It does not size a cache.

use super::store::StoreRules;
use crate::cache::WritePolicy;
use larder_core::packing::PackingRules;

/// The options of a cache.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorOptions {
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// Size of a slot in bytes, and of the parts around its records.
    pub rules: PackingRules,
    /// Slots.
    pub slot_count: u32,
    /// The facts of the store.
    pub store: StoreRules,
    /// Mappings at most.
    pub mappings_max: u64,
    /// Known fingerprints at most; 0 turns deduplication off.
    pub fp_entries_max: u64,
    /// Size of the metadata log in bytes.
    pub log_bytes: u64,
    /// Size of each of the two areas for checkpoints, which lie before the log, in bytes.
    pub checkpoint_area_bytes: u64,
    /// The moment when writes reach the origin.
    pub policy: WritePolicy,
    /// True if chunks are stored compressed.
    pub compress: bool,
    /// In write-back, the number of dirty chunks from which destaging begins.
    pub dirty_chunks_max: u64,
    /// Trimmed runs that a checkpoint holds.
    ///
    /// In write-back, destaging begins at half of them: from there on the engine's rate has no
    /// limit.
    pub zero_ranges_max: u64,
    /// Background entries are written to the log once so many wait; 1: when a slot is full.
    pub commit_entries: u64,
}

impl ExecutorOptions {
    /// Returns the packing of the slots that are opened for a record of so many bytes.
    pub(super) fn rules_for(&self, stored_bytes: u32) -> PackingRules {
        let slot = self.rules.slot_bytes;
        let slot_bytes = if self.store.one_record { stored_bytes.next_multiple_of(slot.max(1)) } else { slot };
        PackingRules { slot_bytes, ..self.rules }
    }
}
