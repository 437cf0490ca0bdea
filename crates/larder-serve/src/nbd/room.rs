//! The room of a connection for trims and writes of zeroes.
//!
//! Invariants: the bytes under way belong to the requests that have begun and not ended.
//!
//! It does not start a request.

use super::{
    limits::RANGES_BYTES_MAX,
    signal::{Signal, SignalTurns},
};
use std::cell::Cell;

/// The trims and writes of zeroes of a connection.
#[derive(Default)]
pub(super) struct Ranges {
    /// The bytes under way.
    bytes: Cell<u64>,
    /// The turns of the requests that wait for room.
    pub turns: SignalTurns,
    /// A request has ended: for the task that has the turn.
    pub ended: Signal,
}

impl Ranges {
    /// Counts `len` bytes as under way, if there is room for them.
    pub fn begin(&self, len: u64) -> bool {
        let bytes = self.bytes.get();
        let has_room = bytes == 0 || bytes + len <= RANGES_BYTES_MAX;
        if has_room {
            self.bytes.set(bytes + len);
        }
        has_room
    }

    /// Counts `len` bytes as over.
    pub fn end(&self, len: u64) {
        self.bytes.set(self.bytes.get() - len);
        self.ended.notify();
    }
}
