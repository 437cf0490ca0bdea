//! The traces of SYSTOR '17 (Lee et al.): `Timestamp,Response,IOType,LUN,Offset,Size`; seconds with a fraction, R or W, bytes.
//!
//! A file has one LUN as a rule; LUNs of a joined file get regions of their own. The first line is a header with these names; a
//! part of a file may lack it. A row without an operation, which these traces have, is no request.

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

/// The parser.
pub(crate) fn rows() -> Rows {
    Rows::of(&COLUMNS, is_marked, Some("six columns and no more"), Regions::few())
}

/// Whether a file's first line says that it is such a trace.
pub(crate) fn is_marked(line: &[u8]) -> bool {
    names_columns(line, &["Timestamp", "Response", "IOType", "LUN", "Offset", "Size"])
}
