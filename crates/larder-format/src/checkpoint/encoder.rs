//! Gathers entries into the blocks of a checkpoint.
//!
//! Invariants: makes blocks in the order of [`BlockKind`], each full but the last of its kind, so
//! that [`super::checkpoint_bytes_max`] is exact.

use super::entries::{FingerprintEntry, FragmentEntry, MappingEntry, SlotEntry, ZeroRange};
use super::pages::DesignPage;
use super::{
    ALIGN, BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockIdentity, BlockKind, CHECKPOINT_HEADER_BYTES, CheckpointBlock,
    CheckpointCounts, CheckpointHeader, block_bytes,
};
use crate::error::{FormatError, Structure};
use crate::log::LogStart;

/// Gathers entries into full blocks, counts them, and makes the header.
///
/// Give all entries of one kind, then all entries of the next, in the order of [`BlockKind`]. Each
/// `push` may return the bytes of a finished block; write them one after the other, from
/// [`CHECKPOINT_HEADER_BYTES`] into the area on.
#[derive(Debug)]
pub struct CheckpointEncoder {
    flash_tag: u64,
    checkpoint_id: u64,
    log_start: LogStart,
    entry_seq_next: u64,
    counts: CheckpointCounts,
    block_count: u32,
    total_bytes: u64,
    open: CheckpointBlock,
}

macro_rules! push {
    ($(#[$doc:meta])* $name:ident, $kind:ident, $entry:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`FormatError::Invalid`] when a later kind was already given.
        pub fn $name(&mut self, entry: $entry) -> Result<Option<Vec<u8>>, FormatError> {
            let finished = self.open_kind(BlockKind::$kind)?;
            if let CheckpointBlock::$kind(entries) = &mut self.open {
                entries.push(entry);
            }
            Ok(finished)
        }
    };
}

impl CheckpointEncoder {
    /// Begins a checkpoint whose replay starts at `log_start`, with the entry `entry_seq_next`.
    pub fn new(flash_tag: u64, checkpoint_id: u64, log_start: LogStart, entry_seq_next: u64) -> Self {
        CheckpointEncoder {
            flash_tag,
            checkpoint_id,
            log_start,
            entry_seq_next,
            counts: CheckpointCounts::default(),
            block_count: 0,
            total_bytes: CHECKPOINT_HEADER_BYTES as u64,
            open: CheckpointBlock::new(BlockKind::Slots),
        }
    }

    push!(
        /// Adds a slot.
        push_slot, Slots, SlotEntry
    );
    push!(
        /// Adds a mapping.
        push_mapping, Mappings, MappingEntry
    );
    push!(
        /// Adds a fragment.
        push_fragment, Fragments, FragmentEntry
    );
    push!(
        /// Adds a zero range.
        push_zero_range, ZeroRanges, ZeroRange
    );
    push!(
        /// Adds a fingerprint.
        push_fingerprint, Fingerprints, FingerprintEntry
    );
    push!(
        /// Adds a page of the design.
        push_design_page, DesignPages, DesignPage
    );

    /// Returns how many entries were given so far, to compare with the layout's limits.
    pub fn counts(&self) -> CheckpointCounts {
        let mut counts = self.counts;
        counts.add(self.open.kind(), self.open.len() as u64);
        counts
    }

    /// Returns how many pages of the design still fit into an area of so many bytes.
    pub fn pages_that_fit(&self, area_bytes: u64) -> u64 {
        let open = if self.open.is_empty() { 0 } else { block_bytes(self.open.kind(), self.open.len()) as u64 };
        let left = area_bytes.saturating_sub(self.total_bytes + open);
        let (full, rest) = (left / BLOCK_BYTES_MAX as u64, left % BLOCK_BYTES_MAX as u64);
        let in_rest = rest / ALIGN as u64 * ALIGN as u64;
        let in_rest = in_rest.saturating_sub(BLOCK_HEADER_BYTES as u64) / DesignPage::BYTES as u64;
        full * BlockKind::DesignPages.entries_max() as u64 + in_rest
    }

    /// Returns the last block, if one is open, and the header, which is written after all blocks.
    pub fn finish(mut self) -> (Option<Vec<u8>>, CheckpointHeader) {
        let last = self.close(BlockKind::DesignPages);
        let header = CheckpointHeader {
            flash_tag: self.flash_tag,
            checkpoint_id: self.checkpoint_id,
            block_count: self.block_count,
            total_bytes: self.total_bytes,
            counts: self.counts,
            log_start: self.log_start,
            entry_seq_next: self.entry_seq_next,
        };
        (last, header)
    }

    /// Makes room for an entry of `kind`.
    fn open_kind(&mut self, kind: BlockKind) -> Result<Option<Vec<u8>>, FormatError> {
        let open = self.open.kind();
        if kind < open {
            let what = "its entries are not in the order of their kinds";
            return Err(FormatError::Invalid { structure: Structure::CheckpointBlock, what });
        }
        Ok(if kind > open || self.open.len() == kind.entries_max() { self.close(kind) } else { None })
    }

    /// Encodes the open block, unless it is empty, and opens one of `kind`.
    fn close(&mut self, kind: BlockKind) -> Option<Vec<u8>> {
        let block = core::mem::replace(&mut self.open, CheckpointBlock::new(kind));
        if block.is_empty() {
            return None;
        }
        let (flash_tag, checkpoint_id) = (self.flash_tag, self.checkpoint_id);
        let identity = BlockIdentity { flash_tag, checkpoint_id, block_index: self.block_count };
        let bytes = block.encode(&identity).expect("a block is closed before it overflows");
        self.counts.add(block.kind(), block.len() as u64);
        self.block_count += 1;
        self.total_bytes += bytes.len() as u64;
        Some(bytes)
    }
}
