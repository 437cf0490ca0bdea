//! The two kinds of format: text lines, and binary records.
//!
//! It knows no format.

use crate::{error::Complaint, sink::Sink};

/// Bytes of a sector, the unit of most addresses.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// A format of text lines.
pub(crate) trait LineFormat {
    /// True if the reader passes over lines that begin with `#`.
    const HAS_COMMENTS: bool = true;

    /// Takes one line, which may hold no request.
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint>;
}

/// A format of binary records.
pub(crate) trait BinaryFormat {
    /// Bytes of a record.
    const RECORD_BYTES: usize;

    /// Takes one record of `RECORD_BYTES` bytes.
    fn record(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<(), Complaint>;
}
