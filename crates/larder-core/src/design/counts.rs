//! What a design counts, of itself and of what is dirty.
//!
//! Invariants: counts of chunks are of now; bytes of RAM are those that are allocated.
//!
//! What it does not do: count requests; engine and simulator do.

use crate::ranges::Advisory;

/// How much the origin lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyCounts {
    /// Dirty chunks, fragments and zeroes included.
    pub chunks: u64,
    /// Of them, fragments.
    pub fragments: u64,
    /// Trimmed runs.
    pub runs: u64,
    /// Chunks in them.
    pub run_chunks: u64,
    /// Of the runs, those that the origin need not be told of.
    pub advisory: Advisory,
}

/// Counts of a design, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DesignStats {
    /// Chunks that a lookup would hit, zeroes and fragments included. A design that has not all it knows in RAM may count some
    /// that it would not, and by a part of its index where that is large.
    pub mapped_chunks: u64,
    /// Of them, zeroes.
    pub zero_chunks: u64,
    /// Of them, fragments.
    pub fragments: u64,
    /// Of them, dirty ones.
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
    /// Addresses that are remembered without being mapped, by a design that does.
    pub ghosts: u64,
    /// Entries of the paper's metadata area that decisions changed since the design was opened: what CacheDedup's cache would write
    /// (section 3.3). 0 of a design that has no such area.
    pub metadata_entries_changed: u64,
}

impl DesignStats {
    /// Bytes that all of it has allocated.
    pub fn ram_bytes(&self) -> u64 {
        self.lba_index_ram_bytes + self.fp_index_ram_bytes + self.slot_table_ram_bytes + self.dirty_ram_bytes
    }
}
