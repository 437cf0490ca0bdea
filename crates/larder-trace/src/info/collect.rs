//! Collects statistics, record by record.
//!
//! Invariants: the collector reads a record once. It counts a read or write of any length block by
//! block, a trim by its range.
//!
//! It does not define the statistics. It leaves this to `info.rs`.

use hashbrown::{HashMap, hash_map::Entry};

use super::{ContentInfo, Info};
use crate::{
    error::TraceResult,
    record::{ContentId, Op, Record, TraceContent},
    sink::Clock,
    trimmed::Trimmed,
};

/// Recent requests that a sequential request may continue, so this many streams are seen.
const STREAMS_MAX: usize = 32;
/// Bytes of a block if neither the caller nor the trace gives them.
const BLOCK_BYTES: u64 = 4096;

/// The history of an address.
#[derive(Default)]
struct Address {
    /// The last written content. After a trim cut the block, the content of the first read.
    written: Option<ContentId>,
    /// The number of the last write, or of the last event before that read. Writes and trims are
    /// numbered.
    written_at: u64,
}

/// The effect of trims on a block since its content was last known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// No trim touched it.
    Untouched,
    /// One trim covers it, and was the last: the block is zeroes.
    Trimmed,
    /// A trim covers a part of it, or several cover it together. The content is unknown until a
    /// write or read.
    Cut,
}

/// The mark of a written fingerprint. Every fingerprint seen is in the map.
const WRITTEN: u8 = 1;

/// Statistics of a trace so far.
pub struct InfoCollector {
    info: Info,
    block_bytes: Option<u64>,
    addresses: HashMap<u64, Address>,
    /// Each fingerprint, and whether it was written.
    fingerprints: HashMap<ContentId, u8>,
    trimmed: Trimmed,
    /// Writes and trims so far, which order two events.
    events: u64,
    clock: Clock,
    first_us: Option<u64>,
    last_us: u64,
    open: Option<ArrivingRequest>,
    ends: [u64; STREAMS_MAX],
    next_end: usize,
}

/// The request whose records arrive.
struct ArrivingRequest {
    request: u64,
    op: Op,
    start: u64,
    end: u64,
    len_bytes: u64,
}

impl InfoCollector {
    /// Makes an empty collector. `block_bytes` is the unit for a trace without content; 4096 if
    /// `None`.
    pub fn new(block_bytes: Option<u32>) -> InfoCollector {
        InfoCollector {
            info: Info::default(),
            block_bytes: block_bytes.filter(|bytes| *bytes > 0).map(u64::from),
            addresses: HashMap::new(),
            fingerprints: HashMap::new(),
            trimmed: Trimmed::default(),
            events: 0,
            clock: Clock::default(),
            first_us: None,
            last_us: 0,
            open: None,
            ends: [u64::MAX; STREAMS_MAX],
            next_end: 0,
        }
    }

    /// Returns the statistics of all records.
    pub fn collect(
        block_bytes: Option<u32>,
        records: impl IntoIterator<Item = TraceResult<Record>>,
    ) -> TraceResult<Info> {
        let mut collector = InfoCollector::new(block_bytes);
        for record in records {
            collector.observe(&record?);
        }
        Ok(collector.finish())
    }

    /// Counts a record.
    pub fn observe(&mut self, record: &Record) {
        if let Some(time_us) = record.time_us {
            self.clock.observe(time_us);
            self.last_us = self.last_us.max(time_us);
            self.first_us = Some(self.first_us.map_or(time_us, |first| first.min(time_us)));
        }
        self.group(record);
        self.info.end_bytes = self.info.end_bytes.max(record.end_bytes());
        match record.op {
            Op::Flush => self.info.flushes += 1,
            Op::Trim => {
                self.info.trims += 1;
                // Many trims of the whole address space exceed 64 bits.
                self.info.trim_bytes = self.info.trim_bytes.saturating_add(record.len_bytes);
                self.events += 1;
                self.trimmed.add(record.offset_bytes, record.end_bytes(), self.events);
            }
            Op::Read => {
                self.info.read_bytes += record.len_bytes;
                self.info.read_blocks += self.data(record);
            }
            Op::Write => {
                self.info.write_bytes += record.len_bytes;
                self.events += 1;
                self.info.write_blocks += self.data(record);
            }
        }
    }

    /// Returns the statistics.
    pub fn finish(mut self) -> Info {
        self.close();
        self.info.block_bytes = self.block_bytes.unwrap_or(BLOCK_BYTES);
        self.info.blocks = self.info.read_blocks + self.info.write_blocks;
        self.info.working_set_blocks = self.addresses.len() as u64;
        self.info.written_set_blocks = self.addresses.values().filter(|address| address.written_at > 0).count() as u64;
        self.info.duration_us = self.first_us.map(|first| self.last_us - first);
        self.info.back_steps = self.clock.back_steps;
        if let Some(content) = &mut self.info.content {
            content.unique_blocks = self.fingerprints.len() as u64;
        }
        self.info
    }

    /// Joins the records of a request.
    fn group(&mut self, record: &Record) {
        let joins = |open: &ArrivingRequest| open.request == record.request && open.op == record.op;
        if let Some(open) = self.open.as_mut().filter(|open| joins(open)) {
            open.start = open.start.min(record.offset_bytes);
            open.end = record.end_bytes();
            open.len_bytes = open.len_bytes.saturating_add(record.len_bytes);
            return;
        }
        let is_new = self.open.as_ref().is_none_or(|open| open.request != record.request);
        self.info.requests += u64::from(is_new);
        self.close();
        let (start, end) = (record.offset_bytes, record.end_bytes());
        self.open =
            Some(ArrivingRequest { request: record.request, op: record.op, start, end, len_bytes: record.len_bytes });
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        match open.op {
            Op::Read => self.info.read_sizes.add(open.len_bytes),
            Op::Write => self.info.write_sizes.add(open.len_bytes),
            Op::Trim | Op::Flush => return,
        }
        self.info.data_requests += 1;
        match self.ends.iter_mut().find(|end| **end == open.start) {
            // The new end takes the place of the stream's old one.
            Some(end) => {
                self.info.sequential_requests += 1;
                *end = open.end;
            }
            None => {
                if let Some(end) = self.ends.get_mut(self.next_end) {
                    *end = open.end;
                }
                self.next_end = (self.next_end + 1) % STREAMS_MAX;
            }
        }
    }

    /// Counts a read or write, block by block. Returns the number of blocks.
    fn data(&mut self, record: &Record) -> u64 {
        let own = record.content.map_or(BLOCK_BYTES, |_| record.len_bytes);
        let block_bytes = match (self.block_bytes, record.content) {
            (Some(bytes), _) => bytes,
            // The first content decides; until then the size is unknown.
            (None, _) => *self.block_bytes.insert(own.max(1)),
        };
        let first = record.offset_bytes / block_bytes;
        let end = record.end_bytes().div_ceil(block_bytes);
        let is_block = record.len_bytes == block_bytes && end - first == 1;
        let content = record.content.filter(|_| is_block);
        self.info.content_left_out += u64::from(record.content.is_some() && !is_block);
        for block in first..end {
            self.block(block, block_bytes, record.op, content.as_ref());
        }
        end - first
    }

    fn block(&mut self, block: u64, block_bytes: u64, op: Op, content: Option<&TraceContent>) {
        let start = block * block_bytes;
        let address = self.addresses.entry(block).or_default();
        let fingerprint = content.map(|content| content.fingerprint);
        if let Some(content) = content {
            let info = self.info.content.get_or_insert_default();
            let end = start + block_bytes;
            let is_later = |number: Option<u64>| number.is_some_and(|number| number > address.written_at);
            let since = match self.trimmed.touching(start, end) {
                number if !is_later(number) => Since::Untouched,
                _ if is_later(self.trimmed.covering(start, end)) => Since::Trimmed,
                _ => Since::Cut,
            };
            count_content(info, block_bytes, op, content);
            count_fingerprint(info, &mut self.fingerprints, op, content);
            count_history(info, address, since, op, content);
            if since == Since::Cut && address.written_at > 0 {
                address.written = fingerprint;
                address.written_at = self.events;
            }
        }
        if op == Op::Write {
            address.written = fingerprint;
            address.written_at = self.events;
        }
    }
}

fn count_content(info: &mut ContentInfo, block_bytes: u64, op: Op, content: &TraceContent) {
    info.provenance = info.provenance.max(content.provenance);
    info.zero_blocks += u64::from(content.is_zero);
    info.zero_writes += u64::from(content.is_zero && op == Op::Write);
    if let Some(stored) = content.stored_bytes {
        let stored = u64::from(stored).min(block_bytes);
        info.sized_blocks.add(content.is_zero);
        info.stored_bytes += stored;
        info.stored_bytes_without_zeroes += if content.is_zero { 0 } else { stored };
    }
}

fn count_fingerprint(info: &mut ContentInfo, seen: &mut HashMap<ContentId, u8>, op: Op, content: &TraceContent) {
    let written = if op == Op::Write { WRITTEN } else { 0 };
    match seen.entry(content.fingerprint) {
        Entry::Vacant(entry) => {
            entry.insert(written);
        }
        Entry::Occupied(mut entry) => {
            if op == Op::Write {
                info.duplicate_writes.add(content.is_zero);
                if *entry.get() == WRITTEN {
                    info.rewritten_fingerprints.add(content.is_zero);
                }
            }
            *entry.get_mut() |= written;
        }
    }
}

/// Compares a request with the last written content of its block, and with the trims since.
fn count_history(info: &mut ContentInfo, address: &Address, since: Since, op: Op, content: &TraceContent) {
    let is_same = address.written == Some(content.fingerprint) && since == Since::Untouched;
    match (op, since) {
        (Op::Write, _) => info.same_content_rewrites += u64::from(is_same),
        (_, Since::Trimmed) => {
            info.reads_after_trim += 1;
            info.reads_after_trim_not_zero += u64::from(!content.is_zero);
        }
        (_, Since::Untouched) if address.written.is_some() => {
            info.reads_checked += 1;
            info.reads_mismatched += u64::from(!is_same);
        }
        // This read tells the content of a block that was cut.
        _ => {}
    }
}
