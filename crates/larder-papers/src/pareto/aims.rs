//! The aims of `larder`, each beside our figures.
//!
//! It sets no aim for single traces.

use super::{
    cells::TraceCells,
    tables::{in_mode, policies},
    verdict::{AgainstBest, is_dominated},
};
use crate::{
    Comparison, Span,
    averages::{mean, median},
};
use larder_sim::cache::WritePolicy;

/// The size of the aims, in percent of the working set.
const AT_PERCENT: f64 = 10.0;
/// The share of the gap to the bound, in percent.
const GAP_CLOSED: f64 = 50.0;
/// The bytes of write-through in percent of the best other design's: in any trace, and the median.
const WRITTEN_MAX: f64 = 33.0;
const WRITTEN_MEDIAN: f64 = 25.0;
/// The RAM for a mapped chunk in percent of the leanest other design's.
const RAM_MAX: f64 = 60.0;

/// Puts the aims beside our figures.
pub(super) fn comparisons(all: &[TraceCells]) -> Vec<Comparison> {
    let mut found = Vec::new();
    let mut add = |what: String, aim: f64, ours: Option<f64>| {
        found.push(Comparison { what, published: Span::at(aim), ours: ours.map(Span::at) });
    };
    for policy in policies(all) {
        let mode = policy.name();
        add(format!("{mode}: caches of others that larder dominates (%), all"), 100.0, mean(&won(all, policy)));
        let of = |of: fn(&AgainstBest) -> Option<f64>| against(all, policy, AT_PERCENT, of);
        let gaps = of(|against| against.gap_closed);
        let what = format!("{mode}, {AT_PERCENT}%: gap to the bound that larder closes (%), mean, at least");
        add(what, GAP_CLOSED, mean(&gaps));
        if policy == WritePolicy::Through {
            let bytes = of(|against| against.written);
            let of_best = format!("{mode}, {AT_PERCENT}%: bytes of larder, of the best other's (%)");
            add(format!("{of_best}, most, at most"), WRITTEN_MAX, bytes.iter().copied().reduce(f64::max));
            add(format!("{of_best}, median, at most"), WRITTEN_MEDIAN, median(bytes));
        }
        let ram = of(|against| against.ram);
        let what = format!("{mode}, {AT_PERCENT}%: RAM of larder, of the leanest other's (%), most, at most");
        add(what, RAM_MAX, ram.into_iter().reduce(f64::max));
    }
    found
}

/// Returns 100 for each cache of another design that ours dominates, and 0 for each other.
fn won(all: &[TraceCells], policy: WritePolicy) -> Vec<f64> {
    let mut won = Vec::new();
    for (_, mode) in in_mode(all, policy) {
        for (size, cell) in mode.others().flat_map(|(_, cells)| cells.iter().enumerate()) {
            won.extend(is_dominated(mode, size, *cell).map(|is_it| if is_it { 100.0 } else { 0.0 }));
        }
    }
    won
}

/// Returns a figure of each trace at a size.
fn against(all: &[TraceCells], policy: WritePolicy, percent: f64, of: fn(&AgainstBest) -> Option<f64>) -> Vec<f64> {
    in_mode(all, policy)
        .filter_map(|(trace, mode)| {
            let size = trace.percents.iter().position(|other| *other == percent)?;
            of(&AgainstBest::of(trace, mode, size)?)
        })
        .collect()
}
