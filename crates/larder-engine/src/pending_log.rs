//! The entries that wait for a frame of the log, and the positions that callers wait for.
//!
//! Invariants: entries have consecutive numbers.
//!
//! It does not write the log.

use crate::{error::EngineError, log_area::LogArea};
use larder_core::{Lba, SlotId};
use larder_device::IoError;
use larder_format::LogEntry;
use std::collections::VecDeque;

/// Limit of waiting log entries, beyond which writers wait.
pub const PENDING_ENTRIES_MAX: usize = 1 << 16;

/// Entries that wait for the metadata log.
pub struct PendingLog {
    /// Entries, in order of decision.
    pub entries: VecDeque<LogEntry>,
    /// Sequence number of the first entry.
    pub first_seq: u64,
    /// Entries below this are durable.
    pub durable_below: u64,
    /// Entries that forget mappings are below this. A crash before they are durable undoes them.
    pub forgets_below: u64,
    /// A task waits for the entries below this.
    pub wanted_below: u64,
    /// The next commit also closes the open segments of clean data, and counts in `clean_closed`.
    pub close_clean: bool,
    /// A checkpoint asks for the commit, which may use the log's reserve.
    pub use_reserve: bool,
    /// The next commit makes the frame of this number durable, without entries if none waits.
    pub frame_wanted: u64,
    /// Commits that closed the open segments of clean data.
    pub clean_closed: u64,
    /// Commits of any kind.
    pub commits: u64,
    /// The committer has ended: no entry becomes durable any more.
    pub ended: bool,
    /// The error of the last commit, if it failed.
    pub error: Option<IoError>,
    /// The log area, which places frames.
    pub area: LogArea,
    /// Checksum of the last frame: the next frame names it.
    pub previous_crc: u32,
    /// The flash failed. Entries are numbered and dropped, because none becomes durable any more.
    pub dead: bool,
    /// Tries to write a checkpoint that began.
    pub checkpoint_tries: u64,
    /// Number and error of the last try, if it failed. While tries fail, the log is not filled up.
    pub checkpoint_failed: Option<(u64, EngineError)>,
}

/// The time of a request for a commit, in counts.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Commits that were over.
    pub commits: u64,
    /// Tries to write a checkpoint that had begun.
    pub checkpoint_tries: u64,
}

impl PendingLog {
    /// Returns the counts as of now.
    pub fn asked_now(&self) -> Asked {
        Asked { commits: self.commits, checkpoint_tries: self.checkpoint_tries }
    }

    /// Returns the sequence number of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.entries.len() as u64
    }

    /// Asks the next commit for the frame of this number.
    pub fn want_frame(&mut self, frame_seq: u64) {
        self.frame_wanted = self.frame_wanted.max(frame_seq);
    }

    /// Returns whether a commit still has to write a frame that was asked for.
    pub fn lacks_frame(&self) -> bool {
        self.area.position().frame_seq <= self.frame_wanted
    }

    /// Returns the error of a checkpoint that began after `tries` tries and failed.
    pub fn checkpoint_error(&self, tries: u64) -> Option<EngineError> {
        let (_, error) = self.checkpoint_failed.as_ref().filter(|(failed, _)| *failed > tries)?;
        Some(error.clone())
    }

    /// Notes an entry and returns its sequence number.
    pub fn push(&mut self, entry: LogEntry) -> u64 {
        // A `Clean` entry forgets a fragment, too.
        if matches!(entry, LogEntry::Invalidate { .. } | LogEntry::SlotFreed { .. } | LogEntry::Clean { .. }) {
            self.forgets_below = self.next_seq() + 1;
        }
        self.append(entry)
    }

    /// Notes that a slot is free. Its mappings stay for now, so no mapping is forgotten.
    pub fn push_freed_ahead(&mut self, slot: SlotId, generation: u32) -> u64 {
        self.append(LogEntry::SlotFreed { slot: slot.0, generation })
    }

    fn append(&mut self, entry: LogEntry) -> u64 {
        let seq = self.next_seq();
        if self.dead {
            self.first_seq += 1;
        } else {
            self.entries.push_back(entry);
        }
        seq
    }

    /// Drops the waiting entries after the flash failed: they never become durable. Returns the
    /// dirty chunks among them: first chunk, number of chunks, sequence number.
    pub fn die(&mut self) -> Vec<(Lba, u64, u64)> {
        self.dead = true;
        let first_seq = self.first_seq;
        self.first_seq = self.next_seq();
        self.wanted_below = 0;
        self.close_clean = false;
        self.use_reserve = false;
        self.frame_wanted = 0;
        let entries = std::mem::take(&mut self.entries);
        let dirty = |entry: &LogEntry| match *entry {
            LogEntry::Map { lba, dirty: true, .. }
            | LogEntry::MapZero { lba, dirty: true }
            | LogEntry::Fragment { lba, dirty: true, .. } => Some((Lba(lba), 1)),
            LogEntry::Trim { lba, chunk_count, dirty: true, .. } => Some((Lba(lba), chunk_count)),
            _ => None,
        };
        let numbered = (first_seq..).zip(&entries);
        numbered.filter_map(|(seq, entry)| dirty(entry).map(|(lba, count)| (lba, count, seq))).collect()
    }
}
