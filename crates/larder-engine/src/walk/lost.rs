//! Noticing frames that show the loss of durable frames before them.
//!
//! A walk hands in every piece of the log that it reads, on its way and behind the end. The
//! evidence keeps the last frame whose numbers go together. It also keeps the frames whose numbers
//! do not, because a lost frame may have left only damage. Behind the end of a log, a crash leaves
//! one frame at most, and that frame names none behind the end as durable.
//!
//! Invariants: a frame's header shows a loss, even if the rest of the frame and one field of the
//! header are damaged. Damage to a frame that the log does not need shows no loss. At most
//! [`ODD_MAX`] odd frames are remembered.
//!
//! It does not read.

use super::piece::LogPiece;
use larder_format::{FrameStart, Superblock, log::FRAME_HEADER_BYTES, traces_of_frame};

/// Limit of odd frames that are remembered. A log with more has other troubles.
const ODD_MAX: usize = 256;

/// A frame that the walk met.
#[derive(Clone, Copy, Debug)]
struct Met {
    says: FrameStart,
    offset_in_log: u64,
}

/// The evidence of the frames that the walk met.
pub(super) struct Evidence {
    flash_tag: u64,
    log_bytes: u64,
    sector_bytes: u64,
    /// The frame with the highest number, of those whose numbers go together.
    last: Option<Met>,
    /// The frames whose numbers do not go together.
    odd: Vec<Met>,
}

impl Evidence {
    /// Returns an empty evidence for the log that `superblock` describes.
    pub(super) fn new(superblock: &Superblock) -> Self {
        let layout = &superblock.layout;
        Evidence {
            flash_tag: superblock.flash_tag(),
            log_bytes: layout.log_bytes.max(1),
            sector_bytes: u64::from(layout.sector_bytes).max(1),
            last: None,
            odd: Vec::new(),
        }
    }

    /// Looks at each sector of a piece, because a frame may begin there.
    pub(super) fn look_at(&mut self, piece: &LogPiece) {
        for (number, sector) in (0..).zip(piece.data.chunks(self.sector_bytes as usize)) {
            let head = sector.get(..FRAME_HEADER_BYTES);
            let Some(header) = head.and_then(|head| traces_of_frame(head, self.flash_tag)) else { continue };
            let offset_in_log = (piece.at + number * self.sector_bytes) % self.log_bytes;
            let met = Met { says: header.start, offset_in_log };
            if met.says.is_consistent() {
                if self.last.is_none_or(|last| last.says.frame_seq < met.says.frame_seq) {
                    self.last = Some(met);
                }
            } else if self.odd.len() < ODD_MAX {
                self.odd.push(met);
            }
        }
    }

    /// Returns the number and offset of a frame that shows a loss behind the end of the log.
    ///
    /// The next frame at that end would be `frame_seq`, with entries from `entry_seq` on. A loss
    /// means that it was durable once.
    pub(super) fn of_loss_from(&self, frame_seq: u64, entry_seq: u64) -> Option<(u64, u64)> {
        let mut met = self.last.iter().chain(&self.odd);
        let met = met.find(|met| met.says.shows_durable(frame_seq, entry_seq, self.log_bytes))?;
        Some((met.says.frame_seq, met.offset_in_log))
    }
}
