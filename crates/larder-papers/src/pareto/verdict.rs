//! The comparison of our caches with others and with the bound.
//!
//! Invariants: a comparison is none if either cache cannot be, or there is no bound.
//!
//! It does not sum up over traces.

use super::cells::{CellFigures, ModeCells, SizeBound, TraceCells};

/// Points of hits by which the dominating design may be behind.
const BEHIND_MAX: f64 = 0.5;
/// Points below the bound at least, for a gap.
const GAP_MIN: f64 = 0.5;

/// Returns whether a design dominates another in these caches.
pub(super) fn dominates(ours: &CellFigures, other: &CellFigures) -> bool {
    ours.hits + BEHIND_MAX >= other.hits && ours.written <= other.written
}

/// Returns whether our cache of a size dominates this one; `None` if either cannot be.
pub(super) fn is_dominated(mode: &ModeCells, size: usize, other: Option<CellFigures>) -> Option<bool> {
    Some(dominates(&mode.ours(size)?, &other?))
}

/// Our cache against others of its size and mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgainstBest {
    /// The share of the gap between the best other design and the bound that ours closes.
    ///
    /// In percent; negative behind that design.
    pub gap_closed: Option<f64>,
    /// Our bytes, in percent of that design's.
    pub written: Option<f64>,
    /// Our bytes, in percent of the bound's.
    pub written_of_bound: Option<f64>,
    /// Our RAM for a mapped chunk, in percent of the leanest other design's.
    pub ram: Option<f64>,
}

impl AgainstBest {
    /// Compares our cache of a size.
    pub fn of(trace: &TraceCells, mode: &ModeCells, size: usize) -> Option<AgainstBest> {
        let ours = mode.ours(size)?;
        let others = || mode.others().filter_map(|(_, cells)| cells.get(size).copied().flatten());
        let best = others().max_by(|a, b| a.hits.total_cmp(&b.hits))?;
        let bound: Option<SizeBound> = trace.bounds.get(size).copied().flatten();
        let gap = bound.map(|bound| bound.hits - best.hits).filter(|gap| *gap >= GAP_MIN);
        let leanest = others().filter_map(|cell| cell.chunk_ram).min_by(f64::total_cmp);
        Some(AgainstBest {
            gap_closed: gap.map(|gap| 100.0 * (ours.hits - best.hits) / gap),
            written: percent(ours.written, best.written),
            written_of_bound: bound.and_then(|bound| percent(ours.written, bound.written)),
            ram: ours.chunk_ram.zip(leanest).and_then(|(ours, leanest)| percent(ours, leanest)),
        })
    }
}

fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| 100.0 * part / whole)
}
