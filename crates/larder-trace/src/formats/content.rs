//! Our ten columns: the content traces of `shared/traces`, and the output of
//! `write::ContentWriter`.
//!
//! The columns are `time_us request tag lba sectors op c 0 fingerprint lz4_bytes`. A read or write
//! has one line for each 4 KiB block; any other length up to 1 MiB is taken, too. A trim has one
//! line, and so has a flush (address and length 0). The fingerprint is XXH3-64 in 16 digits; 32
//! digits stand for 128 bits. Column `c` is 0 in a recording, 1 in a trace with made-up sizes, and
//! 2 in a made-up trace. So no made-up trace passes for a recording. A time, a fingerprint or a
//! size of `-` is unknown, and a tag of `-` is none.
//!
//! It does not join the blocks of a request.

use super::kinds::{LineFormat, SECTOR_BYTES};
use crate::{
    error::{Complaint, TraceErrorKind},
    parse::{Cursor, fingerprint},
    record::{CONTENT_BYTES_MAX, Op, Provenance, Record, Tag, TraceContent},
    sink::Sink,
    zero,
};

/// The expectation of the last column.
const SIZE: &str = "the compressed size in bytes, from 1 to the block's own, in column 10";

/// The parser; it keeps nothing.
pub(crate) struct ContentLines;

impl LineFormat for ContentLines {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        let mut columns = Cursor::blanks(line);
        const TIME: &str = "the time in microseconds in column 1";
        let time_us = match line.first() {
            Some(b'-') if columns.need(TIME)? == b"-" => None,
            Some(b'-') => return Err(Complaint::expected(TIME)),
            _ => Some(columns.number(TIME)?),
        };
        let request = columns.number("the number of the request in column 2")?;
        let tag = match columns.need("a tag in column 3")? {
            b"-" => Tag::NONE,
            name => Tag::new(name),
        };
        let lba = columns.number("the address in sectors in column 4")?;
        let sectors = columns.number("the length in sectors in column 5")?;
        let op = match columns.need("R, W, T or F in column 6")? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"T" => Op::Trim,
            b"F" => Op::Flush,
            _ => return Err(Complaint::expected("R, W, T or F in column 6")),
        };
        let provenance = match columns.need("0, 1 or 2 in column 7")? {
            b"0" => Provenance::Recorded,
            b"1" => Provenance::SizeMade,
            b"2" => Provenance::Made,
            _ => return Err(Complaint::expected("0 (recorded), 1 (sizes made up) or 2 (all made up) in column 7")),
        };
        columns.need("0 in column 8")?;
        let digits = columns.need("a fingerprint in column 9")?;
        let stored = columns.need("the compressed size in column 10")?;
        columns.end("ten columns and no more")?;
        let len_bytes = sectors.saturating_mul(SECTOR_BYTES);
        // This check comes before the compressed size, which is compared with the length.
        if op != Op::Flush && len_bytes == 0 {
            return Err(Complaint::ZERO_SIZE);
        }
        let content = match op {
            Op::Read | Op::Write => content(digits, stored, SIZE, len_bytes, provenance)?,
            Op::Trim | Op::Flush => None,
        };
        if op == Op::Flush && (lba != 0 || sectors != 0) {
            return Err(Complaint::expected("address and length 0 for a flush (columns 4 and 5)"));
        }
        let offset_bytes = lba.saturating_mul(SECTOR_BYTES);
        sink.push(Record { time_us, request, tag, op, offset_bytes, len_bytes, content })
    }
}

/// Parses fingerprint and compressed size of a read or write; `size` is the expectation of the
/// latter.
pub(super) fn content(
    digits: &[u8],
    stored: &[u8],
    size: &'static str,
    len_bytes: u64,
    provenance: Provenance,
) -> Result<Option<TraceContent>, Complaint> {
    if digits == b"-" {
        return Ok(None);
    }
    let expected = Complaint::expected("a fingerprint of 16 or 32 hexadecimal digits");
    let fingerprint = match digits.len() {
        16 | 32 => fingerprint(digits).ok_or(expected)?,
        _ => return Err(expected),
    };
    if len_bytes > CONTENT_BYTES_MAX {
        let expected = "expected a block of at most 1 MiB for one fingerprint, found a longer one";
        return Err(Complaint { kind: TraceErrorKind::TooLong, expected });
    }
    let stored_bytes = match stored {
        b"-" => None,
        _ => {
            let bytes = Cursor::blanks(stored).number(size)?;
            if bytes == 0 || bytes > len_bytes {
                return Err(Complaint::expected(size));
            }
            Some(bytes as u32)
        }
    };
    Ok(Some(TraceContent { fingerprint, stored_bytes, is_zero: fingerprint == zero::XXH3_4K, provenance }))
}
