//! libCacheSim's csv: a header that names the columns, then a request a line.
//!
//! Columns stand apart by commas, tabs, semicolons or bars: by what the header has most of. Blanks around a column are
//! no part of it, nor are quotes (`"`), in which the separator counts for nothing. libCacheSim takes a colon, too, which
//! is in dates; and it takes a file without a header where options name its columns, which we don't have.
//!
//! Known names, in any order and case, others are passed over: `time` (also `timestamp`, `ts`; seconds, with a fraction
//! if need be), `lbn` (`lba`, `obj_id`, `id`, `object`, `block`: a sector number, or one of `block_bytes`), `size`
//! (`length`, `len`, `obj_size`, `sz`: bytes), `op` (`operation`, `opcode`, `type`). An operation is a word (R, W, T, F,
//! read, write, trim, discard, unmap, flush, get, set) or a SCSI opcode in hexadecimal: 08, 28, 88, a8 read; 0a, 2a, 8a,
//! aa write; 42 unmap; 35, 91 flush. Without that column all are reads; without sizes each is one block.

use super::{LineFormat, SECTOR_BYTES};
use crate::{
    error::Complaint,
    parse::{decimal, seconds_as_ns},
    record::{Op, Record},
    sink::Sink,
};

/// Columns of a file that are looked at.
const COLUMNS_MAX: usize = 32;

/// What columns stand apart by, the first of those that a header has equally many of.
const SEPARATORS: [u8; 4] = *b",\t;|";

/// What a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Time,
    Address,
    Size,
    Op,
    Other,
}

/// The parser: what the header said.
pub(crate) struct Csv {
    block_bytes: u64,
    columns: Vec<Column>,
    separator: u8,
}

impl Csv {
    pub fn new(block_bytes: Option<u32>) -> Csv {
        Csv { block_bytes: block_bytes.map_or(SECTOR_BYTES, u64::from), columns: Vec::new(), separator: b',' }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Complaint> {
        const HEADER: &str = "a header that names its columns, lbn among them (version,time,op,size,lbn)";
        let how_many = |separator: &u8| line.iter().filter(|byte| *byte == separator).count();
        // The last of the largest is taken, so they go backwards.
        self.separator = SEPARATORS.into_iter().rev().max_by_key(how_many).unwrap_or(b',');
        let mut fields = Fields::new(line, self.separator);
        while let Some(name) = fields.next() {
            let column = match &*name.to_ascii_lowercase() {
                b"time" | b"timestamp" | b"ts" => Column::Time,
                b"lbn" | b"lba" | b"obj_id" | b"id" | b"object" | b"block" => Column::Address,
                b"size" | b"length" | b"len" | b"obj_size" | b"sz" => Column::Size,
                b"op" | b"operation" | b"opcode" | b"type" => Column::Op,
                _ => Column::Other,
            };
            let is_known = column != Column::Other;
            if self.columns.len() == COLUMNS_MAX || is_known && self.columns.contains(&column) {
                self.columns.clear();
                return Err(Complaint::expected("a header of at most 32 columns that names each once"));
            }
            self.columns.push(column);
        }
        // A separator at the end of the line begins no column.
        if line.ends_with(&[self.separator]) {
            self.columns.pop();
        }
        if !self.columns.contains(&Column::Address) {
            self.columns.clear();
            return Err(Complaint::expected(HEADER));
        }
        Ok(())
    }
}

/// Whether a file's first line is a header of csv.
pub(crate) fn is_header(line: &[u8]) -> bool {
    Csv::new(None).header(line).is_ok()
}

/// The columns of a line.
struct Fields<'a> {
    /// What was not taken yet; `None` behind the last.
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    fn new(line: &'a [u8], separator: u8) -> Fields<'a> {
        Fields { rest: Some(line), separator }
    }

    /// The next column, without blanks around it and without quotes.
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        if rest.first().is_some_and(|byte| matches!(byte, b'"' | b' ')) {
            let inner = rest.trim_ascii_start().strip_prefix(b"\"");
            if let Some((field, behind)) = inner.and_then(|inner| quoted(inner, self.separator)) {
                self.rest = behind;
                return Some(field);
            }
        }
        let len = memchr::memchr(self.separator, rest).unwrap_or(rest.len());
        let (field, behind) = rest.split_at_checked(len)?;
        self.rest = behind.get(1..);
        Some(field.trim_ascii())
    }
}

/// A column whose quote was taken, and what comes behind its separator. `None` where the quotes are no pair around it.
fn quoted(inner: &[u8], separator: u8) -> Option<(&[u8], Option<&[u8]>)> {
    let (field, behind) = inner.split_at_checked(memchr::memchr(b'"', inner)?)?;
    let behind = behind.get(1..)?;
    let blanks = behind.iter().take_while(|byte| **byte == b' ').count();
    match behind.get(blanks..)? {
        [] => Some((field.trim_ascii(), None)),
        [first, rest @ ..] if *first == separator => Some((field.trim_ascii(), Some(rest))),
        _ => None,
    }
}

/// An operation's word or SCSI opcode.
fn op(field: &[u8]) -> Option<Op> {
    let mut lower = [0u8; 8];
    for (to, from) in lower.iter_mut().zip(field) {
        *to = from.to_ascii_lowercase();
    }
    let word = lower.get(..field.len())?;
    Some(match word.strip_prefix(b"0x").unwrap_or(word) {
        b"r" | b"read" | b"get" | b"08" | b"8" | b"28" | b"88" | b"a8" => Op::Read,
        b"w" | b"write" | b"set" | b"0a" | b"a" | b"2a" | b"8a" | b"aa" => Op::Write,
        b"t" | b"trim" | b"discard" | b"unmap" | b"42" => Op::Trim,
        b"f" | b"flush" | b"35" | b"91" => Op::Flush,
        _ => return None,
    })
}

impl LineFormat for Csv {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        if self.columns.is_empty() {
            return self.header(line);
        }
        let mut fields = Fields::new(line, self.separator);
        let mut record = Record::new(0, Op::Read, 0, self.block_bytes);
        for column in &self.columns {
            let field = fields.next().ok_or(Complaint::expected("as many columns as the header names"))?;
            match column {
                Column::Other => {}
                Column::Time => {
                    let ns = seconds_as_ns(field).ok_or(Complaint::expected("a time in seconds (column time)"))?;
                    record.time_us = Some(ns / 1000);
                }
                Column::Address => {
                    let block = decimal(field).ok_or(Complaint::expected("the number of a block (column lbn)"))?;
                    record.offset_bytes = block.saturating_mul(self.block_bytes);
                }
                Column::Size => {
                    record.len_bytes = decimal(field).ok_or(Complaint::expected("a size in bytes (column size)"))?
                }
                Column::Op => {
                    record.op = op(field).ok_or(Complaint::expected("an operation or a SCSI opcode (column op)"))?
                }
            }
        }
        if fields.rest.is_some_and(|rest| !rest.trim_ascii().is_empty()) {
            return Err(Complaint::expected("no more columns than the header names"));
        }
        if record.op == Op::Flush {
            (record.offset_bytes, record.len_bytes) = (0, 0);
        }
        record.request = sink.next_request();
        sink.push(record)
    }
}
