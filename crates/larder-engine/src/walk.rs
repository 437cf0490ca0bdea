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

pub(crate) use ahead::InOrder;
pub use log::{LogEnd, LogWalk};

use crate::error::EngineError;
use larder_device::{BlockDevice, IoBuf, IoError, Runtime, runtime::compute};
use larder_format::{
    CheckpointBlock, CheckpointHeader, CheckpointPointer, FormatError, FrameHeader, LogEntry, LogStart, RecordEntry,
    SegmentHeader, Superblock,
    layout::SUPERBLOCK_OFFSETS,
    segment::{decode_header, decode_table},
    superblock::SUPERBLOCK_BYTES,
};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Bytes of one read.
pub const READ_BYTES: u64 = 1 << 20;
/// Limit of reads in flight.
pub const READS_IN_FLIGHT: usize = 8;

/// The progress of a recovery, for a program that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    bytes_read: AtomicU64,
    bytes_to_read: AtomicU64,
}

impl Progress {
    /// Returns the bytes that were read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }

    /// Returns the bytes to read in all, as far as is known; 0 before the first read.
    ///
    /// The length of the log shows only during the read. Until then half of its region counts,
    /// because a checkpoint is due when that is full.
    pub fn bytes_to_read(&self) -> u64 {
        self.bytes_to_read.load(Relaxed).max(self.bytes_read())
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.bytes_to_read.fetch_add(bytes, Relaxed);
    }

    /// Notes that all bytes are read.
    pub(crate) fn finish(&self) {
        self.bytes_to_read.store(self.bytes_read(), Relaxed);
    }
}

/// A reader of a flash, with its workers and its progress.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The flash.
    pub flash: &'a dyn BlockDevice,
    /// Workers that check and decode; without them, the reading task does.
    pub workers: Option<&'a dyn Runtime>,
    /// The progress to update.
    pub progress: Option<&'a Progress>,
}

impl<'a> Reader<'a> {
    /// Returns a reader without workers and without progress.
    pub fn alone(flash: &'a dyn BlockDevice) -> Self {
        Reader { flash, workers: None, progress: None }
    }

    pub(crate) async fn read(self, offset: u64, bytes: u64) -> Result<IoBuf, EngineError> {
        let buf = read_any(self.flash, offset, bytes as usize).await?;
        if let Some(progress) = self.progress {
            progress.bytes_read.fetch_add(bytes, Relaxed);
        }
        Ok(buf)
    }

    /// Runs `decode`, on a worker if there are any, and returns its result.
    async fn decoded<T: Send + 'static>(self, decode: impl FnOnce() -> T + Send + 'static) -> Result<T, EngineError> {
        match self.workers {
            Some(workers) => Ok(compute(workers, decode).await?),
            None => Ok(decode()),
        }
    }
}

/// Reads bytes at any boundary: it reads their sectors, and cuts the ends off.
async fn read_any(flash: &dyn BlockDevice, offset: u64, bytes: usize) -> Result<IoBuf, IoError> {
    let sector = u64::from(flash.info().sector_bytes.max(1));
    let (from, end) = (offset - offset % sector, (offset + bytes as u64).next_multiple_of(sector));
    let buf = flash.read(from, IoBuf::new((end - from) as usize)).await?;
    if buf.len() == bytes {
        return Ok(buf);
    }
    let skip = (offset - from) as usize;
    Ok(IoBuf::copy_of(buf.get(skip..skip + bytes).unwrap_or_default()))
}

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
/// Those of the device; an invalid frame is the end of the log.
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
