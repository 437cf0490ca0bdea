//! Writers of any stream of records into one of our formats.
//!
//! Invariants: a record that a format cannot express is counted ([`WriteTotals::dropped`]) or
//! refused, never bent silently. The head of each file gives the choice. Nothing of the trace is
//! kept in memory, except for `oracleGeneral`, which has the next access of each address.
//!
//! It does not choose a name, or remove a half-written file after an error.

mod austere;
mod content;
mod csv;
mod oracle_general;

pub use austere::AustereWriter;
pub use content::ContentWriter;
pub use csv::CsvWriter;
pub use oracle_general::OracleGeneralWriter;

use std::io;

use crate::{
    error::{Position, TraceError, TraceResult},
    formats::SECTOR_BYTES,
    record::Record,
};

/// The counts of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteTotals {
    /// Records written.
    pub records: u64,
    /// Records that the format has no place for (trims and flushes, in some).
    pub dropped: u64,
}

/// A writer of records.
pub trait RecordWriter {
    /// Writes a record; false if the format has no place for it.
    fn write(&mut self, record: &Record) -> TraceResult<bool>;

    /// Writes the remaining bytes, and the end of the file.
    fn finish(self) -> TraceResult<()>
    where
        Self: Sized;
}

/// Writes all records. Stops at the first error, of reading or of writing.
pub fn convert<I, W>(records: I, mut writer: W) -> TraceResult<WriteTotals>
where
    I: IntoIterator<Item = TraceResult<Record>>,
    W: RecordWriter,
{
    let mut written = WriteTotals::default();
    for record in records {
        match writer.write(&record?)? {
            true => written.records += 1,
            false => written.dropped += 1,
        }
    }
    writer.finish()?;
    Ok(written)
}

fn cannot_write(error: io::Error) -> TraceError {
    TraceError::io("", Position::Whole, "cannot write the trace", error)
}

/// Returns the sectors that a record touches: first and count.
fn sectors(record: &Record) -> (u64, u64) {
    let first = record.offset_bytes / SECTOR_BYTES;
    (first, record.end_bytes().div_ceil(SECTOR_BYTES) - first)
}
