//! Writes AustereCache's format: `address length R|W sha1 compression_ratio`.
//!
//! Trims and flushes are dropped, and so are times and tags. A fingerprint becomes the first 32 of
//! 40 digits, the rest is 0. Zeroes get their SHA-1 if the length is a chunk's. The ratio is
//! rounded up to nine digits, so that length over ratio gives the size again. A read or write
//! without content or size is refused: give it some first (`synthetic.rs`).

use std::io::{BufWriter, Write};

use super::{RecordWriter, cannot_write};
use crate::{
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    record::{Op, Record},
    zero,
};

/// The writer.
pub struct AustereWriter<W: Write> {
    out: BufWriter<W>,
}

impl<W: Write> AustereWriter<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> AustereWriter<W> {
        AustereWriter { out: BufWriter::new(out) }
    }
}

impl<W: Write> RecordWriter for AustereWriter<W> {
    fn write(&mut self, record: &Record) -> TraceResult<bool> {
        let op = match record.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Trim | Op::Flush => return Ok(false),
        };
        let known = record.content.and_then(|content| Some((content, content.stored_bytes?)));
        let Some((content, stored_bytes)) = known else {
            let message =
                format!("request {} has no content or no compressed size, which this format needs", record.request);
            return Err(TraceError::new(TraceErrorKind::Content, "", Position::Whole, message));
        };
        let zeroes = zero::sha1(record.len_bytes).filter(|_| content.is_zero);
        let fingerprint = zeroes.unwrap_or(content.fingerprint).to_u128();
        // In units of 10^-9, rounded up.
        let stored = u128::from(stored_bytes.max(1));
        let ratio = (u128::from(record.len_bytes) * 1_000_000_000).div_ceil(stored);
        let (whole, rest) = (ratio / 1_000_000_000, ratio % 1_000_000_000);
        let (offset, len) = (record.offset_bytes, record.len_bytes);
        writeln!(self.out, "{offset} {len} {op} {fingerprint:032x}00000000 {whole}.{rest:09}").map_err(cannot_write)?;
        Ok(true)
    }

    fn finish(mut self) -> TraceResult<()> {
        self.out.flush().map_err(cannot_write)
    }
}
