//! The metadata log under replay: frames, and checkpoints when the log is half full.
//!
//! Entries are counted as they wait. A commit has them in frames as large as the engine's. A
//! metadata slot names a new address once the log has its mapping.
//!
//! Invariants: after a commit no entry waits.
//!
//! It does not keep the entries.

use super::Executor;
use larder_core::{
    history::PAGE_BYTES,
    limits::{CHECKPOINT_DUE_PERCENT, HELD_ADDRESSES_MAX, commit_due},
};
use larder_format::{
    CheckpointCounts,
    checkpoint::checkpoint_bytes_max,
    layout::SUPERBLOCK_OFFSETS,
    log::{ENTRIES_PER_FRAME_MAX, frame_bytes_for},
    superblock::SUPERBLOCK_BYTES,
};

impl Executor {
    pub(super) fn commit_if_many(&mut self) {
        let is_held_due = self.design.held_entries() as u64 >= commit_due(HELD_ADDRESSES_MAX as u64);
        if self.pending >= self.options.commit_entries || is_held_due {
            self.commit();
        }
    }

    /// Writes the waiting entries as frames of the log, and a checkpoint if one is due.
    pub(super) fn commit(&mut self) {
        while self.pending > 0 {
            let entries = self.pending.min(ENTRIES_PER_FRAME_MAX as u64);
            let bytes = frame_bytes_for(entries as usize, self.options.rules.sector_bytes) as u64;
            self.pending -= entries;
            self.log_used_bytes += bytes;
            self.traffic.flash_metadata_bytes_written += bytes;
            self.asked.frame(bytes);
            if self.pending == 0 {
                self.asked.flush_flash();
            }
        }
        self.design.committed(self.next_seq);
        self.write_changed_metadata();
        if self.log_used_bytes * 100 >= self.options.log_bytes * CHECKPOINT_DUE_PERCENT {
            self.log_used_bytes = 0;
            self.write_checkpoint();
        }
    }

    /// Writes a checkpoint, and the superblocks that name it.
    fn write_checkpoint(&mut self) {
        let history = self.design.whole_history().len().div_ceil(PAGE_BYTES);
        let is_bucketed = self.options.store.metadata_block_bytes > 0;
        // A history may have some of those that the design knows.
        self.design.begin_export();
        let mappings = match is_bucketed {
            true => self.design.dirty_counts().chunks,
            false => (0..self.design.export_pieces()).map(|at| self.design.export_mappings(at).len() as u64).sum(),
        };
        let pieces = std::iter::from_fn(|| self.design.next_fingerprints());
        let fingerprints = pieces.map(|piece| piece.len() as u64).sum();
        self.design.export_is_durable();
        let counts = CheckpointCounts {
            // Pages and the metadata region have those of buckets.
            slots: if is_bucketed { 0 } else { self.options.slot_count.into() },
            // A checkpoint leaves out mappings that it has no room for.
            mappings,
            fragments: 0,
            zero_ranges: self.design.dirty_counts().runs,
            fingerprints: if is_bucketed { 0 } else { fingerprints },
            design_pages: (self.design.page_count() + history) as u64,
        };
        let superblocks = (SUPERBLOCK_OFFSETS.len() * SUPERBLOCK_BYTES) as u64;
        let bytes = checkpoint_bytes_max(&counts);
        self.traffic.flash_metadata_bytes_written += bytes + superblocks;
        self.asked.checkpoint(bytes);
    }
}
