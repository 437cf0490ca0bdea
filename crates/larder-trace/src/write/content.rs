//! Writes our ten columns, packed with zstd: the format of `shared/traces`.
//!
//! `formats/content.rs` describes it. The format keeps all of a record, with three limits.
//! Addresses and lengths are rounded out to sectors. Blanks in a tag become `_`. Zeroes are written
//! with XXH3-64's fingerprint, after every hash of a trace. A record without a time has `-` in
//! column 1.

use std::io::Write;

use super::{RecordWriter, cannot_write, sectors};
use crate::{
    error::TraceResult,
    record::{Op, Provenance, Record},
    zero,
};

/// zstd's level, which is quick and packs well.
const ZSTD_LEVEL: i32 = 9;

/// The writer.
pub struct ContentWriter<W: Write> {
    out: zstd::Encoder<'static, W>,
    line: Vec<u8>,
}

impl<W: Write> ContentWriter<W> {
    /// Writes to `out`, which need not be buffered.
    pub fn new(out: W) -> TraceResult<ContentWriter<W>> {
        let mut out = zstd::Encoder::new(out, ZSTD_LEVEL).map_err(cannot_write)?;
        out.include_checksum(true).map_err(cannot_write)?;
        Ok(ContentWriter { out, line: Vec::new() })
    }
}

/// Appends the tag as a column.
fn push_tag(line: &mut Vec<u8>, tag: &[u8]) {
    if tag.is_empty() {
        line.push(b'-');
    }
    line.extend(tag.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b'_' }));
}

impl<W: Write> RecordWriter for ContentWriter<W> {
    fn write(&mut self, record: &Record) -> TraceResult<bool> {
        let line = &mut self.line;
        line.clear();
        match record.time_us {
            Some(time_us) => write!(line, "{time_us} ").map_err(cannot_write)?,
            None => line.extend(b"- "),
        }
        write!(line, "{} ", record.request).map_err(cannot_write)?;
        push_tag(line, record.tag.as_bytes());
        let (first, count) = match record.op {
            Op::Flush => (0, 0),
            _ => sectors(record),
        };
        let op = match record.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Trim => 'T',
            Op::Flush => 'F',
        };
        write!(line, " {first} {count} {op} ").map_err(cannot_write)?;
        match record.content {
            Some(content) => {
                let provenance = match content.provenance {
                    Provenance::Recorded => 0,
                    Provenance::SizeMade => 1,
                    Provenance::Made => 2,
                };
                let fingerprint = if content.is_zero { zero::XXH3_4K } else { content.fingerprint };
                write!(line, "{provenance} 0 {fingerprint} ").map_err(cannot_write)?;
                match content.stored_bytes {
                    Some(bytes) => writeln!(line, "{bytes}").map_err(cannot_write)?,
                    None => line.extend(b"-\n"),
                }
            }
            None if record.is_data() => line.extend(b"0 0 - -\n"),
            None => line.extend(b"0 0 0 0\n"),
        }
        self.out.write_all(line).map_err(cannot_write)?;
        Ok(true)
    }

    fn finish(self) -> TraceResult<()> {
        let mut out = self.out.finish().map_err(cannot_write)?;
        out.flush().map_err(cannot_write)
    }
}
