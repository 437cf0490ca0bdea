//! The record tables of a slot, read by themselves.
//!
//! Invariants: a segment that does not decode ends the slot, as in a walk over all bytes.

use super::Reader;
use larder_format::{
    RecordEntry, SegmentHeader, Superblock,
    segment::{SEGMENT_HEADER_BYTES, decode_header, decode_table},
};

/// Returns the records of a slot in this generation, by offset, up to `upto` at least.
///
/// A table that cannot be read has none.
pub async fn records(
    reader: Reader<'_>,
    superblock: &Superblock,
    slot: u32,
    generation: u32,
    upto: u32,
) -> Vec<RecordEntry> {
    let mut found = Vec::new();
    let Some(start) = superblock.layout.slot_offset(slot) else { return found };
    let mut offset = 0;
    while offset <= upto && offset < superblock.layout.slot_bytes {
        let at = start + u64::from(offset);
        let Some(header) = header(reader, superblock, at, (slot, generation, offset)).await else { break };
        let (table, bytes) = (at + u64::from(header.table_offset), header.table_bytes() as u64);
        let records = match reader.read(table, bytes).await {
            Ok(table) => decode_table(&header, &table).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        found.extend(records);
        offset += header.segment_bytes;
    }
    found
}

async fn header(
    reader: Reader<'_>,
    superblock: &Superblock,
    at: u64,
    (slot, generation, offset): (u32, u32, u32),
) -> Option<SegmentHeader> {
    let bytes = reader.read(at, SEGMENT_HEADER_BYTES as u64).await.ok()?;
    let header = decode_header(&bytes).ok()?;
    header.check_home(superblock.flash_tag(), slot, generation, offset).ok()?;
    (header.segment_bytes > 0).then_some(header)
}
