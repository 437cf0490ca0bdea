//! Noticing frames that show that durable ones before them were lost.
//!
//! A walk hands in every piece of the log that it reads, on its way and behind the end. What remains is the last frame whose
//! numbers go together, and those whose numbers do not, for damage may be all that a lost frame left: of the frames that lie
//! behind the end of a log, a crash leaves one at most, and that one names none behind the end as durable.
//!
//! Invariants: a frame's header shows it, also where the rest of the frame is damaged, and a field of the header. Damage to a
//! frame that nobody needs shows nothing. At most [`ODD_MAX`] odd frames are remembered.
//!
//! What it does not do: read.

use super::log::Piece;
use larder_format::{FrameStart, Superblock, log::FRAME_HEADER_BYTES, traces_of_frame};

/// Odd frames that are remembered. Where there are more, the log has other troubles.
const ODD_MAX: usize = 256;

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
    /// The one with the highest number, of those whose numbers go together.
    last: Option<Met>,
    /// Those whose numbers do not.
    odd: Vec<Met>,
}

impl Evidence {
    /// None yet, of the log that `superblock` describes.
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

    /// Looks at each sector of a piece, for a frame may begin there.
    pub(super) fn look_at(&mut self, piece: &Piece) {
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

    /// A frame that shows that the one which would come next where the log ends, `frame_seq` with entries from `entry_seq` on,
    /// was durable once: its number and its offset in the log.
    pub(super) fn of_loss_from(&self, frame_seq: u64, entry_seq: u64) -> Option<(u64, u64)> {
        let mut met = self.last.iter().chain(&self.odd);
        let met = met.find(|met| met.says.shows_durable(frame_seq, entry_seq, self.log_bytes))?;
        Some((met.says.frame_seq, met.offset_in_log))
    }
}
