//! Nitro's random reads, for its sensitivity analysis.
//!
//! Source: Nitro §6.2 ("Sensitivity analysis", Figure 7): random reads of a working set that is 1 to 10 times the cache, with a
//! deduplication ratio of 1 to 10. Reads are uniform. Deduplication: the working set has as many distinct contents as
//! its chunks divided by the ratio, each about equally often, spread over all addresses. The example there is a cache
//! of 16 GB; chunks are Nitro's 8 KiB.
//!
//! Invariants: memory is a few words.
//!
//! What it does not do: writes, which "would equivalently decrease the cache size".

use super::{whole_chunks, within};
use crate::{
    error::TraceResult,
    record::{Op, Record},
    rng::Rng,
    synthetic::{Compressibility, made_content},
    zipf::Permutation,
};

/// One point of the grid.
#[derive(Clone, Copy, Debug)]
pub struct RandomReadsConfig {
    /// Size of the cache that the working set is a multiple of.
    pub cache_bytes: u64,
    /// Working set over cache.
    pub working_set_ratio: f64,
    /// Chunks of the working set for each distinct content, at least 1.
    pub dedup_ratio: f64,
    /// Bytes of a chunk: each request is one.
    pub chunk_bytes: u32,
    /// How well content compresses.
    pub compress: Compressibility,
    /// Requests in all.
    pub requests: u64,
    /// Another seed is another trace.
    pub seed: u64,
}

impl Default for RandomReadsConfig {
    fn default() -> Self {
        RandomReadsConfig {
            cache_bytes: 16 << 30,
            working_set_ratio: 1.0,
            dedup_ratio: 1.0,
            chunk_bytes: 8 << 10,
            compress: Compressibility::default(),
            requests: 10_000_000,
            seed: 0,
        }
    }
}

impl RandomReadsConfig {
    /// The paper's grid: both ratios from 1 to 10, else as here.
    pub fn grid(self) -> impl Iterator<Item = RandomReadsConfig> {
        let points = (1..=10).flat_map(|dedup| (1..=10).map(move |size| (size, dedup)));
        points.map(move |(size, dedup)| RandomReadsConfig {
            working_set_ratio: f64::from(size),
            dedup_ratio: f64::from(dedup),
            ..self
        })
    }
}

/// The trace.
pub struct RandomReads {
    config: RandomReadsConfig,
    rng: Rng,
    chunks: u64,
    contents: u64,
    spread: Permutation,
    made: u64,
}

impl RandomReads {
    /// Checks the configuration.
    pub fn new(config: RandomReadsConfig) -> TraceResult<RandomReads> {
        within("a working set over cache", config.working_set_ratio, 0.001..=1e6)?;
        within("a deduplication ratio", config.dedup_ratio, 1.0..=1e6)?;
        let bytes = (config.cache_bytes as f64 * config.working_set_ratio) as u64;
        let chunks = whole_chunks("a working set", bytes, config.chunk_bytes)?;
        let contents = ((chunks as f64 / config.dedup_ratio).round() as u64).max(1);
        let spread = Permutation::new(chunks, config.seed);
        Ok(RandomReads { config, rng: Rng::new(config.seed), chunks, contents, spread, made: 0 })
    }

    /// A read of each chunk of the working set, by address: what a cache is warmed with. Numbered from 1, as the trace is.
    pub fn each(&self) -> impl Iterator<Item = Record> + '_ {
        (0..self.chunks).map(|chunk| self.read(chunk + 1, chunk))
    }

    fn read(&self, request: u64, chunk: u64) -> Record {
        let RandomReadsConfig { chunk_bytes, seed, compress, .. } = self.config;
        let number = self.spread.apply(chunk) % self.contents;
        let bytes = u64::from(chunk_bytes);
        let mut record = Record::new(request, Op::Read, chunk * bytes, bytes);
        record.content = Some(made_content(seed, number, chunk_bytes, &compress));
        record
    }

    /// Bytes of the working set: the size of the disk.
    pub fn working_set_bytes(&self) -> u64 {
        self.chunks * u64::from(self.config.chunk_bytes)
    }
}

impl Iterator for RandomReads {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.made == self.config.requests {
            return None;
        }
        self.made += 1;
        let chunk = self.rng.below(self.chunks);
        Some(Ok(self.read(self.made, chunk)))
    }
}
