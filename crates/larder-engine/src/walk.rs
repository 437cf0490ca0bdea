//! Reading a flash's structures as they lie there: superblocks, checkpoint blocks, frames,
//! segments.
//!
//! Checkpoint and log are read in large pieces, several in flight at once. Workers, if there are
//! any, check and decode them. Their content is handed on in order, one piece after the other.
//!
//! Invariants: it does not write, and trusts no bytes: a structure that does not decode is an error
//! with its place. At most [`READS_IN_FLIGHT`] reads of [`READ_BYTES`] are in flight, and no more
//! pieces than that wait decoded.
//!
//! It does not make a state of them; [`recover`](crate::recover) does.

mod ahead;
mod checkpoint;
mod log;
mod lost;
mod piece;
mod reader;
pub(crate) mod tables;

pub(crate) use ahead::InOrder;
pub use log::{LogEnd, LogWalk};
pub use reader::{Progress, READ_BYTES, READS_IN_FLIGHT, Reader};

use crate::error::EngineError;
use larder_device::{BlockDevice, IoBuf};
use larder_format::{
    CheckpointBlock, CheckpointHeader, CheckpointPointer, FormatError, FrameHeader, LogEntry, LogStart, RecordEntry,
    SegmentHeader, Superblock,
    layout::SUPERBLOCK_OFFSETS,
    segment::{decode_header, decode_table},
    superblock::SUPERBLOCK_BYTES,
};

/// Reads both superblock twins, each for itself.
pub async fn twins(flash: &dyn BlockDevice) -> Vec<Result<Superblock, EngineError>> {
    let mut found = Vec::new();
    for offset in SUPERBLOCK_OFFSETS {
        found.push(match flash.read(offset, IoBuf::new(SUPERBLOCK_BYTES)).await {
            Ok(bytes) => Superblock::decode(&bytes).map_err(EngineError::from),
            Err(error) => Err(error.into()),
        });
    }
    found
}

/// Reads the checkpoint that `pointer` names. `visit` gets the index, flash offset, size in bytes
/// and content of each block.
///
/// # Errors
/// The first fault of the checkpoint.
pub async fn checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    pointer: &CheckpointPointer,
    visit: &mut dyn FnMut(u32, u64, usize, CheckpointBlock),
) -> Result<CheckpointHeader, EngineError> {
    let reader = Reader::alone(flash);
    let header = reader.checkpoint_header(superblock, pointer).await?;
    reader.checkpoint_blocks(superblock, pointer, &header, visit).await?;
    Ok(header)
}

/// Reads the frames of the log from a log start on. `visit` gets the offset in the log, the header
/// and the entries of each.
///
/// # Errors
/// Errors of the device; an invalid frame is the end of the log.
pub async fn log(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    start: (LogStart, u64),
    visit: &mut dyn FnMut(u64, &FrameHeader, &[LogEntry]),
) -> Result<LogEnd, EngineError> {
    LogWalk::new(Reader::alone(flash), superblock, start).to_the_end(visit).await
}

/// A segment as it lies in its slot.
pub struct Segment {
    /// Its header.
    pub header: SegmentHeader,
    /// Its record table.
    pub records: Result<Vec<RecordEntry>, FormatError>,
}

/// Returns a slot's segments in this generation, from its whole bytes, and the reason for their
/// end.
pub fn segments(weu: &[u8], flash_tag: u64, slot: u32, generation: u32) -> (Vec<Segment>, Option<FormatError>) {
    let mut found = Vec::new();
    let mut offset = 0;
    // Each turn moves on by a sector at least.
    while let Some(bytes) = weu.get(offset..).filter(|bytes| !bytes.is_empty()) {
        let decoded = decode_header(bytes).and_then(|header| {
            header.check_home(flash_tag, slot, generation, offset as u32)?;
            Ok(header)
        });
        let header = match decoded {
            Ok(header) if header.segment_bytes > 0 => header,
            Ok(_) => return (found, None),
            Err(error) => return (found, Some(error)),
        };
        let table = bytes.get(header.table_offset as usize..).unwrap_or_default();
        found.push(Segment { header, records: decode_table(&header, table) });
        offset += header.segment_bytes as usize;
    }
    (found, None)
}

#[cfg(test)]
mod tests;
