//! MSR Cambridge traces: `timestamp,host,disk,Read|Write,offset,size,response_time`, offset and size in bytes.
//!
//! Timestamps are Windows file times (100 ns since 1601); the record has microseconds since then. The host is the tag.
//! A file has one disk as a rule; disks of a joined file get regions of their own. The first line may be a header that names
//! the columns: `Timestamp,Hostname,...`.

use super::LineFormat;
use crate::{
    error::Complaint,
    parse::Cursor,
    record::{Op, Record, Tag},
    sink::{Regions, Sink},
};

/// The parser: which disks there are.
#[derive(Default)]
pub(crate) struct Msr {
    disks: Regions,
    name: Vec<u8>,
    /// Whether a line was seen: only the first may be a header.
    has_begun: bool,
}

/// Whether a line names the seven columns; of all but the first two the names differ from copy to copy.
fn is_header(line: &[u8]) -> bool {
    let mut columns = Cursor::commas(line);
    let mut is = |name: &[u8]| columns.field().is_some_and(|field| field.eq_ignore_ascii_case(name));
    let begins = is(b"timestamp") && is(b"hostname");
    let mut left = 0;
    while columns.field().is_some_and(|field| !field.is_empty()) {
        left += 1;
    }
    begins && left == 5
}

impl LineFormat for Msr {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        if !std::mem::replace(&mut self.has_begun, true) && is_header(line) {
            return Ok(());
        }
        let mut columns = Cursor::commas(line);
        let ticks = columns.number("the time in units of 100 ns in column 1")?;
        let host = columns.need("the host in column 2")?;
        let disk = columns.need("the number of the disk in column 3")?;
        let op = columns.need("Read or Write in column 4")?;
        let op = match op {
            _ if op.eq_ignore_ascii_case(b"read") => Op::Read,
            _ if op.eq_ignore_ascii_case(b"write") => Op::Write,
            _ => return Err(Complaint::expected("Read or Write in column 4")),
        };
        let offset_bytes = columns.number("the address in bytes in column 5")?;
        let len_bytes = columns.number("the length in bytes in column 6")?;
        columns.number("the response time in column 7")?;
        columns.end("seven columns and no more")?;
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.push(b',');
        self.name.extend_from_slice(disk);
        let base = self.disks.base(&self.name)?;
        let mut record = Record::new(sink.next_request(), op, offset_bytes, len_bytes);
        record.time_us = Some(ticks / 10);
        record.tag = Tag::new(host);
        sink.push_in(base, record)
    }
}
