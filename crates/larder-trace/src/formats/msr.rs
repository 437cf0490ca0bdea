//! MSR Cambridge traces: `timestamp,host,disk,Read|Write,offset,size,response_time`, in bytes.
//!
//! Timestamps are Windows file times (100 ns since 1601); the record has microseconds since then.
//! The host is the tag. A file has one disk as a rule; disks of a joined file get regions of their
//! own. The first line may be a header that names the columns: `Timestamp,Hostname,...`.

use super::rows::{Column, Field, Fields, Ops, Rows, names_columns};
use crate::sink::Regions;

const COLUMNS: [Column; 7] = [
    Column::new(Field::Time(100), "the time in units of 100 ns in column 1"),
    Column::new(Field::Host, "the host in column 2"),
    Column::new(Field::Device, "the number of the disk in column 3"),
    Column::new(Field::Op(Ops::ReadWrite), "Read or Write in column 4"),
    Column::new(Field::Offset(1), "the address in bytes in column 5"),
    Column::new(Field::Length(1), "the length in bytes in column 6"),
    Column::new(Field::Number, "the response time in column 7"),
];

/// Makes the parser.
pub(crate) fn rows() -> Rows {
    Rows::of(&COLUMNS, is_header, Some("seven columns and no more"), Regions::few())
}

/// Returns whether a line names the seven columns. All names but the first two differ from copy to
/// copy.
fn is_header(line: &[u8]) -> bool {
    let mut columns = Fields::new(line, Some(b','));
    let mut is = |name: &[u8]| columns.next().is_some_and(|field| field.eq_ignore_ascii_case(name));
    let begins = is(b"timestamp") && is(b"hostname");
    let mut left = 0;
    while columns.next().is_some_and(|field| !field.is_empty()) {
        left += 1;
    }
    begins && left == COLUMNS.len() - 2
}

/// Returns whether a first line marks the file as such a trace.
pub(crate) fn is_marked(line: &[u8]) -> bool {
    names_columns(line, &["Timestamp", "Hostname", "DiskNumber", "Type", "Offset", "Size", "ResponseTime"])
}
