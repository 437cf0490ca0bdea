//! libCacheSim's csv: a header that names the columns, then a request a line.
//!
//! Commas, tabs, semicolons or bars separate columns: the header has most of the separator.
//! libCacheSim takes a colon, too, but dates have colons. A file without a header needs `--columns`
//! ([`columns`](super::columns)).
//!
//! The known names, in any order and case, are the following. The parser passes over others.
//!
//! - `time` (also `timestamp`, `ts`): seconds, perhaps with a fraction;
//! - `lbn` (`lba`, `obj_id`, `id`, `object`, `block`): a sector number, or one of `block_bytes`;
//! - `size` (`length`, `len`, `obj_size`, `sz`): bytes; without this column each request is one
//!   block;
//! - `op` (`operation`, `opcode`, `type`); without this column all are reads.
//!
//! An operation is a word (R, W, T, F, read, write, trim, discard, unmap, flush, get, set) or a
//! [SCSI opcode](super::scsi) in hexadecimal.
//!
//! A header with the names `time`, `op`, `size` and `lbn` marks a file as such a csv: no other
//! format has these names. The units of any other csv are unknown until the caller names the
//! format.

use super::{
    kinds::SECTOR_BYTES,
    rows::{COLUMNS_MAX, Column, Field, Fields, FirstRow, Layout, Ops, Rows, SECOND_NS, most_frequent},
};
use crate::{error::Complaint, sink::Regions};

/// The names of libCacheSim's own sample.
const MARKS: [&[u8]; 4] = [b"time", b"op", b"size", b"lbn"];

/// Makes the parser; a block number stands for `block_bytes`.
pub(crate) fn rows(block_bytes: Option<u32>) -> Rows {
    let block_bytes = block_bytes.map_or(SECTOR_BYTES, u64::from);
    let end = Some("no more columns than the header names");
    let first = FirstRow::IsHeader { block_bytes, columns };
    let missing = Some("as many columns as the header names");
    let (columns, separator, len_bytes) = (Vec::new(), None, block_bytes);
    let layout = Layout { columns, separator, first, missing, end, len_bytes, may_be_empty: true };
    Rows::new(layout, Regions::few())
}

/// Returns the separator and the columns that a header gives.
fn columns(line: &[u8], block_bytes: u64) -> Result<(Option<u8>, Vec<Column>), Complaint> {
    const HEADER: &str = "a header that names its columns, lbn among them (version,time,op,size,lbn)";
    const ONCE: &str = "a header of at most 32 columns that names each once";
    let separator = most_frequent(line).unwrap_or(b',');
    let mut columns: Vec<Column> = Vec::new();
    let mut fields = Fields::new(line, Some(separator));
    while let Some(name) = fields.next() {
        let column = match &*name.to_ascii_lowercase() {
            b"time" | b"timestamp" | b"ts" => Column::new(Field::Time(SECOND_NS), "a time in seconds (column time)"),
            b"lbn" | b"lba" | b"obj_id" | b"id" | b"object" | b"block" => {
                Column::new(Field::Offset(block_bytes), "the number of a block (column lbn)")
            }
            b"size" | b"length" | b"len" | b"obj_size" | b"sz" => {
                Column::new(Field::Length(1), "a size in bytes (column size)")
            }
            b"op" | b"operation" | b"opcode" | b"type" => {
                Column::new(Field::Op(Ops::WordsAndOpcodes), "an operation or a SCSI opcode (column op)")
            }
            _ => Column::new(Field::Other, "anything"),
        };
        let is_twice = column.field != Field::Other && columns.contains(&column);
        if columns.len() == COLUMNS_MAX || is_twice {
            return Err(Complaint::expected(ONCE));
        }
        columns.push(column);
    }
    // A separator at the end of the line begins no column.
    if line.ends_with(&[separator]) {
        columns.pop();
    }
    let has_address = columns.iter().any(|column| matches!(column.field, Field::Offset(_)));
    if has_address { Ok((Some(separator), columns)) } else { Err(Complaint::expected(HEADER)) }
}

/// Returns whether a first line marks the file as such a csv.
pub(crate) fn is_marked(line: &[u8]) -> bool {
    let separator = most_frequent(line).unwrap_or(b',');
    let mut seen = [false; MARKS.len()];
    let mut fields = Fields::new(line, Some(separator));
    while let Some(name) = fields.next() {
        for (seen, mark) in seen.iter_mut().zip(MARKS) {
            *seen |= name.eq_ignore_ascii_case(mark);
        }
    }
    seen == [true; MARKS.len()] && columns(line, SECTOR_BYTES).is_ok()
}
