//! Requests of several blocks each, in bursts with idle time between them.
//!
//! A drive gets such requests from a file system or a database that writes out its dirty pages.
//!
//! Source: CAFTL §4.1.3 gives the run time of its workloads. It says that desktops have small
//! requests and irregular idle time, Hadoop intensive large writes of temporary data, and
//! transactions intensive writes. CAFTL §4.2.1 gives the share of duplicates among the writes of
//! some workloads. The configuration gives all else.
//!
//! A burst has a number of requests, evenly from 1 to twice its mean. They come at the speed of a
//! link of 300 MB/s (SATA of 3 Gbit/s). The times between bursts are exponential. A request is a
//! run of blocks at an even place, of a length evenly from its range. One half of the duplicates
//! are whole requests, each the content of an earlier one, like a copied file. The other half are
//! single blocks, each the content of any earlier one. A read covers a whole earlier write.
//!
//! Invariants: memory is 8 bytes for each block of the footprint, and 8 for each block that is
//! written. A read has the content that was last written there.
//!
//! It does not make sequential streams, or content that is repeated more often than other content.

use super::within;
use crate::{
    error::{TraceError, TraceResult},
    record::{Op, Record, TraceContent},
    rng::TraceRng,
    synthetic::{Compressibility, made_content},
};

/// Bytes of a block.
const BLOCK_BYTES: u32 = 4096;
/// The share of duplicates that come as whole requests.
const WHOLE_SHARE: f64 = 0.5;
/// Microseconds that a block takes on the link.
const BLOCK_US: u64 = 14;
/// The most blocks of a footprint: 4 TiB of them.
const BLOCKS_MAX: u64 = 1 << 30;
/// The content of a block before its first write.
const UNWRITTEN: u64 = u64::MAX;

/// The parameters of the trace.
#[derive(Clone, Copy, Debug)]
pub struct BurstsConfig {
    /// Approximate seconds from the first request to the last.
    pub seconds: f64,
    /// Approximate blocks written in all.
    pub blocks_written: u64,
    /// The least and the most blocks of a request.
    pub request_blocks: (u32, u32),
    /// The share of requests that write.
    pub write_share: f64,
    /// The share of written blocks that repeat earlier content.
    pub duplication: f64,
    /// Blocks that writes may touch.
    pub footprint_blocks: u64,
    /// Mean requests of a burst.
    pub burst_requests: u32,
    /// Another seed is another trace.
    pub seed: u64,
}

impl BurstsConfig {
    /// Scales the time, the writes and the footprint. Requests and bursts stay as large, and as far
    /// apart.
    pub fn scaled(self, scale: f64) -> BurstsConfig {
        let scaled = |blocks: u64| (blocks as f64 * scale) as u64;
        BurstsConfig {
            seconds: self.seconds * scale,
            blocks_written: scaled(self.blocks_written),
            footprint_blocks: scaled(self.footprint_blocks),
            ..self
        }
    }
}

/// The trace.
pub struct Bursts {
    config: BurstsConfig,
    rng: TraceRng,
    /// The content of each block of the footprint.
    held: Vec<u64>,
    /// The contents of all blocks that were written, in order.
    written: Vec<u64>,
    /// Each write: its first block, its length, and the place of its contents in `written`.
    writes: Vec<(u32, u32, u64)>,
    contents: u64,
    requests: u64,
    time_us: u64,
    /// Microseconds that the last request takes on the link.
    last_us: u64,
    /// Remaining requests of this burst.
    left: u32,
    /// Remaining blocks of the current request.
    blocks: std::vec::IntoIter<Record>,
}

impl Bursts {
    /// Checks the configuration.
    pub fn new(config: BurstsConfig) -> TraceResult<Bursts> {
        let BurstsConfig { request_blocks: (least, most), footprint_blocks, burst_requests, .. } = config;
        within("a share of writes", config.write_share, 0.001..=1.0)?;
        within("a share of duplicates", config.duplication, 0.0..=0.99)?;
        within("a number of seconds", config.seconds, 1e-3..=1e9)?;
        let refused = |message: String| Err(TraceError::parameter(message));
        if least == 0 || least > most || burst_requests == 0 {
            return refused(format!(
                "expected requests of at least one block, and at most {most} of them; found {least}, in bursts of \
                 {burst_requests}"
            ));
        }
        if !(u64::from(most)..=BLOCKS_MAX).contains(&footprint_blocks) || config.blocks_written < u64::from(most) {
            return refused(format!(
                "expected a footprint of {most} to {BLOCKS_MAX} blocks, and as many written at least; found \
                 {footprint_blocks} and {}: make the scale larger",
                config.blocks_written
            ));
        }
        Ok(Bursts {
            config,
            rng: TraceRng::new(config.seed),
            held: vec![UNWRITTEN; footprint_blocks as usize],
            written: Vec::new(),
            writes: Vec::new(),
            contents: 0,
            requests: 0,
            time_us: 0,
            last_us: 0,
            left: 0,
            blocks: Vec::new().into_iter(),
        })
    }

    /// Makes the next request; `None` once enough was written.
    fn next_request(&mut self) -> Option<Vec<Record>> {
        if self.written.len() as u64 >= self.config.blocks_written {
            return None;
        }
        self.time_us += self.last_us;
        if self.left == 0 {
            self.time_us += self.begin_burst();
        }
        self.left -= 1;
        self.requests += 1;
        let is_write = self.writes.is_empty() || self.rng.chance(self.config.write_share);
        let records = if is_write { self.write() } else { self.read() }?;
        self.last_us = BLOCK_US * records.len() as u64;
        Some(records)
    }

    /// Begins a burst and returns the microseconds until it. All bursts together take the
    /// configured time.
    fn begin_burst(&mut self) -> u64 {
        let BurstsConfig {
            seconds, blocks_written, request_blocks: (least, most), write_share, burst_requests, ..
        } = self.config;
        self.left = 1 + self.rng.below(2 * u64::from(burst_requests) - 1) as u32;
        let requests = blocks_written as f64 / (f64::from(least + most) / 2.0) / write_share;
        let mean_us = 1e6 * seconds * f64::from(burst_requests) / requests;
        (mean_us * -(1.0 - self.rng.unit()).ln()) as u64
    }

    fn write(&mut self) -> Option<Vec<Record>> {
        let BurstsConfig { request_blocks: (least, most), footprint_blocks, duplication, .. } = self.config;
        let whole = duplication * WHOLE_SHARE;
        let copied = match !self.writes.is_empty() && self.rng.chance(whole) {
            true => self.writes.get(self.rng.below(self.writes.len() as u64) as usize).copied(),
            false => None,
        };
        let blocks = copied.map_or(least + self.rng.below(u64::from(most - least) + 1) as u32, |(_, blocks, _)| blocks);
        let first = self.rng.below(footprint_blocks - u64::from(blocks) + 1) as u32;
        let from = self.written.len() as u64;
        let single = (duplication - whole) / (1.0 - whole);
        for at in 0..u64::from(blocks) {
            let copied = copied.and_then(|(_, _, from)| self.written.get((from + at) as usize).copied());
            let content = copied.unwrap_or_else(|| self.content(single));
            self.written.push(content);
            if let Some(held) = self.held.get_mut((u64::from(first) + at) as usize) {
                *held = content;
            }
        }
        self.writes.push((first, blocks, from));
        Some(self.records(Op::Write, first, blocks))
    }

    /// Returns the content of one block: an earlier one with that chance, else a new one.
    fn content(&mut self, duplicate: f64) -> u64 {
        if self.rng.chance(duplicate)
            && let Some(earlier) = self.written.get(self.rng.below(self.written.len() as u64) as usize)
        {
            return *earlier;
        }
        self.contents += 1;
        self.contents
    }

    fn read(&mut self) -> Option<Vec<Record>> {
        let (first, blocks, _) = *self.writes.get(self.rng.below(self.writes.len() as u64) as usize)?;
        Some(self.records(Op::Read, first, blocks))
    }

    fn records(&self, op: Op, first: u32, blocks: u32) -> Vec<Record> {
        let record = |block: u32| {
            let bytes = u64::from(BLOCK_BYTES);
            let held = self.held.get(block as usize).copied().unwrap_or(UNWRITTEN);
            let content: TraceContent = made_content(self.config.seed, held, BLOCK_BYTES, &Compressibility::default());
            let mut record = Record::new(self.requests, op, u64::from(block) * bytes, bytes);
            record.time_us = Some(self.time_us);
            record.content = Some(content);
            record
        };
        (first..first + blocks).map(record).collect()
    }
}

impl Iterator for Bursts {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.blocks.next() {
                return Some(Ok(record));
            }
            self.blocks = self.next_request()?.into_iter();
        }
    }
}
