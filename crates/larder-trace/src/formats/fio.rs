//! fio iologs, version 2 or 3.
//!
//! Version 2 has `file action [offset length]`, where `file wait microseconds` passes time. Version
//! 3 has `microseconds file action [offset length]`; fio writes and reads that unit.
//!
//! `read`, `write` and `trim` are requests; `sync`, `datasync` and `syncfs` are flushes. `add`,
//! `open`, `close`, `unlink` and `file_operation` are no requests. Neither is `sync_file_range`: it
//! starts writing, but flushes no device (its manual page). Each file gets a region of the address
//! space, in the order of appearance. The end of its name is the tag. In version 2 requests have no
//! time until the first `wait`.
//!
//! Source: fio's `iolog.c` and `io_ddir.h`, and the logs of its version 3.33. If the log exists,
//! fio appends to it, with the first line once more: times begin again.

use super::kinds::LineFormat;
use crate::{
    error::Complaint,
    parse::Cursor,
    record::{Op, Record, Tag},
    sink::{Regions, Sink},
};

/// The parser: the version, the files, and the time that `wait` has passed.
pub(crate) struct Fio {
    version: Version,
    waited_us: Option<u64>,
    files: Regions,
}

impl Fio {
    pub fn new() -> Fio {
        Fio { version: Version::Unknown, waited_us: None, files: Regions::few() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Unknown,
    Two,
    Three,
}

/// The beginning of the first line, of any version.
const HEAD: &[u8] = b"fio version ";
const VERSION: &str = "\"fio version 2 iolog\" or \"fio version 3 iolog\" (the versions that are known)";

/// Returns the end of a path, which tells files apart better than its beginning.
fn tag_of(file: &[u8]) -> Tag {
    let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or(file);
    Tag::new(name)
}

impl LineFormat for Fio {
    // A file's name may begin with any character.
    const HAS_COMMENTS: bool = false;

    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        if self.version == Version::Unknown || line.starts_with(HEAD) {
            self.version = match line.trim_ascii() {
                b"fio version 2 iolog" => Version::Two,
                b"fio version 3 iolog" => Version::Three,
                _ => return Err(Complaint::expected(VERSION)),
            };
            self.waited_us = None;
            return Ok(());
        }
        let mut columns = Cursor::blanks(line);
        let time_us = match self.version {
            Version::Three => Some(columns.number("the time in microseconds in column 1")?),
            _ => self.waited_us,
        };
        let file = columns.need("the name of a file")?;
        const ACTION: &str = "an action (add, open, close, unlink, read, write, trim, sync, datasync, syncfs, \
                              sync_file_range, file_operation or, in version 2, wait)";
        let op = match columns.need(ACTION)? {
            b"add" | b"open" | b"close" | b"unlink" => {
                return columns.end("no column after add, open, close or unlink");
            }
            b"sync_file_range" | b"file_operation" => return Ok(()),
            b"wait" if self.version == Version::Two => {
                let us = columns.number("the microseconds to wait")?;
                self.waited_us = Some(self.waited_us.unwrap_or(0).saturating_add(us));
                return Ok(());
            }
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            b"sync" | b"datasync" | b"syncfs" => {
                let mut record = Record::new(sink.next_request(), Op::Flush, 0, 0);
                record.time_us = time_us;
                record.tag = tag_of(file);
                return sink.push(record);
            }
            _ => return Err(Complaint::expected(ACTION)),
        };
        let offset_bytes = columns.number("the offset in bytes")?;
        let len_bytes = columns.number("the length in bytes")?;
        columns.end("no column after the length")?;
        let region = self.files.region(file)?;
        let mut record = Record::new(sink.next_request(), op, offset_bytes, len_bytes);
        record.time_us = time_us;
        record.tag = tag_of(file);
        sink.push_in(region, record)
    }
}
