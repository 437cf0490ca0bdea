//! The caches of a trace: each design at each size in each mode, and the bounds of each size.
//!
//! A trace is read once into memory. Each thread then replays one cache at a time.
//!
//! Invariants: designs are in the order of [`REPLAY_DESIGNS`], sizes in that of the grid.
//!
//! It does not compare them.

use crate::{How, Lab};
use larder_core::larder;
use larder_format::layout::WEU_BYTES_MIN;
use larder_sim::{
    bound::BoundTraces,
    cache::{CacheRequest, WritePolicy},
    lab::{BoundListener, Collected, LabListener},
    measure::Meter,
    replay::BATCH_REQUESTS,
    setup::{Accounting, Built, FlashAmount, OptionId, Options, REPLAY_DESIGNS, Setup},
};
use larder_trace::Unknown;

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: u32 = 4096;
const MIB: f64 = (1u64 << 20) as f64;

/// The figures of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellFigures {
    /// Read hits in percent of the reads.
    pub hits: f64,
    /// MiB written to flash.
    pub written: f64,
    /// MiB of the index.
    pub ram: f64,
    /// Bytes of the index for each mapped chunk.
    pub chunk_ram: Option<f64>,
}

/// The bounds of a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeBound {
    /// Read hits in percent of the reads.
    pub hits: f64,
    /// The same if the origin reveals contents.
    pub revealed: f64,
    /// The least MiB written to flash.
    pub written: f64,
}

/// The caches of a trace in a mode.
pub(super) struct ModeCells {
    /// The mode.
    pub policy: WritePolicy,
    /// By design, then by size.
    cells: Vec<Vec<Option<CellFigures>>>,
}

impl ModeCells {
    /// Returns the caches of each design, with its name.
    pub fn designs(&self) -> impl Iterator<Item = (&'static str, &[Option<CellFigures>])> {
        REPLAY_DESIGNS.iter().zip(&self.cells).map(|(design, cells)| (design.name, cells.as_slice()))
    }

    /// Returns the caches of each design but ours.
    pub fn others(&self) -> impl Iterator<Item = (&'static str, &[Option<CellFigures>])> {
        self.designs().filter(|(name, _)| *name != larder::DESIGN.name)
    }

    /// Returns our cache of a size.
    pub fn ours(&self, size: usize) -> Option<CellFigures> {
        let (_, cells) = self.designs().find(|(name, _)| *name == larder::DESIGN.name)?;
        cells.get(size).copied().flatten()
    }
}

/// The caches of a trace.
pub(super) struct TraceCells {
    /// The title of the trace.
    pub title: String,
    /// Sizes of the flash, in percent of the working set.
    pub percents: Vec<f64>,
    /// A bound for each size; none if the trace has none.
    pub bounds: Vec<Option<SizeBound>>,
    /// The caches, by mode.
    pub modes: Vec<ModeCells>,
    /// The caches that cannot be, each with a reason.
    pub refused: Vec<String>,
}

impl TraceCells {
    /// Replays the trace at a place of the lab.
    ///
    /// # Errors
    /// A sentence: the trace's.
    pub fn replay(lab: &mut Lab<'_>, at: usize) -> Result<TraceCells, String> {
        let how = How::new(CHUNK_BYTES, Unknown::Unique);
        let working_set = lab.survey(at, &how)?.working_set_chunks;
        let (grid, title) = (lab.grid().clone(), lab.workload(at)?.title().to_owned());
        let requests = lab.all_requests(at, &how)?;
        let of = |policy, design, percent| Setup {
            design,
            chunk_bytes: CHUNK_BYTES,
            flash: FlashAmount::PercentOfWorkingSet(percent),
            policy,
            options: Options::default(),
        };
        let mut setups = Vec::new();
        for &policy in &grid.policies {
            for design in REPLAY_DESIGNS {
                setups.extend(grid.percents.iter().map(|&percent| of(policy, design, percent)));
            }
        }
        let mut cells = lab.each(&setups, |setup| Ok(replayed(setup, working_set, &requests)))?.into_iter();
        let (mut modes, mut refused) = (Vec::new(), Vec::new());
        for &policy in &grid.policies {
            let mut mode = ModeCells { policy, cells: Vec::new() };
            for design in REPLAY_DESIGNS {
                let of_design = cells.by_ref().take(grid.percents.len()).zip(&grid.percents);
                let row = of_design.map(|(cell, percent)| {
                    cell.map_err(|why| refused.push(format!("{} on {percent}% of {title}: {why}", design.name))).ok()
                });
                mode.cells.push(row.collect());
            }
            modes.push(mode);
        }
        refused.dedup();
        let bounds = bounds(&requests, working_set, &grid.percents);
        Ok(TraceCells { title, percents: grid.percents, bounds, modes, refused })
    }

    /// Returns the names of the sizes.
    pub fn columns(&self) -> Vec<String> {
        self.percents.iter().map(|percent| format!("{percent}%")).collect()
    }
}

/// Replays requests through a cache.
fn replayed(setup: &Setup, working_set: u64, requests: &[CacheRequest]) -> Result<CellFigures, String> {
    let mut meter = Meter::new(built(setup, working_set)?, CHUNK_BYTES, 0);
    requests.chunks(BATCH_REQUESTS).for_each(|batch| meter.take(batch));
    let measures = meter.finish();
    let mapped = measures.figures.mapped_chunks;
    Ok(CellFigures {
        hits: 100.0 * measures.tally.read_hit_ratio(),
        written: measures.flash_total_bytes_written() as f64 / MIB,
        ram: measures.figures.index_ram_bytes as f64 / MIB,
        chunk_ram: (mapped > 0).then(|| measures.index_ram_bytes_per_mapped_chunk()),
    })
}

/// Makes a cache. A flash too small for WEUs of the usual size has the smallest ones.
fn built(setup: &Setup, working_set: u64) -> Result<Built, String> {
    let usual = setup.build(working_set);
    if usual.is_ok() || !setup.design.takes(OptionId::Weu, Accounting::Engine) {
        return usual;
    }
    let options = Options { weu_bytes: Some(WEU_BYTES_MIN), ..setup.options };
    Setup { options, ..*setup }.build(working_set)
}

/// Computes the bounds of these sizes.
fn bounds(requests: &[CacheRequest], working_set: u64, percents: &[f64]) -> Vec<Option<SizeBound>> {
    let mut listener = BoundListener::new(0, u64::MAX);
    listener.take(requests);
    let Collected::Trace(BoundTraces { addresses, contents }) = listener.finish() else {
        return vec![None; percents.len()];
    };
    let bytes: Vec<u64> =
        percents.iter().map(|percent| (working_set as f64 * f64::from(CHUNK_BYTES) * percent / 100.0) as u64).collect();
    let revealed = contents.read_hit_ratios_in_bytes(&bytes);
    let bound = |(known, revealed): (larder_sim::bound::Bound, f64)| SizeBound {
        hits: 100.0 * known.read_hit_ratio_upper(),
        revealed: 100.0 * revealed,
        written: known.written_lower as f64 / MIB,
    };
    addresses.with_sizes(&bytes).into_iter().zip(revealed).map(|both| Some(bound(both))).collect()
}
