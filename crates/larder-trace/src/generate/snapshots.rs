//! Made-up daily snapshots of a disk: all of it on day 0, then each day's changes.
//!
//! The records are those of the reader of the `days` format.
//!
//! Source: Nitro §5.2 ("Restore trace"): 100 daily snapshots of a workstation's disk of 38 GB,
//! with a median over-write rate of 2.3% a day. §6.3: the newest 25 snapshots share 80% of their
//! content with the disk at the end on average, the oldest 25 share 20%. Those are the defaults. To
//! meet both, a tenth of the disk never changes, and the rest changes evenly.
//!
//! Ours: changes come in runs of 32 KiB. A day's rate is log-normal about the median. A share of
//! the written blocks repeats earlier content.
//!
//! Invariants: memory is a few words.
//!
//! It does not restore. It leaves this to `restore.rs`, for these and for recorded days.

use super::{whole_chunks, within};
use crate::{
    error::TraceResult,
    formats::days::DAY_US,
    record::{Op, Record},
    rng::{TraceRng, mix, unit},
    synthetic::{Compressibility, made_content, skewed},
};

/// Bytes of a block.
const BLOCK_BYTES: u32 = 4096;
/// Blocks that change together.
const RUN_BLOCKS: u64 = 8;
/// The share of the disk that never changes.
const FROZEN_SHARE: f64 = 0.1;
/// The deviation of the logarithm of a day's rate.
const RATE_DEVIATION: f64 = 0.3;

/// The parameters of the snapshots.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotsConfig {
    /// Size of the disk.
    pub image_bytes: u64,
    /// Days, the first (day 0) included.
    pub days: u32,
    /// The median share of the disk that is written in a day.
    pub overwrite_share: f64,
    /// The share of written blocks that repeat earlier content.
    pub duplication: f64,
    /// The distribution of the compression ratio.
    pub compress: Compressibility,
    /// Another seed is another disk.
    pub seed: u64,
}

impl Default for SnapshotsConfig {
    fn default() -> Self {
        SnapshotsConfig {
            image_bytes: 38 << 30,
            days: 100,
            overwrite_share: 0.023,
            duplication: 0.3,
            compress: Compressibility::default(),
            seed: 0,
        }
    }
}

/// The days, block by block.
pub struct Snapshots {
    config: SnapshotsConfig,
    rng: TraceRng,
    blocks: u64,
    day: u64,
    next_block: u64,
    /// The probability that a run changes on this day.
    rate: f64,
    contents: u64,
}

impl Snapshots {
    /// Checks the configuration.
    pub fn new(config: SnapshotsConfig) -> TraceResult<Snapshots> {
        let blocks = whole_chunks("a disk", config.image_bytes, BLOCK_BYTES)?;
        within("an over-write share", config.overwrite_share, 0.0..=1.0)?;
        within("a duplication", config.duplication, 0.0..=1.0)?;
        Ok(Snapshots { config, rng: TraceRng::new(config.seed), blocks, day: 0, next_block: 0, rate: 1.0, contents: 0 })
    }

    /// Moves to the next run that changes, on this day or a later one. False at the end of the
    /// days.
    fn find_run(&mut self) -> bool {
        while self.day < u64::from(self.config.days) {
            while self.next_block < self.blocks {
                let run = self.next_block / RUN_BLOCKS;
                let is_frozen = unit(mix(run ^ mix(self.config.seed))) < FROZEN_SHARE;
                if self.day == 0 || !is_frozen && self.rng.chance(self.rate) {
                    return true;
                }
                self.next_block = (run + 1) * RUN_BLOCKS;
            }
            self.day += 1;
            self.next_block = 0;
            let factor = (RATE_DEVIATION * self.rng.normal()).exp();
            self.rate = self.config.overwrite_share * factor / (1.0 - FROZEN_SHARE);
        }
        false
    }
}

impl Iterator for Snapshots {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let starts_run = self.next_block.is_multiple_of(RUN_BLOCKS) || self.next_block >= self.blocks;
        if starts_run && !self.find_run() {
            return None;
        }
        let is_known = self.contents > 0 && self.rng.chance(self.config.duplication);
        let content = if is_known { self.contents - skewed(&mut self.rng, self.contents) } else { self.contents };
        self.contents += u64::from(!is_known);
        let bytes = u64::from(BLOCK_BYTES);
        let mut record = Record::new(self.day + 1, Op::Write, self.next_block * bytes, bytes);
        record.time_us = Some(self.day * DAY_US);
        record.content = Some(made_content(self.config.seed, content, BLOCK_BYTES, &self.config.compress));
        self.next_block += 1;
        Some(Ok(record))
    }
}
