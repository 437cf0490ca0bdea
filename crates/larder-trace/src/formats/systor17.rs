//! The traces of SYSTOR '17 (Lee et al.): `Timestamp,Response,IOType,LUN,Offset,Size`.
//!
//! Times are seconds with a fraction, operations R or W, addresses and sizes bytes. A file has one
//! LUN as a rule; LUNs of a joined file get regions of their own. The first line is a header with
//! these names; a part of a file may lack it. These traces have rows without an operation, which
//! are no requests.

use super::rows::{Column, Field, Ops, Rows, SECOND_NS, names_columns};
use crate::sink::Regions;

const COLUMNS: [Column; 6] = [
    Column::new(Field::Time(SECOND_NS), "the time in seconds in column 1"),
    Column::new(Field::Other, "the response time in column 2"),
    Column::new(Field::Op(Ops::ReadWriteOrNone), "R, W or nothing in column 3"),
    Column::new(Field::Device, "the number of the LUN in column 4"),
    Column::new(Field::Offset(1), "the address in bytes in column 5"),
    Column::new(Field::Length(1), "the length in bytes in column 6"),
];

/// Makes the parser.
pub(crate) fn rows() -> Rows {
    Rows::of(&COLUMNS, is_marked, Some("six columns and no more"), Regions::few())
}

/// Returns whether a first line marks the file as such a trace.
pub(crate) fn is_marked(line: &[u8]) -> bool {
    names_columns(line, &["Timestamp", "Response", "IOType", "LUN", "Offset", "Size"])
}
