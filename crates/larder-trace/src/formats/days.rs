//! Daily images of a disk: `day block fingerprint lz4_bytes`.
//!
//! Day 0 has every 4 KiB block, a later day the blocks that changed since the day before. Each line
//! becomes a write at the day's midnight. All lines of a day have one request number, since an
//! image is taken as a whole.
//!
//! It does not make reads of the images. It leaves this to `generate::restore`.

use super::kinds::LineFormat;
use crate::{
    error::Complaint,
    parse::Cursor,
    record::{Op, Provenance, Record, Tag},
    sink::Sink,
};

/// Bytes of a block.
const BLOCK_BYTES: u64 = 4096;
/// The expectation of the last column.
const SIZE: &str = "the compressed size in bytes, from 1 to the block's own, in column 4";
/// Microseconds of a day.
pub(crate) const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// The parser; it keeps nothing.
pub(crate) struct Days;

impl LineFormat for Days {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        let mut columns = Cursor::blanks(line);
        let day = columns.number("the day in column 1")?;
        let block = columns.number("the number of the block in column 2")?;
        let digits = columns.need("a fingerprint in column 3")?;
        let stored = columns.need("the compressed size in column 4")?;
        columns.end("four columns and no more")?;
        let content = super::content::content(digits, stored, SIZE, BLOCK_BYTES, Provenance::Recorded)?;
        sink.push(Record {
            time_us: Some(day.saturating_mul(DAY_US)),
            request: day.saturating_add(1),
            tag: Tag::NONE,
            op: Op::Write,
            offset_bytes: block.saturating_mul(BLOCK_BYTES),
            len_bytes: BLOCK_BYTES,
            content,
        })
    }
}
