//! Noticing frames that show that durable ones before them were lost.
//!
//! A walk hands in every piece of the log that it reads, on its way and behind the end. What remains is the frame that
//! shows the most: one with a number, and with the name of a durable frame, that are both as high as can be.
//!
//! Invariants: a frame's header shows it, also where the rest of the frame is damaged, too: of the frames that lie behind
//! the end of a log, a crash leaves one at most, and that one names none behind the end as durable.
//!
//! What it does not do: read.

use super::log::Piece;
use larder_format::{
    Superblock,
    log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES},
    peek_frame,
};

/// A frame that was met.
#[derive(Clone, Copy, Debug)]
struct Met {
    /// Frames up to this number were begun, and those in front of it durable.
    shows: u64,
    frame_seq: u64,
    offset_in_log: u64,
}

/// What the frames that were met show.
pub(super) struct Evidence {
    flash_tag: u64,
    log_bytes: u64,
    sector_bytes: u64,
    most: Option<Met>,
}

impl Evidence {
    /// None yet, of the log that `superblock` describes.
    pub(super) fn new(superblock: &Superblock) -> Self {
        let layout = &superblock.layout;
        Evidence {
            flash_tag: superblock.flash_tag(),
            log_bytes: layout.log_bytes.max(1),
            sector_bytes: u64::from(layout.sector_bytes).max(1),
            most: None,
        }
    }

    /// Looks at each sector of a piece, for a frame may begin there.
    pub(super) fn look_at(&mut self, piece: &Piece) {
        for (number, sector) in (0..).zip(piece.data.chunks(self.sector_bytes as usize)) {
            let Some(header) = sector.get(..FRAME_HEADER_BYTES).and_then(|head| peek_frame(head, self.flash_tag).ok())
            else {
                continue;
            };
            let (frame_seq, bytes) = (header.start.frame_seq, u64::from(header.frame_bytes));
            let met = Met {
                // A crash tears the frame that is being written, which names the one before it as durable.
                shows: frame_seq.min(header.start.durable_frame_seq),
                frame_seq,
                offset_in_log: (piece.at + number * self.sector_bytes) % self.log_bytes,
            };
            let fits = bytes <= FRAME_BYTES_MAX && met.offset_in_log + bytes <= self.log_bytes;
            if fits && self.most.is_none_or(|most| most.shows < met.shows) {
                self.most = Some(met);
            }
        }
    }

    /// A frame that shows that `next_frame_seq`, where the log ends, was durable once: its number and its offset in the log.
    pub(super) fn of_loss_from(&self, next_frame_seq: u64) -> Option<(u64, u64)> {
        let met = self.most.filter(|most| most.shows >= next_frame_seq)?;
        Some((met.frame_seq, met.offset_in_log))
    }
}
