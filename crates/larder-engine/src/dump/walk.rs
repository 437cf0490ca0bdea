//! Reading the structures on a flash one after the other, as they lie there: superblock twins, checkpoint blocks, log
//! frames, segments.
//!
//! Invariants: nothing is written, and nothing that was read is trusted: what does not decode is an error with its place.
//!
//! What it does not do: make a state of it; [`recover`](crate::recover) does.

use crate::{error::EngineError, recover::LogReader};
use larder_device::{BlockDevice, IoBuf};
use larder_format::{
    BlockIdentity, CheckpointBlock, CheckpointHeader, CheckpointPointer, FormatError, FrameHeader, LogEntry, LogStart,
    RecordEntry, SegmentHeader, Structure, Superblock,
    checkpoint::{BLOCK_BYTES_MAX, CHECKPOINT_HEADER_BYTES},
    decode_frame,
    layout::SUPERBLOCK_OFFSETS,
    log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES},
    peek_frame,
    segment::{decode_header, decode_table},
    superblock::SUPERBLOCK_BYTES,
};

/// Bytes that are read at once where a whole region is searched.
const SEARCH_BYTES: u64 = 1 << 20;

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
    let (mut at, end) = (start + CHECKPOINT_HEADER_BYTES as u64, start + header.total_bytes);
    for block_index in 0..header.block_count {
        let len = end.saturating_sub(at).min(BLOCK_BYTES_MAX as u64);
        let bytes = flash.read(at, IoBuf::new(len as usize)).await?;
        let identity = BlockIdentity { flash_tag, checkpoint_id: header.checkpoint_id, block_index };
        let (block, used) = CheckpointBlock::decode(&bytes, &identity)?;
        visit(block_index, at, used, block);
        at += used as u64;
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
        let len = SEARCH_BYTES.min(layout.log_bytes - piece_at);
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
