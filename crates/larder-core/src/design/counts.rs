//! The counts that a design keeps of itself and of dirty data.
//!
//! Invariants: counts of chunks are of now; bytes of RAM are the allocated ones.
//!
//! It leaves the count of requests to engine and simulator.

use crate::ranges::Advisory;

/// The amount of data that the origin lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyCounts {
    /// Dirty chunks, fragments and zeroes included.
    pub chunks: u64,
    /// Fragments among them.
    pub fragments: u64,
    /// Trimmed runs.
    pub runs: u64,
    /// Chunks in trimmed runs.
    pub run_chunks: u64,
    /// The runs that the origin need not be told of.
    pub advisory: Advisory,
}

/// The present counts of a design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DesignStats {
    /// Chunks that a lookup would hit, zeroes and fragments included.
    ///
    /// A design with a part of its state off RAM may count some that a lookup would miss. It
    /// estimates the count from a part of a large index.
    pub mapped_chunks: u64,
    /// Zeroes among them.
    pub zero_chunks: u64,
    /// Fragments among them.
    pub fragments: u64,
    /// Dirty chunks among them.
    pub dirty_chunks: u64,
    /// Chunks in trimmed runs that the origin was not told of.
    pub trimmed_chunks: u64,
    /// Entries of the LBA index, stale ones included.
    pub lba_index_entries: u64,
    /// Entries of the FP index, stale ones included.
    pub fp_index_entries: u64,
    /// Entries that the FP index evicted.
    pub fp_index_evictions: u64,
    /// Bytes that the LBA index has allocated.
    pub lba_index_ram_bytes: u64,
    /// Bytes that the FP index has allocated.
    pub fp_index_ram_bytes: u64,
    /// Bytes that the slot table has allocated.
    pub slot_table_ram_bytes: u64,
    /// Bytes that the lists of dirty chunks, fragments and trimmed runs have allocated.
    pub dirty_ram_bytes: u64,
    /// Slots that are free.
    pub slots_free: u64,
    /// Stale entries that sweeps removed.
    pub swept_entries: u64,
    /// Addresses that a design remembers without a mapping.
    pub ghosts: u64,
    /// Entries of the paper's metadata area that decisions changed since the design was opened.
    ///
    /// CacheDedup's cache would write them (section 3.3). 0 for a design without such an area.
    pub metadata_entries_changed: u64,
}

impl DesignStats {
    /// Returns the bytes that all of it has allocated.
    pub fn ram_bytes(&self) -> u64 {
        self.lba_index_ram_bytes + self.fp_index_ram_bytes + self.slot_table_ram_bytes + self.dirty_ram_bytes
    }
}
