//! Writes libCacheSim's `oracleGeneral`: 24 bytes a request.
//!
//! Each record has the number of the object's next request. An object is the first sector of a
//! record. Trims and flushes are dropped. The format has no operations, so writes become plain
//! accesses. It keeps only times in seconds, addresses and sizes. Values that do not fit are
//! refused: times past 2^32 seconds (times since 1601, say, need another zero), sizes past 2^32
//! bytes.
//!
//! The next request is known only from the end. So the file is written forwards and then filled in
//! backwards, in blocks of [`BLOCK_RECORDS`]. That needs a file that can be read and sought, and a
//! slot of 17 bytes for each distinct object.

use std::io::{BufWriter, Read, Seek, SeekFrom, Write};

use hashbrown::HashMap;

use super::{RecordWriter, cannot_write};
use crate::{
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    formats::{
        SECTOR_BYTES,
        oracle_general::{OracleRecord, RECORD_BYTES},
    },
    record::Record,
};

/// Records that one step fills in.
const BLOCK_RECORDS: u64 = 32 << 10;

/// The writer.
pub struct OracleGeneralWriter<F: Read + Write + Seek> {
    out: BufWriter<F>,
    records: u64,
}

impl<F: Read + Write + Seek> OracleGeneralWriter<F> {
    /// Writes to `file` from its beginning; it is empty.
    pub fn new(file: F) -> OracleGeneralWriter<F> {
        OracleGeneralWriter { out: BufWriter::new(file), records: 0 }
    }
}

fn too_large(what: &str, record: &Record) -> TraceError {
    let message = format!("request {} has a {what} that oracleGeneral cannot hold in 32 bits", record.request);
    TraceError::new(TraceErrorKind::Parameter, "", Position::Whole, message)
}

impl<F: Read + Write + Seek> RecordWriter for OracleGeneralWriter<F> {
    fn write(&mut self, record: &Record) -> TraceResult<bool> {
        if !record.is_data() {
            return Ok(false);
        }
        let seconds = record.time_us.unwrap_or(0) / 1_000_000;
        let entry = OracleRecord {
            seconds: u32::try_from(seconds).map_err(|_| too_large("time", record))?,
            object: record.offset_bytes / SECTOR_BYTES,
            size_bytes: u32::try_from(record.len_bytes).map_err(|_| too_large("size", record))?,
            next: -1,
        };
        self.out.write_all(&entry.encode()).map_err(cannot_write)?;
        self.records += 1;
        Ok(true)
    }

    fn finish(self) -> TraceResult<()> {
        let mut file = self.out.into_inner().map_err(|error| cannot_write(error.into_error()))?;
        fill_in(&mut file, self.records).map_err(cannot_write)
    }
}

/// Goes back through the records and gives each the number, from 1, of its object's next record.
fn fill_in(file: &mut (impl Read + Write + Seek), records: u64) -> std::io::Result<()> {
    let mut next_of: HashMap<u64, i64> = HashMap::new();
    let mut bytes = Vec::new();
    let mut end = records;
    while end > 0 {
        let start = end.saturating_sub(BLOCK_RECORDS);
        let at = SeekFrom::Start(start * RECORD_BYTES as u64);
        bytes.resize((end - start) as usize * RECORD_BYTES, 0);
        file.seek(at)?;
        file.read_exact(&mut bytes)?;
        let (block, _) = bytes.as_chunks_mut::<RECORD_BYTES>();
        for (at, record) in block.iter_mut().enumerate().rev() {
            let number = (start + at as u64 + 1) as i64;
            let mut entry = OracleRecord::decode(record);
            entry.next = next_of.insert(entry.object, number).unwrap_or(-1);
            *record = entry.encode();
        }
        file.seek(at)?;
        file.write_all(&bytes)?;
        end = start;
    }
    file.flush()
}
