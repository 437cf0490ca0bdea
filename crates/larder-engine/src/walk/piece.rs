//! Bytes of the log, as they were read.
//!
//! Invariants: a piece is consecutive.
//!
//! It does not decode.

use larder_device::SharedBuf;

/// Bytes of the log.
#[derive(Clone)]
pub(super) struct LogPiece {
    pub(super) at: u64,
    pub(super) data: SharedBuf,
}

impl LogPiece {
    pub(super) fn end(&self) -> u64 {
        self.at + self.data.len() as u64
    }
}
