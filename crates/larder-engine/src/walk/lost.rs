//! Noticing frames that show that durable ones before them were lost.
//!
//! A walk hands in every piece of the log that it reads, on its way and behind the end. What remains are the frames with the
//! highest number and with the highest name of a durable frame: of those that lie behind the end of a log, a crash leaves one
//! at most, and that one names none behind the end as durable.
//!
//! Invariants: a frame's header shows it, also where the rest of the frame is damaged, and a field of the header.
//!
//! What it does not do: read.

use super::log::Piece;
use larder_format::{FrameStart, Superblock, log::FRAME_HEADER_BYTES, traces_of_frame};

/// A frame that was met.
#[derive(Clone, Copy, Debug)]
struct Met {
    says: FrameStart,
    offset_in_log: u64,
}

/// What the frames that were met show.
pub(super) struct Evidence {
    flash_tag: u64,
    log_bytes: u64,
    sector_bytes: u64,
    /// The one with the highest number, and the one that names the highest as durable: of each, any other shows less, and one
    /// damaged number spoils one of the two.
    highest: [Option<Met>; 2],
}

impl Evidence {
    /// None yet, of the log that `superblock` describes.
    pub(super) fn new(superblock: &Superblock) -> Self {
        let layout = &superblock.layout;
        Evidence {
            flash_tag: superblock.flash_tag(),
            log_bytes: layout.log_bytes.max(1),
            sector_bytes: u64::from(layout.sector_bytes).max(1),
            highest: [None; 2],
        }
    }

    /// Looks at each sector of a piece, for a frame may begin there.
    pub(super) fn look_at(&mut self, piece: &Piece) {
        for (number, sector) in (0..).zip(piece.data.chunks(self.sector_bytes as usize)) {
            let head = sector.get(..FRAME_HEADER_BYTES);
            let Some(header) = head.and_then(|head| traces_of_frame(head, self.flash_tag)) else { continue };
            let offset_in_log = (piece.at + number * self.sector_bytes) % self.log_bytes;
            let met = Met { says: header.start, offset_in_log };
            let numbers = |met: &Met| [met.says.frame_seq, met.says.durable_frame_seq];
            for (which, highest) in self.highest.iter_mut().enumerate() {
                if highest.is_none_or(|highest| numbers(&highest)[which] < numbers(&met)[which]) {
                    *highest = Some(met);
                }
            }
        }
    }

    /// A frame that shows that the one which would come next where the log ends, `frame_seq` with entries from `entry_seq` on,
    /// was durable once: its number and its offset in the log.
    pub(super) fn of_loss_from(&self, frame_seq: u64, entry_seq: u64) -> Option<(u64, u64)> {
        let met = self.highest.iter().flatten().find(|met| met.says.shows_durable(frame_seq, entry_seq))?;
        Some((met.says.frame_seq, met.offset_in_log))
    }
}
