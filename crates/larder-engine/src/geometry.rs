//! The sizes of an open cache, and the ranges of chunks and sectors.
//!
//! Invariants: the sizes stay as they are while a cache is open.
//!
//! It does not read the layout from flash.

use crate::store::Store;
use larder_core::{Lba, SlotId, types::SECTOR_BYTES};
use larder_format::Layout;

/// Returns the first whole sector of a range of bytes, and the one behind its last.
pub fn sectors_of(from: usize, len: usize) -> (usize, usize) {
    (from / SECTOR_BYTES, (from + len) / SECTOR_BYTES)
}

/// Sizes of an open cache, in bytes unless a field says otherwise.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Chunk size.
    pub chunk_bytes: usize,
    /// Size of the volume, which is the origin's.
    pub volume_bytes: u64,
    /// Number of chunks; the last may be shorter.
    pub chunk_count: u64,
    /// Alignment of requests to the flash device.
    pub flash_align: usize,
    /// Alignment of requests to the origin.
    pub origin_align: usize,
    /// The flash's tag in every structure.
    pub flash_tag: u64,
    /// Limit of entries of the LBA index: a checkpoint holds them, and the RAM budget affords them.
    pub index_entries_max: u64,
    /// Limit of fragments, by the same.
    pub fragments_max: u64,
    /// Limit of trimmed runs, by the same.
    pub zero_ranges_max: u64,
    /// Places of the structures on flash.
    pub layout: Layout,
    /// The store of the design.
    pub(crate) store: &'static dyn Store,
}

impl Geometry {
    /// Returns the bytes of the origin in chunk `lba`.
    pub fn chunk_len(&self, lba: Lba) -> usize {
        let start = lba.0 * self.chunk_bytes as u64;
        self.volume_bytes.saturating_sub(start).min(self.chunk_bytes as u64) as usize
    }
    /// Returns the byte offset of chunk `lba` on the volume.
    pub fn offset_of(&self, lba: Lba) -> u64 {
        lba.0 * self.chunk_bytes as u64
    }

    /// Returns the first chunk and the number of chunks that a byte range touches.
    pub fn chunks_of(&self, offset: u64, len: u64) -> (Lba, u64) {
        let chunk = self.chunk_bytes as u64;
        let first = offset / chunk;
        (Lba(first), (offset + len).div_ceil(chunk) - first)
    }

    /// Returns the bytes of flash of which a record takes a multiple.
    pub fn record_step_bytes(&self) -> u32 {
        self.store.record_step_bytes(&self.layout)
    }

    /// Returns the byte offset on flash of byte `offset` of `slot`.
    pub fn flash_offset(&self, slot: SlotId, offset: u32) -> u64 {
        self.layout.slots_offset + u64::from(slot.0) * u64::from(self.layout.slot_bytes) + u64::from(offset)
    }
}
