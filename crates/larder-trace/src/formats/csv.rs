//! libCacheSim's csv: a header that names the columns, then a request a line.
//!
//! Known names, in any order and case, others are passed over: `time` (also `timestamp`, `ts`; seconds, with a fraction
//! if need be), `lbn` (`lba`, `obj_id`, `id`, `object`, `block`: a sector number, or one of `block_bytes`), `size`
//! (`length`, `len`, `obj_size`, `sz`: bytes), `op` (`operation`, `opcode`, `type`). An operation is a word (R, W, T, F,
//! read, write, trim, discard, unmap, flush, get, set) or a SCSI opcode in hexadecimal: 08, 28, 88, a8 read; 0a, 2a, 8a,
//! aa write; 42 unmap; 35, 91 flush. Without that column all are reads; without sizes each is one block.

use super::{LineFormat, SECTOR_BYTES};
use crate::{
    error::Complaint,
    parse::{Cursor, decimal, seconds_as_ns},
    record::{Op, Record},
    sink::Sink,
};

/// Columns of a file that are looked at.
const COLUMNS_MAX: usize = 32;

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
}

impl Csv {
    pub fn new(block_bytes: Option<u32>) -> Csv {
        Csv { block_bytes: block_bytes.map_or(SECTOR_BYTES, u64::from), columns: Vec::new() }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Complaint> {
        const HEADER: &str = "a header that names its columns, lbn among them (version,time,op,size,lbn)";
        let mut fields = Cursor::commas(line);
        while let Some(name) = fields.field() {
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
        if !self.columns.contains(&Column::Address) {
            self.columns.clear();
            return Err(Complaint::expected(HEADER));
        }
        Ok(())
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
        let mut fields = Cursor::commas(line);
        let mut record = Record::new(0, Op::Read, 0, self.block_bytes);
        for column in &self.columns {
            let field = fields.need("as many columns as the header names")?;
            match column {
                Column::Other => {}
                Column::Time => {
                    let ns = seconds_as_ns(field).ok_or(Complaint::expected("a time in seconds"))?;
                    record.time_us = Some(ns / 1000);
                }
                Column::Address => {
                    let block = decimal(field).ok_or(Complaint::expected("an address in blocks"))?;
                    record.offset_bytes = block.saturating_mul(self.block_bytes);
                }
                Column::Size => record.len_bytes = decimal(field).ok_or(Complaint::expected("a size in bytes"))?,
                Column::Op => record.op = op(field).ok_or(Complaint::expected("an operation or a SCSI opcode"))?,
            }
        }
        fields.end("no more columns than the header names")?;
        if record.op == Op::Flush {
            (record.offset_bytes, record.len_bytes) = (0, 0);
        }
        record.request = sink.next_request();
        sink.push(record)
    }
}
