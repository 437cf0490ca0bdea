//! AustereCache's synthetic traces.
//!
//! Source: AustereCache §5.1 ("Synthetic"). A working set of chunks lies anywhere on the disk.
//! Reads and writes each follow a Zipf distribution over it, with popular chunks of their own. The
//! I/O deduplication ratio is the share of writes that can be removed because their content was
//! written before. Compression ratios follow N(2, 0.25). The defaults are the paper's: 128 MiB of 5
//! GiB, constant 1.0, chunks of 32 KiB, writes to reads 7:3, half of the writes duplicates.
//!
//! Ours: a duplicate repeats any content written so far, all alike, since the paper does not choose
//! one. A chunk reads as content of its own before its first write.
//!
//! Invariants: memory is 8 bytes for each chunk of the working set.
//!
//! It does not give times.

use super::{whole_chunks, within};
use crate::{
    error::{TraceError, TraceResult},
    record::{Op, Record},
    rng::TraceRng,
    synthetic::{Compressibility, made_content},
    zipf::{Permutation, Zipf},
};

/// The parameters of the trace.
#[derive(Clone, Copy, Debug)]
pub struct ZipfConfig {
    /// Size of the disk.
    pub storage_bytes: u64,
    /// Size of the distinct addresses.
    pub working_set_bytes: u64,
    /// Bytes of a chunk: each request is one.
    pub chunk_bytes: u32,
    /// Zipf constant of reads and of writes.
    pub zipf: f64,
    /// Writes per read.
    pub write_to_read: f64,
    /// The share of writes whose content was written before.
    pub io_dedup_ratio: f64,
    /// The distribution of the compression ratio.
    pub compress: Compressibility,
    /// Requests in all.
    pub requests: u64,
    /// Another seed is another trace.
    pub seed: u64,
}

impl Default for ZipfConfig {
    fn default() -> Self {
        ZipfConfig {
            storage_bytes: 5 << 30,
            working_set_bytes: 128 << 20,
            chunk_bytes: 32 << 10,
            zipf: 1.0,
            write_to_read: 7.0 / 3.0,
            io_dedup_ratio: 0.5,
            compress: Compressibility::default(),
            // 5 GiB of requests, as in the authors' sample.
            requests: 163_840,
            seed: 0,
        }
    }
}

/// The first number of content that was there before the trace.
const INITIAL: u64 = 1 << 63;

/// The trace.
pub struct ZipfTrace {
    config: ZipfConfig,
    rng: TraceRng,
    law: Zipf,
    /// Maps the chunk's number in the working set to its place on the disk.
    places: Permutation,
    /// Maps the rank in popularity to the chunk's number.
    read_ranks: Permutation,
    write_ranks: Permutation,
    held: Vec<u64>,
    contents: u64,
    made: u64,
}

impl ZipfTrace {
    /// Checks the configuration.
    pub fn new(config: ZipfConfig) -> TraceResult<ZipfTrace> {
        let storage = whole_chunks("a disk", config.storage_bytes, config.chunk_bytes)?;
        let chunks = whole_chunks("a working set", config.working_set_bytes, config.chunk_bytes)?;
        within("an I/O deduplication ratio", config.io_dedup_ratio, 0.0..=1.0)?;
        within("a Zipf constant", config.zipf, 0.0..=10.0)?;
        within("a write-to-read ratio", config.write_to_read, 0.0..=f64::MAX)?;
        if chunks > storage {
            return Err(TraceError::parameter("expected a working set no larger than the disk"));
        }
        Ok(ZipfTrace {
            config,
            rng: TraceRng::new(config.seed),
            law: Zipf::new(chunks, config.zipf),
            places: Permutation::new(storage, config.seed),
            read_ranks: Permutation::new(chunks, config.seed ^ 1),
            write_ranks: Permutation::new(chunks, config.seed ^ 2),
            held: (0..chunks).map(|chunk| INITIAL | chunk).collect(),
            contents: 0,
            made: 0,
        })
    }

    fn draw(&mut self) -> u64 {
        if self.contents > 0 && self.rng.chance(self.config.io_dedup_ratio) {
            return self.rng.below(self.contents);
        }
        self.contents += 1;
        self.contents - 1
    }
}

impl Iterator for ZipfTrace {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.made == self.config.requests {
            return None;
        }
        self.made += 1;
        let ZipfConfig { write_to_read, chunk_bytes, seed, compress, .. } = self.config;
        let is_write = self.rng.chance(1.0 - 1.0 / (1.0 + write_to_read));
        let rank = self.law.sample(&mut self.rng);
        let chunk = if is_write { self.write_ranks.apply(rank) } else { self.read_ranks.apply(rank) };
        let written = is_write.then(|| self.draw());
        let held = self.held.get_mut(chunk as usize)?;
        *held = written.unwrap_or(*held);
        let op = if is_write { Op::Write } else { Op::Read };
        let bytes = u64::from(chunk_bytes);
        let mut record = Record::new(self.made, op, self.places.apply(chunk) * bytes, bytes);
        record.content = Some(made_content(seed, *held, chunk_bytes, &compress));
        Some(Ok(record))
    }
}
