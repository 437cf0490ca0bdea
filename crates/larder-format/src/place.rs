//! Where a record lies on the flash, and which sectors of a fragment are valid.

use crate::codes::Encoding;
use crate::layout::{CHUNK_BYTES_MAX, WEU_BYTES_MAX};

/// Which 512-byte sectors of a chunk a fragment holds: sector `i` is bit `i % 8` of byte `i / 8`. Enough for the
/// largest chunk.
pub type Sectors = [u8; 32];

/// A record on flash, with what is needed to read and verify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The WEU slot.
    pub slot: u32,
    /// The slot's generation when the record was written.
    pub generation: u32,
    /// The record's first byte, in bytes from the start of the WEU.
    pub offset: u32,
    /// Its stored length in bytes, after compression; at least 1, at most a chunk.
    pub stored_len: u32,
    /// [`crate::record_crc`] of the stored bytes.
    pub crc: u32,
    /// How it is stored.
    pub encoding: Encoding,
}

impl Place {
    /// What the record's checksum is bound to.
    pub fn identity(&self) -> crate::RecordIdentity {
        crate::RecordIdentity { slot: self.slot, generation: self.generation, offset: self.offset }
    }

    /// Whether its numbers can be those of any record: not empty, no longer than a chunk, inside a WEU.
    pub fn is_plausible(&self) -> bool {
        self.stored_len >= 1
            && self.stored_len <= CHUNK_BYTES_MAX
            && self.offset < WEU_BYTES_MAX
            && self.stored_len <= WEU_BYTES_MAX - self.offset
    }
}
