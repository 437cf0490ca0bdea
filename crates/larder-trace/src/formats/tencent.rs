//! Tencent's block traces (Zhang et al., USENIX ATC 2020):
//! `timestamp,offset,size,io_type,volume_id`.
//!
//! Times are in seconds, addresses and sizes in sectors; type 0 is a read and 1 a write. Each
//! volume gets a region of its own, of 16 TiB. The first line may be a header:
//! `Timestamp,Offset,Size,IOType,VolumeID`.

use super::{
    kinds::SECTOR_BYTES,
    rows::{Column, Field, Ops, Rows, SECOND_NS, names_columns},
};
use crate::sink::Regions;

const COLUMNS: [Column; 5] = [
    Column::new(Field::Time(SECOND_NS), "the time in seconds in column 1"),
    Column::new(Field::Offset(SECTOR_BYTES), "the address in sectors in column 2"),
    Column::new(Field::Length(SECTOR_BYTES), "the length in sectors in column 3"),
    Column::new(Field::Op(Ops::ReadIs0), "0 (read) or 1 (write) in column 4"),
    Column::new(Field::Device, "the number of the volume in column 5"),
];

/// Makes the parser.
pub(crate) fn rows() -> Rows {
    Rows::of(&COLUMNS, is_marked, Some("five columns and no more"), Regions::many())
}

/// Returns whether a first line marks the file as such a trace.
pub(crate) fn is_marked(line: &[u8]) -> bool {
    names_columns(line, &["Timestamp", "Offset", "Size", "IOType", "VolumeID"])
}
