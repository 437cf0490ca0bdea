//! Reading the metadata log: frame after frame from its start, until one is not whole or not the
//! next.
//!
//! Large pieces are read ahead. The walk follows the headers of the frames in a piece, which give
//! the place of the next frame, without a check. Workers then check and decode the frames, and only
//! whole frames are handed on, in order. If an unchecked header led astray, its frame turns out not
//! to be whole, and the log ends before it.
//!
//! Places are counted on past the end of the region: a place plus `log_bytes` is the same place in
//! the next round. So places only grow, and a walk never reads more than one round.
//!
//! Invariants: a frame that is handed on is whole, and follows the one before by number, entry and
//! checksum.

use super::{
    ahead::InOrder,
    lost::Evidence,
    reader::{READ_BYTES, READS_IN_FLIGHT, Reader},
};
use crate::error::EngineError;
use crate::walk::piece::LogPiece;
use larder_device::SharedBuf;
use larder_format::{
    FrameHeader, LogEntry, LogStart, METADATA_ALIGN_BYTES, Superblock, decode_frame,
    log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES},
    peek_frame,
};
use std::collections::VecDeque;

/// Limit of the pieces whose frames are decoded ahead of their handing on.
const DECODING_MAX: usize = 4;

/// The end of a walk through the log.
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
    /// Number of its first entry.
    pub next_entry_seq: u64,
    /// Its place in the log, unless it has no room there.
    pub next_offset_in_log: u64,
}

/// The required values of the next frame.
#[derive(Clone, Copy)]
struct Next {
    at: u64,
    frame_seq: u64,
    entry_seq: u64,
    previous: Option<FrameHeader>,
}

impl Next {
    fn is(&self, header: &FrameHeader) -> bool {
        header.start.frame_seq == self.frame_seq
            && header.start.first_entry_seq == self.entry_seq
            && self.previous.is_none_or(|previous| header.follows(&previous))
    }

    fn after(&self, header: &FrameHeader) -> Next {
        Next {
            at: self.at + u64::from(header.frame_bytes),
            frame_seq: self.frame_seq.saturating_add(1),
            entry_seq: header.entry_seq_next(),
            previous: Some(*header),
        }
    }
}

/// Frames that lie one behind the other, and their pieces.
struct Run {
    first_at: u64,
    frames: usize,
    pieces: Vec<LogPiece>,
}

/// The frames of a run up to the first that is not whole.
struct DecodedFrames {
    frames: Vec<(FrameHeader, Vec<LogEntry>)>,
    all: bool,
}

/// A walk through the log.
pub struct LogWalk<'a> {
    reader: Reader<'a>,
    evidence: Evidence,
    flash_tag: u64,
    log_offset: u64,
    log_bytes: u64,
    sector_bytes: u64,
    next: Next,
    /// The end of the round: one round after the start.
    round_end: u64,
    reads: InOrder<'a, (u64, Result<SharedBuf, EngineError>)>,
    reads_max: usize,
    /// The place of the next read.
    read_at: u64,
    /// Pieces that were read and are still of use, without gaps.
    held: VecDeque<LogPiece>,
    end: LogEnd,
}

impl<'a> LogWalk<'a> {
    /// Returns a walk through the log of `superblock`, from a log start and its entry number on.
    pub fn new(reader: Reader<'a>, superblock: &Superblock, (start, entry_seq): (LogStart, u64)) -> Self {
        let layout = &superblock.layout;
        // A place behind the region is invalid: the walk begins at the start of the region.
        let at = start.offset_in_log.min(layout.log_bytes);
        let round_end = at.saturating_add(layout.log_bytes);
        LogWalk {
            reader,
            evidence: Evidence::new(superblock),
            flash_tag: superblock.flash_tag(),
            log_offset: layout.log_offset,
            log_bytes: layout.log_bytes.max(1),
            sector_bytes: u64::from(layout.sector_bytes),
            next: Next { at, frame_seq: start.frame_seq, entry_seq, previous: None },
            round_end,
            reads: InOrder::new(),
            // A few frames at most follow a clean end.
            reads_max: if superblock.clean_shutdown { 1 } else { READS_IN_FLIGHT },
            read_at: at,
            held: VecDeque::new(),
            end: LogEnd {
                next_frame_seq: start.frame_seq,
                next_entry_seq: entry_seq,
                next_offset_in_log: at,
                ..LogEnd::default()
            },
        }
    }

    /// Reads the frames. `visit` gets the offset in the log, the header and the entries of each.
    ///
    /// # Errors
    /// Errors of the device; an invalid frame is the end of the log.
    pub async fn to_the_end(
        &mut self,
        visit: &mut dyn FnMut(u64, &FrameHeader, &[LogEntry]),
    ) -> Result<LogEnd, EngineError> {
        // The place that the headers lead to, ahead of the frames known to be whole.
        let mut ahead = self.next;
        let mut decoding = InOrder::new();
        loop {
            while decoding.len() < DECODING_MAX
                && let Some(run) = self.follow(&mut ahead).await?
            {
                let tag = self.flash_tag;
                decoding.push(self.reader.decoded(move || decode(&run, tag)));
            }
            let decoded: Option<Result<DecodedFrames, EngineError>> = decoding.next().await;
            let mut is_end = decoded.is_none();
            if let Some(decoded) = decoded {
                let decoded = decoded?;
                for (header, entries) in &decoded.frames {
                    self.visited(header, entries, visit);
                }
                is_end = !decoded.all;
            }
            if is_end {
                decoding = InOrder::new();
                if !self.wrap().await? {
                    return Ok(self.end);
                }
                ahead = self.next;
            }
        }
    }

    fn visited(
        &mut self,
        header: &FrameHeader,
        entries: &[LogEntry],
        visit: &mut dyn FnMut(u64, &FrameHeader, &[LogEntry]),
    ) {
        visit(self.next.at % self.log_bytes, header, entries);
        self.next = self.next.after(header);
        self.end.frames += 1;
        self.end.entries += entries.len() as u64;
        self.end.bytes += u64::from(header.frame_bytes);
        self.end.next_frame_seq = self.next.frame_seq;
        self.end.next_entry_seq = self.next.entry_seq;
        // The end of the region stays the end, and does not become offset 0.
        self.end.next_offset_in_log = (self.next.at - 1) % self.log_bytes + 1;
        while self.held.len() > 1 && self.held.front().is_some_and(|piece| piece.end() <= self.next.at) {
            self.held.pop_front();
        }
    }

    /// Returns the frames that begin in the piece of `ahead`, and moves `ahead` behind them.
    /// Returns `None` without a header of the next frame.
    async fn follow(&mut self, ahead: &mut Next) -> Result<Option<Run>, EngineError> {
        let Some(first) = self.piece_at(ahead.at).await? else { return Ok(None) };
        let (first_at, mut frames) = (ahead.at, 0);
        let mut before = *ahead;
        while let Some(header) = self.header_in(&first, ahead) {
            before = *ahead;
            *ahead = ahead.after(&header);
            frames += 1;
        }
        // The last frame may reach into the next pieces.
        let mut pieces = vec![first];
        while let Some(last) = pieces.last().filter(|last| last.end() < ahead.at) {
            match self.piece_at(last.end()).await? {
                Some(piece) => pieces.push(piece),
                None => {
                    *ahead = before;
                    frames -= 1;
                    pieces.truncate(1);
                }
            }
        }
        Ok((frames > 0).then_some(Run { first_at, frames, pieces }))
    }

    /// Returns the header at `next` if it is in this piece and fits. Its frame must be the next one
    /// and end in the region.
    fn header_in(&self, piece: &LogPiece, next: &Next) -> Option<FrameHeader> {
        let from = usize::try_from(next.at.checked_sub(piece.at)?).ok()?;
        let header = peek_frame(piece.data.get(from..from + FRAME_HEADER_BYTES)?, self.flash_tag).ok()?;
        let fits = next.at % self.log_bytes + u64::from(header.frame_bytes) <= self.log_bytes;
        (fits && next.is(&header)).then_some(header)
    }

    /// Returns the piece that holds `at`, or `None` behind the end of the round.
    async fn piece_at(&mut self, at: u64) -> Result<Option<LogPiece>, EngineError> {
        loop {
            if let Some(piece) = self.held.iter().find(|piece| (piece.at..piece.end()).contains(&at)) {
                return Ok(Some(piece.clone()));
            }
            if !self.read_on().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next piece. Returns false at the end of the pieces.
    async fn read_on(&mut self) -> Result<bool, EngineError> {
        while self.reads.len() < self.reads_max && self.read_at < self.round_end {
            let at = self.read_at;
            let offset = at % self.log_bytes;
            // All pieces but the first begin with a sector, for sectors of any size.
            let whole = READ_BYTES - offset % METADATA_ALIGN_BYTES;
            let bytes = whole.min(self.round_end - at).min(self.log_bytes - offset);
            self.read_at += bytes;
            let (reader, from) = (self.reader, self.log_offset + offset);
            self.reads.push(async move { (at, reader.read(from, bytes).await.map(|buf| buf.freeze())) });
        }
        let Some((at, data)) = self.reads.next().await else { return Ok(false) };
        let piece = LogPiece { at, data: data? };
        self.evidence.look_at(&piece);
        self.held.push_back(piece);
        Ok(true)
    }

    /// Looks for the next frame at offset 0, and moves the walk there. Returns whether it is there.
    ///
    /// No frame lies at the place of the next one: the writer may have had no room in front of the
    /// end of the region.
    async fn wrap(&mut self) -> Result<bool, EngineError> {
        let zero = self.next.at.next_multiple_of(self.log_bytes);
        if zero == self.next.at || zero >= self.round_end {
            return Ok(false);
        }
        let head = self.reader.read(self.log_offset, self.sector_bytes.max(FRAME_HEADER_BYTES as u64)).await?;
        let Some(header) = peek_frame(&head, self.flash_tag).ok().filter(|header| self.next.is(header)) else {
            return Ok(false);
        };
        let bytes = u64::from(header.frame_bytes);
        if bytes > FRAME_BYTES_MAX.min(self.log_bytes) {
            return Ok(false);
        }
        let frame = self.reader.read(self.log_offset, bytes.next_multiple_of(self.sector_bytes)).await?;
        if decode_frame(&frame, self.flash_tag).is_err() {
            return Ok(false);
        }
        // The frame is whole: the pieces before it are of no more use.
        self.next.at = zero;
        while self.held.front().is_some_and(|piece| piece.at < zero) {
            self.held.pop_front();
        }
        Ok(true)
    }

    /// Looks behind the end of the log for a frame that shows the loss of durable frames.
    ///
    /// Such a frame belongs to this flash and has a number that was not read. It names such a
    /// number as durable. Returns its number and its offset in the log. The search reads the rest
    /// of the round.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn lost_frame(&mut self) -> Result<Option<(u64, u64)>, EngineError> {
        self.reads_max = READS_IN_FLIGHT;
        self.held.clear();
        while self.read_on().await? {
            self.held.clear();
        }
        Ok(self.evidence.of_loss_from(self.next.frame_seq, self.next.entry_seq))
    }
}

fn decode(run: &Run, tag: u64) -> DecodedFrames {
    let mut frames = Vec::with_capacity(run.frames);
    let mut at = run.first_at;
    let first = run.pieces.first();
    for number in 0..run.frames {
        let whole = first.and_then(|piece| piece.data.get((at - piece.at) as usize..));
        let frame = if number + 1 == run.frames && run.pieces.len() > 1 {
            decode_frame(&joined(whole.unwrap_or_default(), &run.pieces, tag), tag)
        } else {
            decode_frame(whole.unwrap_or_default(), tag)
        };
        let Ok((header, entries)) = frame else { return DecodedFrames { frames, all: false } };
        at += u64::from(header.frame_bytes);
        frames.push((header, entries));
    }
    DecodedFrames { frames, all: true }
}

/// Joins a frame that begins as `begin`, at the end of the first piece, and goes on in the others.
fn joined(begin: &[u8], pieces: &[LogPiece], tag: u64) -> Vec<u8> {
    let frame_bytes = peek_frame(begin, tag).map_or(0, |header| header.frame_bytes as usize);
    let mut frame = Vec::with_capacity(frame_bytes);
    frame.extend_from_slice(begin);
    for piece in pieces.iter().skip(1) {
        let missing = frame_bytes.saturating_sub(frame.len());
        frame.extend_from_slice(piece.data.get(..missing).unwrap_or(&piece.data));
    }
    frame
}
