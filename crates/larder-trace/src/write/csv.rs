//! Writes libCacheSim's csv, with the header of its own sample: `version,time,op,size,lbn`.
//!
//! Operations are SCSI opcodes. The csv keeps reads, writes, trims (42) and flushes (35, no size).
//! It has no content, no tags and no grouping to requests. A record is a line: give the writer
//! [whole requests](crate::whole) for one line a request. Times are in seconds, perhaps with a
//! fraction, and 0 if the trace has none. An address is rounded down to a sector.

use std::io::{BufWriter, Write};

use super::{RecordWriter, cannot_write};
use crate::{
    error::TraceResult,
    formats::SECTOR_BYTES,
    record::{Op, Record},
};

/// The writer.
pub struct CsvWriter<W: Write> {
    out: BufWriter<W>,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the header to `out`.
    pub fn new(out: W) -> TraceResult<CsvWriter<W>> {
        let mut out = BufWriter::new(out);
        out.write_all(b"version,time,op,size,lbn\n").map_err(cannot_write)?;
        Ok(CsvWriter { out })
    }
}

impl<W: Write> RecordWriter for CsvWriter<W> {
    fn write(&mut self, record: &Record) -> TraceResult<bool> {
        let op = match record.op {
            Op::Read => "28",
            Op::Write => "2a",
            Op::Trim => "42",
            Op::Flush => "35",
        };
        let time_us = record.time_us.unwrap_or(0);
        let (seconds, rest) = (time_us / 1_000_000, time_us % 1_000_000);
        let (size, lbn) = (record.len_bytes, record.offset_bytes / SECTOR_BYTES);
        match rest {
            0 => writeln!(self.out, "1,{seconds},{op},{size},{lbn}"),
            _ => writeln!(self.out, "1,{seconds}.{rest:06},{op},{size},{lbn}"),
        }
        .map_err(cannot_write)?;
        Ok(true)
    }

    fn finish(mut self) -> TraceResult<()> {
        self.out.flush().map_err(cannot_write)
    }
}
