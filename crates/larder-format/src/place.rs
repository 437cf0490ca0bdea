//! The place of a record on the flash, and the valid sectors of a fragment.

use crate::codes::Encoding;
use crate::limits::{CHUNK_BYTES_MAX, WEU_BYTES_MAX};

/// The 512-byte sectors of a chunk that a fragment holds; enough for the largest chunk.
///
/// Sector `i` is bit `i % 8` of byte `i / 8`.
pub type Sectors = [u8; 32];

/// A record on flash, with all that a read and its check need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlashPlace {
    /// The slot.
    pub slot: u32,
    /// The slot's generation when the record was written.
    pub generation: u32,
    /// The record's first byte, in bytes from the start of the slot.
    pub offset: u32,
    /// Its stored length in bytes, after compression; at least 1, at most a chunk.
    pub stored_len: u32,
    /// [`crate::record_crc`] of the stored bytes.
    pub crc: u32,
    /// The form in which it is stored.
    pub encoding: Encoding,
}

impl FlashPlace {
    /// Returns the identity that the record's checksum covers.
    pub fn identity(&self) -> crate::RecordIdentity {
        crate::RecordIdentity { slot: self.slot, generation: self.generation, offset: self.offset }
    }

    /// Returns true if its numbers can belong to a record: not empty, at most a chunk, inside a
    /// slot.
    pub fn is_plausible(&self) -> bool {
        self.stored_len >= 1
            && self.stored_len <= CHUNK_BYTES_MAX
            && self.offset < WEU_BYTES_MAX
            && self.stored_len <= WEU_BYTES_MAX - self.offset
    }
}
