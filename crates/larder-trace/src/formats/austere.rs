//! AustereCache's traces: `address length R|W sha1 compression_ratio`, in bytes.
//!
//! Source: its §5.1 and its generator. The fingerprint is the first 128 of the 160 bits. The
//! stored size is the length over the ratio, rounded up; a ratio below 1 is content that does not
//! shrink. There are no times, and a line is a request.

use super::kinds::LineFormat;
use crate::{
    error::{Complaint, TraceErrorKind},
    parse::{Cursor, fingerprint, ratio},
    record::{CONTENT_BYTES_MAX, Op, Provenance, Record, TraceContent},
    sink::Sink,
    zero,
};

/// The parser; it keeps nothing.
pub(crate) struct Austere;

impl LineFormat for Austere {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        let mut columns = Cursor::blanks(line);
        let offset_bytes = columns.number("the address in bytes in column 1")?;
        let len_bytes = columns.number("the length in bytes in column 2")?;
        let op = match columns.need("R or W in column 3")? {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err(Complaint::expected("R or W in column 3")),
        };
        const SHA1: &str = "a SHA-1 of 40 hexadecimal digits in column 4";
        let digits = columns.need(SHA1)?;
        if digits.len() != 40 {
            return Err(Complaint::expected(SHA1));
        }
        let fingerprint = fingerprint(digits).ok_or(Complaint::expected(SHA1))?;
        const RATIO: &str = "a compression ratio above 0 in column 5";
        let ratio = ratio(columns.need(RATIO)?).filter(|&ratio| ratio > 0.0).ok_or(Complaint::expected(RATIO))?;
        columns.end("five columns and no more")?;
        if len_bytes > CONTENT_BYTES_MAX {
            let expected = "expected a chunk of at most 1 MiB for one fingerprint, found a longer one";
            return Err(Complaint { kind: TraceErrorKind::TooLong, expected });
        }
        let stored_bytes = (len_bytes as f64 / ratio.max(1.0)).ceil() as u32;
        let is_zero = zero::sha1(len_bytes) == Some(fingerprint);
        let content =
            TraceContent { fingerprint, stored_bytes: Some(stored_bytes), is_zero, provenance: Provenance::Recorded };
        let mut record = Record::new(sink.next_request(), op, offset_bytes, len_bytes);
        record.content = Some(content);
        sink.push(record)
    }
}
