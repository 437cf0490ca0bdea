//! Requests to an origin, and the work of its parts for them.
//!
//! It does not know media.

use larder_ssd::time::Nanos;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// Reads bytes.
    Read,
    /// Writes bytes, and makes them durable.
    Write,
    /// Tells that bytes are of no more use.
    Trim,
    /// Asks that all writes be durable.
    Flush,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginRequest {
    /// Its kind.
    pub kind: RequestKind,
    /// Its first byte; of no meaning for a flush.
    pub offset: u64,
    /// Its bytes; of no meaning for a flush.
    pub len: u64,
}

/// The work of the parts of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Reads of a part: of one disk of an array, or of the whole drive.
    pub reads: u64,
    /// Writes of a part.
    pub writes: u64,
    /// Bytes that were read, parity included.
    pub bytes_read: u64,
    /// Bytes that were written, parity included.
    pub bytes_written: u64,
    /// The time for which parts were at work, summed over [`Work::parts`].
    pub busy_ns: u128,
    /// Parts that can be at work at the same time: arms, channels, or the one gate of a network
    /// volume.
    pub parts: u64,
}

impl Work {
    /// Adds another's.
    pub fn and(self, other: Work) -> Work {
        Work {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            busy_ns: self.busy_ns + other.busy_ns,
            parts: self.parts + other.parts,
        }
    }

    /// Returns the work since it was `before`.
    pub fn since(self, before: &Work) -> Work {
        Work {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
            busy_ns: self.busy_ns - before.busy_ns,
            parts: self.parts,
        }
    }

    /// Returns the share of a time in which its parts were at work; 0 of no time.
    pub fn utilisation(&self, elapsed: Nanos) -> f64 {
        let whole = u128::from(elapsed) * u128::from(self.parts);
        if whole == 0 { 0.0 } else { self.busy_ns as f64 / whole as f64 }
    }

    pub(super) fn count(&mut self, request: &OriginRequest) {
        match request.kind {
            RequestKind::Read => {
                self.reads += 1;
                self.bytes_read += request.len;
            }
            RequestKind::Write => {
                self.writes += 1;
                self.bytes_written += request.len;
            }
            RequestKind::Trim | RequestKind::Flush => {}
        }
    }
}
