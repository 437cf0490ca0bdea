//! Frames of the metadata log, wherever they lie in it.
//!
//! Invariants: a frame counts only with its checksum; nothing is written.
//!
//! What it does not do: decide which of them belong together.

use super::window::Window;
use larder_format::{
    FrameHeader, LogEntry, Superblock, decode_frame,
    log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES},
    peek_frame,
};

/// A frame, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAt {
    /// Bytes from the start of the log.
    pub offset_in_log: u64,
    /// Its size.
    pub frame_bytes: u32,
    /// Its number.
    pub frame_seq: u64,
    /// The sequence number of its first entry.
    pub first_entry_seq: u64,
    /// The number after that of its last entry.
    pub entry_seq_next: u64,
    /// The newest frame that was durable when it was written.
    pub durable_frame_seq: u64,
}

/// What a look at one place of the log found.
enum Look {
    Whole(FrameHeader, Vec<LogEntry>),
    /// A header that nothing vouches for: the rest of the frame is not as its checksum says.
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
    let header = peek_frame(window.bytes(at, sector.max(FRAME_HEADER_BYTES)).await, tag).ok()?;
    let bytes = u64::from(header.frame_bytes);
    if bytes > FRAME_BYTES_MAX || offset_in_log + bytes > layout.log_bytes {
        return None;
    }
    Some(match decode_frame(window.bytes(at, bytes as usize).await, tag) {
        Ok((header, entries)) => Look::Whole(header, entries),
        Err(_) => Look::Head(header),
    })
}

/// The frame at an offset in the log, if a whole one is there.
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

/// What lies in the log.
#[derive(Default)]
pub struct Lying {
    /// All whole frames of this flash, by number.
    pub whole: Vec<FrameAt>,
    /// Headers of frames that are not whole, by number.
    pub heads: Vec<FrameAt>,
}

impl Lying {
    /// A frame that is not whole and says that frame `lost`, or one behind it, was durable. A crash leaves none: it tears
    /// the frame that is being written, and the next is not begun before.
    pub fn proof_of_loss(&self, lost: u64) -> Option<&FrameAt> {
        self.heads.iter().find(|head| {
            // What a frame says of itself, in three fields that go together.
            head.frame_seq > lost && head.durable_frame_seq >= lost && head.durable_frame_seq < head.frame_seq
        })
    }
}

/// Looks at all of the log.
pub async fn scan(window: &mut Window<'_>, superblock: &Superblock) -> Lying {
    let layout = &superblock.layout;
    let sector = u64::from(layout.sector_bytes.max(512));
    let mut lying = Lying::default();
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
        list.push(FrameAt {
            offset_in_log: offset,
            frame_bytes: header.frame_bytes,
            frame_seq: header.start.frame_seq,
            first_entry_seq: header.start.first_entry_seq,
            entry_seq_next: header.entry_seq_next(),
            durable_frame_seq: header.start.durable_frame_seq,
        });
        // Inside a whole frame is no other.
        offset += match found {
            Some(Look::Whole(header, _)) => u64::from(header.frame_bytes).max(sector),
            _ => sector,
        };
    }
    lying.whole.sort_by_key(|frame| frame.frame_seq);
    lying.heads.sort_by_key(|frame| frame.frame_seq);
    lying
}
