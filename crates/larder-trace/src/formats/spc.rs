//! The traces of the UMass repository, in the format of the Storage Performance Council.
//!
//! The columns are `asu,lba,size,opcode,timestamp`; columns of the application may follow. The
//! address is in sectors, the size in bytes, the time in seconds with a fraction. Each application
//! storage unit (ASU) gets a region of its own. The first line may be a header with these names.
//!
//! Source: SPC Trace File Format Specification, revision 1.0.1.

use super::{
    kinds::SECTOR_BYTES,
    rows::{Column, Field, Ops, Rows, SECOND_NS, names_columns},
};
use crate::sink::Regions;

const COLUMNS: [Column; 5] = [
    Column::new(Field::Device, "the number of the storage unit in column 1"),
    Column::new(Field::Offset(SECTOR_BYTES), "the address in sectors in column 2"),
    Column::new(Field::Length(1), "the length in bytes in column 3"),
    Column::new(Field::Op(Ops::ReadWrite), "R or W in column 4"),
    Column::new(Field::Time(SECOND_NS), "the time in seconds in column 5"),
];

/// Makes the parser.
pub(crate) fn rows() -> Rows {
    Rows::of(&COLUMNS, is_marked, None, Regions::few())
}

/// Returns whether a first line marks the file as such a trace.
pub(crate) fn is_marked(line: &[u8]) -> bool {
    names_columns(line, &["ASU", "LBA", "Size", "Opcode", "Timestamp"])
}
