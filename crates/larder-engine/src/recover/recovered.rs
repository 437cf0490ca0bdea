//! The outcome of a recovery.
//!
//! Invariants: it describes one opening.
//!
//! It does not recover.

use crate::{geometry::Geometry, lacked, state::State};
use larder_format::{LogStart, Superblock};

/// The findings of the opening.
pub struct Recovered {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// Its twin that needs repair.
    pub repair: Option<usize>,
    /// The state.
    pub state: State,
    /// Sizes.
    pub geometry: Geometry,
    /// The counts of the reading.
    pub report: RecoveryReport,
    /// Clean mappings of the checkpoint were forgotten, and a later opening may find them again.
    pub is_incomplete: bool,
}

impl Recovered {
    /// Returns the end of the log: the place of the next frame, and the number of its first entry.
    pub fn log_end(&self) -> (LogStart, u64) {
        let position = self.state.log.area().position();
        let start = LogStart { offset_in_log: position.offset, frame_seq: position.frame_seq };
        (start, self.state.log.next_seq())
    }

    /// Returns the bytes of the volume that are dirty, or trimmed without notice to the origin.
    pub fn dirty_bytes(&self) -> u64 {
        let dirty = self.state.design().dirty_counts();
        (dirty.chunks + dirty.run_chunks) * self.geometry.chunk_bytes as u64
    }

    /// Returns the words for these bytes, `None` without any.
    pub(crate) fn lacked(&self) -> Option<String> {
        let dirty = self.state.design().dirty_counts();
        (self.dirty_bytes() > 0).then(|| lacked::exactly(&dirty, self.geometry.chunk_bytes as u64))
    }
}

/// The counts and findings of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecoveryReport {
    /// The last end was clean.
    pub clean_shutdown: bool,
    /// Mappings in the checkpoint.
    pub checkpoint_mappings: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Frames of the log that were replayed.
    pub log_frames: u64,
    /// Entries in them.
    pub log_entries: u64,
    /// Bytes of them.
    pub log_bytes: u64,
    /// The mark of the origin shows that no other program wrote to it since the last end.
    #[serde(skip)]
    pub origin_is_unchanged: bool,
}
