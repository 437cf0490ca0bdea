//! Restores of daily snapshots: the disk is written day by day, then snapshots are read back whole.
//!
//! Source: Nitro §5.2 ("Restore trace") and §6.3 ("Snapshot restore"): "large read I/Os (512KB)
//! were issued while restoring the entire VM", each snapshot from the state after the last was
//! made. The days come from a recording in the `days` format or from `snapshots.rs`. They are read
//! twice, once to write them and once to restore them.
//!
//! Each restored snapshot has addresses of its own behind the disk, like a snapshot in a storage
//! system. Snapshot n lies n + 1 disks behind the beginning. Content ties it to the disk. Blocks
//! that day 0 lacks are zeroes.
//!
//! Invariants: memory is 32 bytes for each block of the disk.
//!
//! It does not reset a cache between restores. It leaves this to the replay, at the tag `restoreN`.

use std::collections::BTreeSet;

use crate::{
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    formats::days::DAY_US,
    record::{ADDRESS_MAX, Op, Provenance, Record, Tag, TraceContent},
    zero,
};

/// The most blocks of a disk: 16 TiB of 4 KiB.
const BLOCKS_MAX: u64 = 1 << 32;
/// Microseconds between the reads of a restore.
const READ_US: u64 = 1000;

/// The parameters of a restore.
#[derive(Clone, Debug)]
pub struct RestoreConfig {
    /// The days to restore; empty for all.
    pub days: BTreeSet<u64>,
    /// Bytes of a read.
    pub io_bytes: u32,
    /// True if the trace begins with the writes of all days.
    pub with_writes: bool,
}

impl Default for RestoreConfig {
    fn default() -> Self {
        RestoreConfig { days: BTreeSet::new(), io_bytes: 512 << 10, with_writes: true }
    }
}

/// The trace. `F` opens the days from their beginning.
pub struct Restore<F, I> {
    open: F,
    config: RestoreConfig,
    days: I,
    phase: Phase,
    requests: u64,
    last_request: Option<u64>,
    block_bytes: u64,
    disk: Vec<Option<TraceContent>>,
    /// The first record of the next day, read ahead.
    ahead: Option<Record>,
    day: u64,
    end_bytes: u64,
    last_us: u64,
}

/// The current phase.
enum Phase {
    Writing,
    /// Applies a day, which may be restored next.
    Taking,
    /// Reads the snapshot of `day` back, from this block on.
    Reading(u64),
    Done,
}

impl<F, I> Restore<F, I>
where
    F: FnMut() -> TraceResult<I>,
    I: Iterator<Item = TraceResult<Record>>,
{
    /// Makes the trace, and opens the days for the first time.
    pub fn new(mut open: F, config: RestoreConfig) -> TraceResult<Restore<F, I>> {
        if config.io_bytes == 0 || !config.io_bytes.is_multiple_of(4096) {
            return Err(TraceError::parameter("expected reads of a multiple of 4096 bytes"));
        }
        let days = open()?;
        let phase = if config.with_writes { Phase::Writing } else { Phase::Taking };
        Ok(Restore {
            open,
            config,
            days,
            phase,
            requests: 0,
            last_request: None,
            block_bytes: 4096,
            disk: Vec::new(),
            ahead: None,
            day: 0,
            end_bytes: 0,
            last_us: 0,
        })
    }

    /// Returns the next write of the days. A run of consecutive blocks of a day is one request.
    fn write(&mut self) -> TraceResult<Option<Record>> {
        let Some(record) = self.days.next() else {
            self.days = (self.open)()?;
            self.phase = Phase::Taking;
            return Ok(None);
        };
        let mut record = record?;
        let goes_on = record.offset_bytes == self.end_bytes && self.last_request == Some(record.request);
        self.requests += u64::from(!goes_on);
        self.last_request = Some(record.request);
        self.end_bytes = record.end_bytes();
        self.last_us = self.last_us.max(record.time_us.unwrap_or(0));
        record.request = self.requests;
        Ok(Some(record))
    }

    /// Applies a day to the disk.
    fn take(&mut self) -> TraceResult<()> {
        let day_of = |record: &Record| record.time_us.unwrap_or(0) / DAY_US;
        let mut day = None;
        loop {
            let record = match self.ahead.take().map(Ok).or_else(|| self.days.next()) {
                None => break,
                Some(record) => record?,
            };
            self.last_us = self.last_us.max(record.time_us.unwrap_or(0));
            if *day.get_or_insert(day_of(&record)) != day_of(&record) {
                self.ahead = Some(record);
                break;
            }
            self.put(&record)?;
        }
        self.phase = match day {
            None => Phase::Done,
            Some(day) => {
                self.day = day;
                let is_wanted = self.config.days.is_empty() || self.config.days.contains(&day);
                if is_wanted { Phase::Reading(0) } else { Phase::Taking }
            }
        };
        Ok(())
    }

    fn put(&mut self, record: &Record) -> TraceResult<()> {
        let content = record.content.filter(|_| record.op == Op::Write && record.len_bytes == self.block_bytes);
        let block = record.offset_bytes / self.block_bytes;
        if content.is_none() || block >= BLOCKS_MAX {
            let message = "expected daily writes of blocks of 4096 bytes with content, on a disk of at most 16 TiB";
            return Err(TraceError::new(TraceErrorKind::Content, "", Position::Whole, message));
        }
        let block = block as usize;
        if block >= self.disk.len() {
            self.disk.resize(block + 1, None);
        }
        if let Some(held) = self.disk.get_mut(block) {
            *held = content;
        }
        Ok(())
    }

    /// Returns one block of the snapshot that is read back.
    fn read(&mut self, block: u64) -> Option<Record> {
        let Some(held) = self.disk.get(block as usize) else {
            self.phase = Phase::Taking;
            return None;
        };
        let io_bytes = u64::from(self.config.io_bytes);
        let disk_bytes = (self.disk.len() as u64 * self.block_bytes).next_multiple_of(io_bytes);
        let at = block * self.block_bytes;
        self.requests += u64::from(at.is_multiple_of(io_bytes));
        self.last_us = self.last_us.saturating_add(if at.is_multiple_of(io_bytes) { READ_US } else { 0 });
        let provenance = Provenance::Recorded;
        let zeroes = TraceContent { fingerprint: zero::XXH3_4K, stored_bytes: Some(26), is_zero: true, provenance };
        self.phase = Phase::Reading(block + 1);
        Some(Record {
            time_us: Some(self.last_us),
            request: self.requests,
            tag: Tag::new(format!("restore{}", self.day).as_bytes()),
            op: Op::Read,
            offset_bytes: (self.day + 1).saturating_mul(disk_bytes).saturating_add(at),
            len_bytes: self.block_bytes,
            content: Some(held.unwrap_or(zeroes)),
        })
        .filter(|record| record.end_bytes() <= ADDRESS_MAX)
    }
}

impl<F, I> Iterator for Restore<F, I>
where
    F: FnMut() -> TraceResult<I>,
    I: Iterator<Item = TraceResult<Record>>,
{
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let step = match self.phase {
                Phase::Done => return None,
                Phase::Writing => self.write(),
                Phase::Taking => self.take().map(|()| None),
                Phase::Reading(block) => Ok(self.read(block)),
            };
            match step {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(error) => {
                    self.phase = Phase::Done;
                    return Some(Err(error));
                }
            }
        }
    }
}
