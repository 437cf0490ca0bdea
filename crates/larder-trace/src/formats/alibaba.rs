//! Alibaba's block traces: `device_id,opcode,offset,length,timestamp`; R or W, bytes, microseconds.
//!
//! Source: Li et al., IISWC 2020. Each device gets a region of its own, of 16 TiB. The first line
//! may be a header with these names.

use super::rows::{Column, Field, Ops, Rows, names_columns};
use crate::sink::Regions;

const COLUMNS: [Column; 5] = [
    Column::new(Field::Device, "the number of the device in column 1"),
    Column::new(Field::Op(Ops::ReadWrite), "R or W in column 2"),
    Column::new(Field::Offset(1), "the address in bytes in column 3"),
    Column::new(Field::Length(1), "the length in bytes in column 4"),
    Column::new(Field::Time(1000), "the time in microseconds in column 5"),
];

/// Makes the parser.
pub(crate) fn rows() -> Rows {
    Rows::of(&COLUMNS, is_marked, Some("five columns and no more"), Regions::many())
}

/// Returns whether a first line marks the file as such a trace.
pub(crate) fn is_marked(line: &[u8]) -> bool {
    names_columns(line, &["device_id", "opcode", "offset", "length", "timestamp"])
}
