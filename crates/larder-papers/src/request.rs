//! A request of a trace: its place, and the content of its blocks.
//!
//! Invariants: a request has one operation and one run of addresses.
//!
//! It does not know the content of the device's blocks; `blocks.rs` does.

use larder_trace::Op;

use crate::content::Bytes;

/// A block of a request: its place in the request, and its content if the trace tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes from the start of the request.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
    /// The written or read content.
    pub bytes: Option<Bytes>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaperRequest {
    /// Its number in the trace.
    pub number: u64,
    /// Arrival in microseconds.
    pub time_us: Option<u64>,
    /// The operation.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// For reads and writes, its blocks, in order.
    pub blocks: Vec<Block>,
}

impl PaperRequest {
    /// Returns whether the two requests must be made one after the other.
    pub fn meets(&self, offset: u64, len: u64, is_read: bool) -> bool {
        let apart = self.offset + self.len <= offset || offset + len <= self.offset;
        !(apart || is_read && self.op == Op::Read)
    }
}
