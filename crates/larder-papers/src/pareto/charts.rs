//! The charts: hits against flash bytes in each mode, and against RAM. A design is a curve.
//!
//! Invariants: a curve goes through the sizes in their order. All charts have one look of a design.
//!
//! It leaves out caches that cannot be.

use super::cells::{CHUNK_BYTES, CellFigures, ModeCells, TraceCells};
use larder_core::larder;
use larder_sim::report::plot::{Chart, ChartKind, Role, Scale, Series};

const HITS: &str = "Read hit ratio (%)";
const WRITTEN: &str = "Written to flash (MiB), logarithmic axis";
const RAM: &str = "RAM of the index (MiB), logarithmic axis";

/// Draws the charts of all traces: a row each.
pub(super) fn charts(all: &[TraceCells]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for trace in all {
        for mode in &trace.modes {
            let bound = trace.bounds.iter().flatten().map(|bound| (bound.written, bound.hits)).collect();
            let bound = Series { name: "bound".to_owned(), points: bound, role: Role::Reference };
            charts.push(chart(trace, mode, WRITTEN, |cell| cell.written, Some(bound)));
        }
        if let Some(mode) = trace.modes.first() {
            charts.push(chart(trace, mode, RAM, |cell| cell.ram, None));
        }
    }
    // A trace without reads has no curve.
    charts.retain(|chart| chart.series.iter().any(|series| series.points.iter().any(|(_, hits)| *hits > 0.0)));
    charts
}

fn chart(
    trace: &TraceCells,
    mode: &ModeCells,
    x_label: &str,
    x: fn(&CellFigures) -> f64,
    reference: Option<Series>,
) -> Chart {
    let curve = |(name, cells): (&str, &[Option<CellFigures>])| {
        let points = cells.iter().flatten().map(|cell| (x(cell), cell.hits)).collect();
        let role = if name == larder::DESIGN.name { Role::Subject } else { Role::Measured };
        Series { name: name.to_owned(), points, role }
    };
    let percents: Vec<String> = trace.percents.iter().map(f64::to_string).collect();
    Chart {
        title: format!("{}, {}", trace.title, mode.policy.name()),
        subtitle: format!(
            "A curve goes through flashes of {}% of the working set; chunks of {} KiB",
            percents.join(", "),
            CHUNK_BYTES >> 10
        ),
        x_label: x_label.to_owned(),
        y_label: HITS.to_owned(),
        y: Scale::Linear,
        kind: ChartKind::Paths { x: Scale::Log },
        series: mode.designs().map(curve).chain(reference).collect(),
    }
}
