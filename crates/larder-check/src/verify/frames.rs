//! Frames of the metadata log, at any place in it.
//!
//! Invariants: a frame counts only with its checksum; it does not write.
//!
//! It does not decide which frames belong together.

use super::window::Window;
use larder_format::{
    FrameHeader, LogEntry, Superblock, decode_frame,
    log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES},
    traces_of_frame,
};

/// A frame and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAt {
    /// Bytes from the start of the log.
    pub offset_in_log: u64,
    /// Its header.
    pub header: FrameHeader,
}

/// The finding at one place of the log.
enum Look {
    Whole(FrameHeader, Vec<LogEntry>),
    /// A header without proof: the rest of the frame does not match its checksum.
    Head(FrameHeader),
}

async fn look(window: &mut Window<'_>, superblock: &Superblock, offset_in_log: u64) -> Option<Look> {
    let layout = &superblock.layout;
    if offset_in_log >= layout.log_bytes {
        return None;
    }
    let tag = superblock.flash_tag();
    let at = layout.log_offset + offset_in_log;
    let sector = layout.sector_bytes as usize;
    let header = traces_of_frame(window.bytes(at, sector.max(FRAME_HEADER_BYTES)).await, tag)?;
    let bytes = u64::from(header.frame_bytes);
    if bytes > FRAME_BYTES_MAX || offset_in_log + bytes > layout.log_bytes {
        return Some(Look::Head(header));
    }
    Some(match decode_frame(window.bytes(at, bytes as usize).await, tag) {
        Ok((header, entries)) => Look::Whole(header, entries),
        Err(_) => Look::Head(header),
    })
}

/// Returns the frame at an offset in the log, if a whole one is there.
pub async fn at(
    window: &mut Window<'_>,
    superblock: &Superblock,
    offset_in_log: u64,
) -> Option<(FrameHeader, Vec<LogEntry>)> {
    match look(window, superblock, offset_in_log).await? {
        Look::Whole(header, entries) => Some((header, entries)),
        Look::Head(_) => None,
    }
}

/// The frames in the log.
#[derive(Default)]
pub struct Lying {
    log_bytes: u64,
    /// All whole frames of this flash, by number.
    pub whole: Vec<FrameAt>,
    /// Headers of frames that are not whole, by number.
    pub heads: Vec<FrameAt>,
}

impl Lying {
    /// Returns a frame that is not whole and shows that frame `frame_seq` was durable. See
    /// [`FrameStart::shows_durable`](larder_format::FrameStart::shows_durable).
    ///
    /// Its first entry would be `entry_seq`.
    pub fn proof_of_loss(&self, frame_seq: u64, entry_seq: u64) -> Option<&FrameAt> {
        self.heads.iter().find(|head| head.header.start.shows_durable(frame_seq, entry_seq, self.log_bytes))
    }

    /// Returns the frame that is not whole and takes the place of this one, which would come next.
    pub fn torn(&self, frame_seq: u64, entry_seq: u64) -> Option<&FrameAt> {
        self.heads.iter().find(|head| {
            let (start, before) = (head.header.start, frame_seq.saturating_sub(1));
            let votes =
                [start.frame_seq == frame_seq, start.durable_frame_seq == before, start.first_entry_seq == entry_seq];
            votes.into_iter().filter(|&vote| vote).count() >= 2
        })
    }
}

/// Looks at all of the log.
pub async fn scan(window: &mut Window<'_>, superblock: &Superblock) -> Lying {
    let layout = &superblock.layout;
    let sector = u64::from(layout.sector_bytes.max(512));
    let mut lying = Lying { log_bytes: layout.log_bytes, ..Lying::default() };
    let mut offset = 0;
    while offset < layout.log_bytes {
        let found = look(window, superblock, offset).await;
        let (header, list) = match &found {
            Some(Look::Whole(header, _)) => (header, &mut lying.whole),
            Some(Look::Head(header)) => (header, &mut lying.heads),
            None => {
                offset += sector;
                continue;
            }
        };
        list.push(FrameAt { offset_in_log: offset, header: *header });
        // A whole frame contains no other.
        offset += match found {
            Some(Look::Whole(header, _)) => u64::from(header.frame_bytes).max(sector),
            _ => sector,
        };
    }
    lying.whole.sort_by_key(|frame| frame.header.start.frame_seq);
    lying.heads.sort_by_key(|frame| frame.header.start.frame_seq);
    lying
}
