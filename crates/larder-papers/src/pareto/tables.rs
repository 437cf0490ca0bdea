//! The tables: figures of each trace and mode, and sums over traces.
//!
//! It does not replay.

use super::{
    cells::{CellFigures, ModeCells, TraceCells},
    verdict::{AgainstBest, is_dominated},
};
use crate::{
    Table,
    averages::{mean, median},
};
use larder_sim::cache::WritePolicy;

const SIZES: &str = "Flash (% of the working set)";
const BOUND: &str = "bound";

/// A figure of a comparison with the best.
type OfBest = (&'static str, fn(&AgainstBest) -> Option<f64>);

const OF_BEST: [OfBest; 4] = [
    ("gap to the bound closed", |against| against.gap_closed),
    ("bytes, of the best other's", |against| against.written),
    ("bytes, of the bound's", |against| against.written_of_bound),
    ("RAM a chunk, of the leanest other's", |against| against.ram),
];

/// Makes the tables of a trace.
pub(super) fn of_trace(trace: &TraceCells) -> Vec<Table> {
    trace.modes.iter().flat_map(|mode| of_mode(trace, mode)).collect()
}

fn of_mode(trace: &TraceCells, mode: &ModeCells) -> Vec<Table> {
    let title = format!("{}, {}", trace.title, mode.policy.name());
    let table = |label: &str| Table::new(title.as_str(), label, SIZES, trace.columns());
    let figures = |label: &str, of: fn(&CellFigures) -> Option<f64>| {
        let mut table = table(label);
        for (name, cells) in mode.designs() {
            table.push(name, cells.iter().map(|cell| cell.as_ref().and_then(of)));
        }
        table
    };
    let bounds = || trace.bounds.iter().copied();
    let mut hits = figures("Read hit ratio (%)", |cell| Some(cell.hits));
    hits.push(BOUND, bounds().map(|bound| bound.map(|bound| bound.hits)));
    hits.push("bound, contents revealed", bounds().map(|bound| bound.map(|bound| bound.revealed)));
    let mut written = figures("Written to flash (MiB)", |cell| Some(cell.written));
    written.push(BOUND, bounds().map(|bound| bound.map(|bound| bound.written)));
    let ram = figures("RAM (bytes a mapped chunk)", |cell| cell.chunk_ram);
    let mut dominated = table("Dominated by larder (1: yes, 0: no)");
    for (name, cells) in mode.others() {
        let is_dominated = |(size, cell): (usize, &Option<CellFigures>)| {
            is_dominated(mode, size, *cell).map(|is_it| f64::from(u8::from(is_it)))
        };
        dominated.push(name, cells.iter().enumerate().map(is_dominated));
    }
    let mut best = table("larder against the best other design and the bound (%)");
    for (name, of) in OF_BEST {
        let cell = |size| AgainstBest::of(trace, mode, size).and_then(|against| of(&against));
        best.push(name, (0..trace.percents.len()).map(cell));
    }
    vec![hits, written, ram, dominated, best]
}

/// Returns the caches of each trace in a mode.
pub(super) fn in_mode(all: &[TraceCells], policy: WritePolicy) -> impl Iterator<Item = (&TraceCells, &ModeCells)> {
    all.iter().flat_map(move |trace| {
        trace.modes.iter().filter(move |mode| mode.policy == policy).map(move |mode| (trace, mode))
    })
}

/// Returns the modes, each once.
pub(super) fn policies(all: &[TraceCells]) -> Vec<WritePolicy> {
    all.first().map_or_else(Vec::new, |trace| trace.modes.iter().map(|mode| mode.policy).collect())
}

/// Makes the tables over all traces.
pub(super) fn of_all(all: &[TraceCells]) -> Vec<Table> {
    let Some(first) = all.first() else { return Vec::new() };
    let columns = first.columns();
    let mut tables = Vec::new();
    for policy in policies(all) {
        let title = format!("All traces, {}", policy.name());
        let table = |label: &str| Table::new(title.as_str(), label, SIZES, &columns);
        let mut dominated = table("Traces in which larder dominates (% of those with both)");
        let names = in_mode(all, policy).next().into_iter().flat_map(|(_, mode)| mode.others());
        for (name, _) in names {
            dominated.push(name, (0..columns.len()).map(|size| share_dominated(all, policy, name, size)));
        }
        tables.push(dominated);
        for (name, of) in OF_BEST {
            let mut table = table(&format!("larder: {name} (%)"));
            let of_size = |(trace, mode): (&TraceCells, &ModeCells), size| {
                AgainstBest::of(trace, mode, size).and_then(|against| of(&against))
            };
            for both in in_mode(all, policy) {
                table.push(both.0.title.as_str(), (0..columns.len()).map(|size| of_size(both, size)));
            }
            let of_all = |size| in_mode(all, policy).filter_map(|both| of_size(both, size)).collect::<Vec<f64>>();
            table.push("mean", (0..columns.len()).map(|size| mean(&of_all(size))));
            table.push("median", (0..columns.len()).map(|size| median(of_all(size))));
            tables.push(table);
        }
    }
    tables
}

/// Returns the share of traces in which ours dominates this design, in percent.
fn share_dominated(all: &[TraceCells], policy: WritePolicy, name: &str, size: usize) -> Option<f64> {
    let won: Vec<f64> = in_mode(all, policy)
        .filter_map(|(_, mode)| {
            let (_, cells) = mode.others().find(|(other, _)| *other == name)?;
            let is_it = is_dominated(mode, size, cells.get(size).copied().flatten())?;
            Some(if is_it { 100.0 } else { 0.0 })
        })
        .collect();
    mean(&won)
}
