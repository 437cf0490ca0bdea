//! Searching the log for frames that show that durable ones before them were lost.
//!
//! Invariants: a frame's header shows it, also where the rest of the frame is damaged, too: of the frames that lie behind
//! the end of a log, a crash leaves one at most, and that one names none behind the end as durable.

use super::{READ_BYTES, READS_IN_FLIGHT, Reader, ahead::InOrder, log::Piece};
use crate::error::EngineError;
use larder_device::SharedBuf;
use larder_format::{
    Superblock,
    log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES},
    peek_frame,
};

/// A frame's number and its offset in the log.
type Found = Option<(u64, u64)>;

/// What is searched for, and where.
pub struct Search<'a> {
    reader: Reader<'a>,
    pub(super) tag: u64,
    log_offset: u64,
    log_bytes: u64,
    sector_bytes: u64,
    /// A frame with this number or a higher one, which names such a number as durable, shows a loss.
    pub(super) next_frame_seq: u64,
}

impl<'a> Search<'a> {
    /// A search in the log that `superblock` describes.
    pub fn new(reader: Reader<'a>, superblock: &Superblock, next_frame_seq: u64) -> Self {
        let layout = &superblock.layout;
        Search {
            reader,
            tag: superblock.flash_tag(),
            log_offset: layout.log_offset,
            log_bytes: layout.log_bytes.max(1),
            sector_bytes: u64::from(layout.sector_bytes).max(1),
            next_frame_seq,
        }
    }

    /// Searches all of the log.
    pub async fn everywhere(&self) -> Result<Found, EngineError> {
        self.here_and_there(0, self.log_bytes, u64::MAX).await
    }

    /// Searches `looks_max` pieces, evenly spread from `from` to `end`, or everything there if that is no more.
    pub async fn here_and_there(&self, from: u64, end: u64, looks_max: u64) -> Result<Found, EngineError> {
        let pieces = end.saturating_sub(from).div_ceil(READ_BYTES);
        let step = pieces.div_ceil(looks_max.max(1)).max(1) * READ_BYTES;
        let mut reads: InOrder<'a, (u64, Result<SharedBuf, EngineError>)> = InOrder::new();
        let mut at = from;
        loop {
            while reads.len() < READS_IN_FLIGHT && at < end {
                let offset = at % self.log_bytes;
                let bytes = READ_BYTES.min(end - at).min(self.log_bytes - offset);
                let (reader, piece_at, flash_offset) = (self.reader, at, self.log_offset + offset);
                reads.push(async move { (piece_at, reader.read(flash_offset, bytes).await.map(|buf| buf.freeze())) });
                // A piece that the end of the region cut short is followed by its rest.
                at += if bytes < READ_BYTES { bytes } else { step };
            }
            let Some((at, data)) = reads.next().await else { return Ok(None) };
            if let Some(found) = self.in_piece(&Piece { at, data: data? }, from).await? {
                return Ok(Some(found));
            }
        }
    }

    /// Searches the part of a piece that is not in front of `from`.
    pub(super) async fn in_piece(&self, piece: &Piece, from: u64) -> Result<Found, EngineError> {
        let first = from.max(piece.at);
        let skip = usize::try_from(first - piece.at).unwrap_or(usize::MAX);
        let sectors = piece.data.get(skip..).unwrap_or_default().chunks(self.sector_bytes as usize);
        for (number, sector) in (0..).zip(sectors) {
            let Some(header) = sector.get(..FRAME_HEADER_BYTES).and_then(|head| peek_frame(head, self.tag).ok()) else {
                continue;
            };
            let (at, bytes) = ((first + number * self.sector_bytes) % self.log_bytes, u64::from(header.frame_bytes));
            if header.start.frame_seq < self.next_frame_seq
                || header.start.durable_frame_seq < self.next_frame_seq
                || at + bytes > self.log_bytes
                || bytes > FRAME_BYTES_MAX
            {
                continue;
            }
            // Whole or not: a crash tears the frame that is being written, which names the one before it as durable. This one
            // was written later, so what it names was.
            return Ok(Some((header.start.frame_seq, at)));
        }
        Ok(None)
    }
}
