//! Reading the structures on a flash one after the other, as they lie there: superblock twins, checkpoint blocks, log
//! frames, segments.
//!
//! Invariants: nothing is written, and nothing that was read is trusted: what does not decode is an error with its place.
//!
//! What it does not do: make a state of it; [`recover`](crate::recover) does.

use crate::error::EngineError;
use larder_device::{BlockDevice, IoBuf};
use larder_format::{
    BlockIdentity, CheckpointBlock, CheckpointHeader, CheckpointPointer, FormatError, FrameHeader, LogEntry, LogStart,
    RecordEntry, SegmentHeader, Structure, Superblock,
    checkpoint::{BLOCK_BYTES_MAX, CHECKPOINT_HEADER_BYTES},
    decode_frame,
    layout::SUPERBLOCK_OFFSETS,
    log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, LOG_ENTRY_BYTES},
    peek_frame,
    segment::{decode_header, decode_table},
    superblock::SUPERBLOCK_BYTES,
};

use std::sync::Arc;

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// Both superblock twins, each for itself.
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

/// Reads the checkpoint that `pointer` names. `visit` gets each block: its index, its flash offset, its size in bytes.
///
/// # Errors
/// The first thing that is wrong with it.
pub async fn checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    pointer: &CheckpointPointer,
    visit: &mut dyn FnMut(u32, u64, usize, CheckpointBlock),
) -> Result<CheckpointHeader, EngineError> {
    let layout = &superblock.layout;
    let invalid = |what| EngineError::Format(FormatError::Invalid { structure: Structure::CheckpointHeader, what });
    let offset = layout.checkpoint_offset.get(usize::from(pointer.area));
    let start = *offset.ok_or_else(|| invalid("the superblock names no area"))?;
    let flash_tag = superblock.flash_tag();
    let bytes = flash.read(start, IoBuf::new(CHECKPOINT_HEADER_BYTES)).await?;
    let header = CheckpointHeader::decode(&bytes, flash_tag)?;
    if header.checkpoint_id != pointer.checkpoint_id || header.total_bytes != pointer.bytes {
        return Err(invalid("it is not the checkpoint that the superblock names"));
    }
    if header.total_bytes > layout.checkpoint_area_bytes {
        return Err(invalid("it is longer than its area"));
    }
    // Large reads; a block may cross the end of one, so its rest is carried over.
    let (mut at, end) = (start + CHECKPOINT_HEADER_BYTES as u64, start + header.total_bytes);
    let mut block_at = at;
    let mut carried: Vec<u8> = Vec::new();
    let mut block_index = 0;
    while block_index < header.block_count {
        if carried.len() < BLOCK_BYTES_MAX && at < end {
            let len = READ_BYTES.min(end - at);
            carried.extend_from_slice(&flash.read(at, IoBuf::new(len as usize)).await?);
            at += len;
        }
        let mut used = 0;
        while block_index < header.block_count && (carried.len() - used >= BLOCK_BYTES_MAX || at >= end) {
            let identity = BlockIdentity { flash_tag, checkpoint_id: header.checkpoint_id, block_index };
            let (block, bytes) = CheckpointBlock::decode(carried.get(used..).unwrap_or_default(), &identity)?;
            visit(block_index, block_at, bytes, block);
            block_at += bytes as u64;
            used += bytes;
            block_index += 1;
        }
        carried.drain(..used);
    }
    Ok(header)
}

/// Where a walk through the log ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Frames that were read.
    pub frames: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Number of the frame that would come next.
    pub next_frame_seq: u64,
    /// Where in the log it would be, unless it has no room there.
    pub next_offset_in_log: u64,
}

/// Reads the frames of the log from a log start on. `visit` gets each: its offset in the log, header, entries.
///
/// # Errors
/// The device's; an invalid frame is where the log ends.
pub async fn log(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    (start, entry_seq): (LogStart, u64),
    visit: &mut dyn FnMut(u64, &FrameHeader, &[LogEntry]),
) -> Result<LogEnd, EngineError> {
    let mut reader = LogReader::new(flash, superblock);
    let mut end =
        LogEnd { next_frame_seq: start.frame_seq, next_offset_in_log: start.offset_in_log, ..LogEnd::default() };
    let mut next_entry = entry_seq;
    let mut previous: Option<FrameHeader> = None;
    loop {
        let mut at = end.next_offset_in_log;
        let mut found = reader.frame(at, end.next_frame_seq, next_entry, previous.as_ref()).await?;
        if found.is_none() && at != 0 {
            at = 0;
            found = reader.frame(0, end.next_frame_seq, next_entry, previous.as_ref()).await?;
        }
        let Some((header, entries)) = found else { return Ok(end) };
        visit(at, &header, &entries);
        next_entry = header.entry_seq_next();
        end.frames += 1;
        end.entries += entries.len() as u64;
        end.bytes += u64::from(header.frame_bytes);
        end.next_frame_seq = end.next_frame_seq.saturating_add(1);
        end.next_offset_in_log = at + u64::from(header.frame_bytes);
        previous = Some(header);
    }
}

/// Searches the whole log for a frame that shows that durable frames before it were lost: a valid one of this flash, with
/// `next_frame_seq` or a higher number, that names such a number as durable. Its number and its offset in the log.
///
/// # Errors
/// The device's.
pub async fn lost_frame(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    next_frame_seq: u64,
) -> Result<Option<(u64, u64)>, EngineError> {
    let layout = &superblock.layout;
    let (tag, sector) = (superblock.flash_tag(), u64::from(layout.sector_bytes));
    let mut piece_at = 0;
    while piece_at < layout.log_bytes {
        let len = READ_BYTES.min(layout.log_bytes - piece_at);
        let piece = flash.read(layout.log_offset + piece_at, IoBuf::new(len as usize)).await?;
        for (number, head) in piece.chunks(sector as usize).enumerate() {
            let at = piece_at + number as u64 * sector;
            let Some(head) = head.get(..FRAME_HEADER_BYTES) else { continue };
            let Ok(header) = peek_frame(head, tag) else { continue };
            let frame_bytes = u64::from(header.frame_bytes);
            if header.start.frame_seq < next_frame_seq
                || header.start.durable_frame_seq < next_frame_seq
                || at + frame_bytes > layout.log_bytes
                || frame_bytes > FRAME_BYTES_MAX
            {
                continue;
            }
            let frame = flash.read(layout.log_offset + at, IoBuf::new(frame_bytes as usize)).await?;
            if decode_frame(&frame, tag).is_ok() {
                return Ok(Some((header.start.frame_seq, at)));
            }
        }
        piece_at += len;
    }
    Ok(None)
}

/// A segment as it lies in its slot.
pub struct Segment {
    /// Its header.
    pub header: SegmentHeader,
    /// Its record table.
    pub records: Result<Vec<RecordEntry>, FormatError>,
}

/// The segments of a slot in this generation, in order, from the bytes of the whole WEU; and why they end where they do.
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

/// Reads frames of the log, large pieces at a time.
pub struct LogReader<'a> {
    flash: &'a dyn BlockDevice,
    tag: u64,
    log_offset: u64,
    log_bytes: u64,
    sector_bytes: u64,
    piece: (u64, Arc<[u8]>),
}

impl<'a> LogReader<'a> {
    /// A reader of the log that `superblock` describes.
    pub fn new(flash: &'a dyn BlockDevice, superblock: &Superblock) -> Self {
        let layout = &superblock.layout;
        LogReader {
            flash,
            tag: superblock.flash_tag(),
            log_offset: layout.log_offset,
            log_bytes: layout.log_bytes,
            sector_bytes: u64::from(layout.sector_bytes),
            piece: (0, Arc::from([])),
        }
    }

    async fn bytes(&mut self, at: u64, len: u64) -> Result<Option<&[u8]>, EngineError> {
        if at + len > self.log_bytes {
            return Ok(None);
        }
        let (start, piece) = &self.piece;
        if at < *start || at + len > start + piece.len() as u64 {
            let read = READ_BYTES.max(len).min(self.log_bytes - at);
            let bytes = self.flash.read(self.log_offset + at, IoBuf::new(read as usize)).await?;
            self.piece = (at, Arc::from(&bytes[..]));
        }
        let from = (at - self.piece.0) as usize;
        Ok(self.piece.1.get(from..from + len as usize))
    }

    /// The frame at `at`, if it is whole and the one expected: its header and its entries. `previous`
    /// is the frame before it, where one was read.
    ///
    /// # Errors
    /// The device's. What is not a whole frame is no error: it is where the log ends.
    pub async fn frame(
        &mut self,
        at: u64,
        frame_seq: u64,
        entry_seq: u64,
        previous: Option<&FrameHeader>,
    ) -> Result<Option<(FrameHeader, Vec<LogEntry>)>, EngineError> {
        let tag = self.tag;
        let head = self.sector_bytes.max((FRAME_HEADER_BYTES + LOG_ENTRY_BYTES) as u64);
        let Some(bytes) = self.bytes(at, head).await? else { return Ok(None) };
        let Ok(header) = peek_frame(bytes, tag) else { return Ok(None) };
        if header.start.frame_seq != frame_seq || header.start.first_entry_seq != entry_seq {
            return Ok(None);
        }
        if previous.is_some_and(|previous| !header.follows(previous)) {
            return Ok(None);
        }
        let frame_bytes = u64::from(header.frame_bytes);
        let Some(bytes) = self.bytes(at, frame_bytes).await? else { return Ok(None) };
        Ok(decode_frame(bytes, tag).ok())
    }
}
