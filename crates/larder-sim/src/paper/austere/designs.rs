//! The designs side by side, by cache size: Figures 5, 7 and 8 (§5.3).
//!
//! What it does not do: vary anything but the size.

use super::{AC_D, AC_DC, CD_ARC_D, CD_ARC_DC, CD_LRU_D, Scheme, by_size};
use crate::{
    paper::{Comparison, Lab, Replayed, Report, Span, Table},
    report::plot::Scale,
};

const SCHEMES: [&Scheme; 5] = [&CD_LRU_D, &CD_ARC_D, &AC_D, &CD_ARC_DC, &AC_DC];
const PERCENTS: [f64; 4] = [12.5, 25.0, 50.0, 100.0];
const SIZE_LABEL: &str = "Cache size (% of WSS)";

/// A table for each trace, a line for each scheme.
fn tables(lab: &mut Lab<'_>, label: &str, figure: fn(&Replayed) -> f64) -> Result<Vec<Table>, String> {
    let mut tables = Vec::new();
    for at in 0..lab.workload_count() {
        let mut table = Table::new(lab.workload(at)?.name(), label, SIZE_LABEL, PERCENTS);
        for (scheme, ours) in SCHEMES.iter().zip(by_size(lab, at, &SCHEMES, &PERCENTS, figure)?) {
            table.push(scheme.name, ours.into_iter().map(Some));
        }
        tables.push(table);
    }
    Ok(tables)
}

/// One figure a cell of two schemes, over the tables of some traces (all where none is named).
fn over<'a>(
    tables: &'a [Table],
    traces: &'a [&'a str],
    a: &'a Scheme,
    b: &'a Scheme,
    of: fn(f64, f64) -> f64,
) -> Option<Span> {
    let tables = tables.iter().filter(|table| traces.is_empty() || traces.contains(&table.title()));
    let pairs = tables.filter_map(|table| Some(table.ours(a.name)?.iter().zip(table.ours(b.name)?)));
    Span::over(pairs.flatten().filter_map(|(a, b)| Some(of((*a)?, (*b)?))))
}

/// By how many percent `a` is more than `b`.
fn percent_more(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { 100.0 * (a - b) / b }
}

/// Figure 7: read hit ratios.
pub(super) fn fig7(lab: &mut Lab<'_>) -> Result<Report, String> {
    let label = "Read hit ratio (%)";
    let tables = tables(lab, label, |replayed| 100.0 * replayed.measures.tally.read_hit_ratio())?;
    let more = |what: &str, traces: &[&str], a, b, low, high| Comparison {
        what: format!("{what} (%)"),
        published: Span::of(low, high),
        ours: over(&tables, traces, a, b, percent_more),
    };
    let most =
        |comparison: Comparison| Comparison { ours: comparison.ours.map(|span| Span::at(span.high)), ..comparison };
    let comparisons = vec![
        most(more("AC-D over CD-LRU-D, at most", &[], &AC_D, &CD_LRU_D, 39.2, 39.2)),
        more("AC-DC over CD-ARC-DC, WebVM", &["WebVM"], &AC_DC, &CD_ARC_DC, 0.5, 30.7),
        more("AC-DC over CD-ARC-DC, Homes", &["Homes"], &AC_DC, &CD_ARC_DC, 0.7, 9.9),
        more("AC-DC over CD-ARC-DC, Mail", &["Mail"], &AC_DC, &CD_ARC_DC, 0.3, 6.2),
    ];
    let chart =
        |table: &Table| table.lines(format!("{}: read hit ratio", table.title()), "", Scale::Linear, Scale::Linear);
    let charts = tables.iter().map(chart).collect();
    Ok(Report { charts, tables, comparisons, words: Vec::new() })
}
