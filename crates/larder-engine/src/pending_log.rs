//! The entries that wait for a frame of the log, and the numbers of those that are durable.
//!
//! Invariants: entries have consecutive numbers.
//!
//! It does not write the log, or know the requests for a commit.

use crate::{
    degraded::flash_health::UndurableRun,
    log_area::{LogArea, LogPosition},
};
use larder_core::{Lba, SlotId};
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
    area: LogArea,
    /// Checksum of the last frame: the next frame names it.
    previous_crc: u32,
    /// The flash failed. Entries are numbered and dropped, because none becomes durable any more.
    is_dead: bool,
}

impl PendingLog {
    /// Returns the log of an opening: the number of its next entry, and its last frame's checksum.
    pub fn new(next_seq: u64, area: LogArea, previous_crc: u32) -> Self {
        PendingLog {
            entries: VecDeque::new(),
            first_seq: next_seq,
            durable_below: next_seq,
            forgets_below: 0,
            area,
            previous_crc,
            is_dead: false,
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
    /// mappings. Returns `None` if they are durable already.
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

    /// Notes a frame of so many bytes and entries as durable.
    pub fn frame_is_durable(&mut self, bytes: u64, entries: usize, crc: u32) {
        self.area.advance(bytes);
        self.previous_crc = crc;
        self.entries.drain(..entries);
        self.first_seq += entries as u64;
        self.durable_below = self.first_seq;
    }

    /// Frees the log before the position of a checkpoint that is durable.
    pub fn free_before(&mut self, position: &LogPosition) {
        self.area.free_before(position);
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
