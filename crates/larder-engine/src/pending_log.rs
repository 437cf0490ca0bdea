//! The entries that wait for a frame of the log, and the positions that callers wait for.
//!
//! Invariants: entries have consecutive numbers.
//!
//! It does not write the log.

use crate::{
    degraded::flash_health::UndurableRun,
    error::EngineError,
    log_area::{LogArea, LogPosition},
};
use larder_core::{Lba, SlotId};
use larder_device::IoError;
use larder_format::LogEntry;
use std::collections::VecDeque;

/// Entries that wait for the metadata log.
pub struct PendingLog {
    /// Entries, in order of decision.
    entries: VecDeque<LogEntry>,
    /// Sequence number of the first entry.
    first_seq: u64,
    durable_below: u64,
    forgets_below: u64,
    /// A task waits for the entries below this.
    wanted_below: u64,
    close_clean: bool,
    use_reserve: bool,
    /// The next commit makes the frame of this number durable, without entries if none waits.
    frame_wanted: u64,
    clean_closed: u64,
    /// Commits of any kind.
    commits: u64,
    has_ended: bool,
    /// The error of the last commit, if it failed.
    error: Option<IoError>,
    area: LogArea,
    /// Checksum of the last frame: the next frame names it.
    previous_crc: u32,
    /// The flash failed. Entries are numbered and dropped, because none becomes durable any more.
    is_dead: bool,
    checkpoint_tries: u64,
    /// Number and error of the last try, if it failed. While tries fail, the log is not filled up.
    checkpoint_failed: Option<(u64, EngineError)>,
}

/// The time of a request for a commit, in counts.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Commits that were over.
    commits: u64,
    /// Tries to write a checkpoint that had begun.
    pub checkpoint_tries: u64,
}

impl PendingLog {
    /// Returns the log of an opening: the number of its next entry, and its last frame's checksum.
    pub fn new(next_seq: u64, area: LogArea, previous_crc: u32) -> Self {
        PendingLog {
            entries: VecDeque::new(),
            first_seq: next_seq,
            durable_below: next_seq,
            forgets_below: 0,
            wanted_below: 0,
            close_clean: false,
            use_reserve: false,
            frame_wanted: 0,
            clean_closed: 0,
            commits: 0,
            has_ended: false,
            error: None,
            area,
            previous_crc,
            is_dead: false,
            checkpoint_tries: 0,
            checkpoint_failed: None,
        }
    }

    /// Returns the number of waiting entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether a waiting entry meets the condition.
    pub fn has_any(&self, is_it: impl Fn(&LogEntry) -> bool) -> bool {
        self.entries.iter().any(is_it)
    }

    /// Returns the first entries, `max` at most.
    pub fn first(&self, max: usize) -> Vec<LogEntry> {
        self.entries.iter().take(max).copied().collect()
    }

    /// Returns the sequence number of the first waiting entry.
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Returns the sequence number of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.entries.len() as u64
    }

    /// Returns the number below which entries are durable.
    pub fn durable_below(&self) -> u64 {
        self.durable_below
    }

    /// Returns the number below which entries must be durable, or a crash undoes forgotten
    /// mappings. Returns `None` if they are.
    pub fn forgets_below(&self) -> Option<u64> {
        Some(self.forgets_below).filter(|&upto| upto > self.durable_below)
    }

    /// Returns the log area, which places frames.
    pub fn area(&self) -> &LogArea {
        &self.area
    }

    /// Returns the checksum of the last frame.
    pub fn previous_crc(&self) -> u32 {
        self.previous_crc
    }

    /// Returns whether no entry becomes durable any more, because the flash failed.
    pub fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Asks for a commit of the entries below `upto`. With `close_clean` it also closes the open
    /// segments of clean data. With `use_reserve` it may use the log's reserve, for a checkpoint.
    pub fn request(&mut self, upto: u64, close_clean: bool, use_reserve: bool) {
        self.wanted_below = self.wanted_below.max(upto.min(self.next_seq()));
        self.close_clean |= close_clean;
        self.use_reserve |= use_reserve;
    }

    /// Returns whether a commit was asked for and is not done.
    pub fn is_requested(&self) -> bool {
        self.wanted_below > self.durable_below || self.close_clean || self.lacks_frame()
    }

    /// Returns whether the next commit may use the log's reserve.
    pub fn may_use_reserve(&self) -> bool {
        self.use_reserve
    }

    /// Begins a commit. Returns whether it closes the open segments of clean data, too.
    pub fn begin_commit(&mut self) -> bool {
        self.use_reserve = false;
        std::mem::take(&mut self.close_clean)
    }

    /// Notes a frame of so many bytes and entries as durable.
    pub fn frame_is_durable(&mut self, bytes: u64, entries: usize, crc: u32) {
        self.area.advance(bytes);
        self.previous_crc = crc;
        self.entries.drain(..entries);
        self.first_seq += entries as u64;
        self.durable_below = self.first_seq;
    }

    /// Notes that a commit which closed the open segments of clean data is whole.
    pub fn clean_is_closed(&mut self) {
        self.clean_closed += 1;
    }

    /// Returns the number of commits that closed the open segments of clean data.
    pub fn clean_closed(&self) -> u64 {
        self.clean_closed
    }

    /// Ends a commit. A failed one takes its requests with it.
    pub fn end_commit(&mut self, result: Result<(), IoError>) {
        self.commits += 1;
        self.error = result.err();
        if self.error.is_some() {
            self.drop_requests();
        }
    }

    fn drop_requests(&mut self) {
        (self.wanted_below, self.frame_wanted) = (0, 0);
        (self.close_clean, self.use_reserve) = (false, false);
    }

    /// Ends the log: no entry becomes durable any more.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the counts as of now.
    pub fn asked_now(&self) -> Asked {
        Asked { commits: self.commits, checkpoint_tries: self.checkpoint_tries }
    }

    /// Returns whether the log has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the error of a commit that began after `asked`, if the last one failed.
    pub fn commit_error(&self, asked: Asked) -> Option<&IoError> {
        self.error.as_ref().filter(|_| self.commits > asked.commits)
    }

    /// Counts a try to write a checkpoint.
    pub fn try_checkpoint(&mut self) {
        self.checkpoint_tries += 1;
    }

    /// Returns the number of tries to write a checkpoint that began.
    pub fn checkpoint_tries(&self) -> u64 {
        self.checkpoint_tries
    }

    /// Notes that the last try failed.
    pub fn checkpoint_fails(&mut self, error: EngineError) {
        self.checkpoint_failed = Some((self.checkpoint_tries, error));
    }

    /// Frees the log before the position of a checkpoint that is durable.
    pub fn checkpoint_is_durable(&mut self, position: &LogPosition) {
        self.area.free_before(position);
        self.checkpoint_failed = None;
    }

    /// Returns the error of the last try, if it failed.
    pub fn last_checkpoint_error(&self) -> Option<&EngineError> {
        self.checkpoint_failed.as_ref().map(|(_, error)| error)
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
        if self.is_dead {
            self.first_seq += 1;
        } else {
            self.entries.push_back(entry);
        }
        seq
    }

    /// Drops the waiting entries after the flash failed: they never become durable. Returns the
    /// dirty chunks among them.
    pub(crate) fn die(&mut self) -> Vec<UndurableRun> {
        self.is_dead = true;
        let first_seq = self.first_seq;
        self.first_seq = self.next_seq();
        self.drop_requests();
        let entries = std::mem::take(&mut self.entries);
        let dirty = |entry: &LogEntry| match *entry {
            LogEntry::Map { lba, dirty: true, .. }
            | LogEntry::MapZero { lba, dirty: true }
            | LogEntry::Fragment { lba, dirty: true, .. } => Some((Lba(lba), 1)),
            LogEntry::Trim { lba, chunk_count, dirty: true, .. } => Some((Lba(lba), chunk_count)),
            _ => None,
        };
        let numbered = (first_seq..).zip(&entries);
        numbered
            .filter_map(|(seq, entry)| dirty(entry).map(|(first, count)| UndurableRun { first, count, seq }))
            .collect()
    }
}
