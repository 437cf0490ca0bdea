//! One chunk of a client's read.
//!
//! Invariants: its bytes lie in the reply once.
//!
//! It does not read.

use crate::decision_log::sink::LookupCause;
use larder_core::{Lba, types::SECTOR_BYTES};

/// One chunk of a request: the bytes of the chunk and their position in the reply.
pub(crate) struct Want {
    /// The chunk.
    pub lba: Lba,
    /// First byte in the chunk.
    pub from: usize,
    /// Position in the reply.
    pub at: usize,
    /// Number of bytes.
    pub len: usize,
}

impl Want {
    pub(crate) fn cause(&self) -> LookupCause {
        LookupCause::Read(self.from / SECTOR_BYTES, (self.from + self.len) / SECTOR_BYTES)
    }
}
