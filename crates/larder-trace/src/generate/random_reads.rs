//! Nitro's random reads, for its sensitivity analysis.
//!
//! Source: Nitro §6.2 ("Sensitivity analysis", Figure 7). The reads cover a working set that is 1
//! to 10 times the cache, with a deduplication ratio of 1 to 10. Reads are uniform. The working set
//! has as many distinct contents as its chunks divided by the ratio. Each content is about equally
//! frequent, and spread over all addresses. The example there is a cache of 16 GB; chunks are
//! Nitro's 8 KiB.
//!
//! Invariants: memory is a few words.
//!
//! It does not write, since writes "would equivalently decrease the cache size".

use super::{whole_chunks, within};
use crate::{
    error::TraceResult,
    record::{Op, Record},
    rng::TraceRng,
    synthetic::{Compressibility, made_content},
    zipf::Permutation,
};

/// One point of the grid.
#[derive(Clone, Copy, Debug)]
pub struct RandomReadsConfig {
    /// Size of the cache; the working set is a multiple of it.
    pub cache_bytes: u64,
    /// The working set divided by the cache.
    pub working_set_ratio: f64,
    /// Chunks of the working set per distinct content, at least 1.
    pub dedup_ratio: f64,
    /// Bytes of a chunk: each request is one.
    pub chunk_bytes: u32,
    /// The distribution of the compression ratio.
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
    /// Returns the paper's grid: both ratios from 1 to 10, else this configuration.
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
    rng: TraceRng,
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
        Ok(RandomReads { config, rng: TraceRng::new(config.seed), chunks, contents, spread, made: 0 })
    }

    /// Returns one read of each chunk of the working set, by address, to warm a cache. Requests
    /// count from 1, as in the trace.
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

    /// Returns the bytes of the working set, which is the size of the disk.
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
