//! Charts of rows: bars for designs side by side, lines for a sweep.
//!
//! It does not draw; `larder_sim::report::plot` does.

use larder::{
    error::{Failure, Outcome},
    size::{self, exact},
};
use larder_sim::report::{
    METRICS, Row, common_options,
    plot::{Chart, ChartKind, Role, Scale, Series},
    plotted, short_names,
};
use std::collections::BTreeSet;

/// The span above which an axis counts in factors.
const LOG_SPAN: f64 = 6.0;
/// Names of the bounds in a legend.
const BOUND: &str = "bound (offline optimum)";

fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(|value| value.as_str()).unwrap_or_default()
}

fn number(row: &Row, key: &str) -> Option<f64> {
    row.get(key)?.as_f64()
}

/// Returns the common values of all rows, for the line under the title.
fn subtitle(rows: &[Row], with_flash: bool) -> String {
    let one = |key: &str| {
        let all: BTreeSet<String> = rows.iter().map(|row| row.get(key).unwrap_or_default().to_string()).collect();
        (all.len() == 1).then(|| rows.first()).flatten()
    };
    let mut parts = Vec::new();
    if let Some(row) = one("trace") {
        let name = std::path::Path::new(text(row, "trace")).file_name().unwrap_or_default();
        parts.push(name.to_string_lossy().into_owned());
    }
    if let Some(bytes) = one("chunk_bytes").and_then(|row| row.get("chunk_bytes")?.as_u64()) {
        parts.push(format!("chunks of {}", exact(bytes)));
    }
    if let Some(row) = one("mode") {
        parts.push(text(row, "mode").to_owned());
    }
    if let (true, Some(row)) = (with_flash, one("flash")) {
        let shown = match text(row, "flash") {
            share if share.ends_with('%') => format!("{share} of the working set"),
            chunks if chunks.ends_with('c') => format!("{} data chunks", chunks.trim_end_matches('c')),
            bytes => exact(bytes.parse().unwrap_or(0)),
        };
        parts.push(format!("flash of {shown}"));
    }
    parts.extend(common_options(rows).into_iter().filter(|option| !option.starts_with("ram=")));
    match one("content").map(|row| text(row, "content")) {
        Some("made_up") => parts.push("content MADE UP".to_owned()),
        Some("sizes_made_up") => parts.push("compressed sizes MADE UP".to_owned()),
        _ => {}
    }
    parts.join(", ")
}

fn label_of(metric: &str) -> &'static str {
    METRICS.iter().find(|(name, _)| *name == metric).map_or("", |(_, label)| *label)
}

/// Returns the name of a figure without its unit.
fn title_of(metric: &str) -> &'static str {
    label_of(metric).split(" (").next().unwrap_or_default()
}

/// Returns a chart with a bar for each row.
///
/// # Errors
/// Nothing to plot.
pub fn of_designs(rows: &[Row], metric: &str) -> Outcome<Chart> {
    let points = rows.iter().enumerate().filter_map(|(at, row)| Some((at as f64, plotted(row, metric)?))).collect();
    let mut series = vec![Series { name: title_of(metric).to_owned(), points, role: Role::Measured }];
    if metric == "read_hit_ratio" {
        let bound = |(at, row)| Some((at as f64, 100.0 * number(row, "bound_read_hit_ratio_upper")?));
        let points: Vec<_> = rows.iter().enumerate().filter_map(bound).collect();
        if !points.is_empty() {
            series.push(Series { name: BOUND.to_owned(), points, role: Role::Reference });
        }
    }
    Ok(Chart {
        title: format!("{} of each design", title_of(metric)),
        subtitle: subtitle(rows, true),
        x_label: "Design".to_owned(),
        y_label: label_of(metric).to_owned(),
        y: Scale::Linear,
        kind: ChartKind::Bars(short_names(rows)),
        series,
    })
}

/// The axis of a sweep.
struct Along {
    label: &'static str,
    /// The key of a row, and its conversion to the unit.
    key: &'static str,
    unit: f64,
    /// The option's name in the name of a setup.
    option: &'static str,
}

const ALONG: &[Along] = &[
    Along { label: "Flash size (MiB)", key: "flash_bytes", unit: 1048576.0, option: "" },
    Along { label: "RAM budget of the index (MiB)", key: "ram_budget_bytes", unit: 1048576.0, option: "ram" },
    Along { label: "Chunk size (KiB)", key: "chunk_bytes", unit: 1024.0, option: "chunk" },
    Along { label: "Subchunk size (KiB)", key: "", unit: 1024.0, option: "subchunk" },
    Along { label: "LBA entries", key: "", unit: 1.0, option: "lba-entries" },
    Along { label: "FP index ratio (%)", key: "", unit: 1.0, option: "fp-index" },
    Along { label: "WEU size (MiB)", key: "", unit: 1048576.0, option: "weu" },
];

impl Along {
    fn of(&self, row: &Row) -> Option<f64> {
        let value = match self.key {
            "" => {
                let pieces = text(row, "setup").split(':').filter_map(|piece| piece.split_once('='));
                pieces.filter(|(name, _)| *name == self.option).find_map(|(_, value)| size::parse(value).ok())? as f64
            }
            key => number(row, key)?,
        };
        Some(value / self.unit)
    }

    fn values(&self, rows: &[Row]) -> usize {
        let of = |row| self.of(row).map(f64::to_bits);
        rows.iter().filter_map(of).collect::<BTreeSet<u64>>().len()
    }
}

/// Returns a chart with a line for each setup, along the flash sizes.
///
/// With one flash size, the axis is the first other number that varies.
///
/// # Errors
/// Nothing to plot.
pub fn of_sweep(rows: &[Row], metric: &str) -> Outcome<Chart> {
    // Sizes on top of chunks differ between designs, so the requested size counts.
    let flashes = rows.iter().map(|row| text(row, "flash")).collect::<BTreeSet<_>>().len();
    let along =
        ALONG.iter().enumerate().find(|(at, along)| if *at == 0 { flashes > 1 } else { along.values(rows) > 1 });
    let (_, along) = along.ok_or_else(|| {
        Failure::failed("a chart of a sweep needs two flash sizes, RAM budgets or numbers of --vary at least")
    })?;
    let mut series: Vec<Series> = Vec::new();
    let mut bound = Series { name: BOUND.to_owned(), points: Vec::new(), role: Role::Reference };
    // A design that lacks the option is the same along all of the axis.
    let all_x = || rows.iter().filter_map(|row| along.of(row));
    let (first_x, last_x) = (all_x().fold(f64::INFINITY, f64::min), all_x().fold(f64::NEG_INFINITY, f64::max));
    for (row, short) in rows.iter().zip(short_names(rows)) {
        let name = series_name(row, &short, rows, along);
        let Some(x) = along.of(row) else {
            let points = plotted(row, metric).map(|y| vec![(first_x, y), (last_x, y)]);
            let name = format!("{name} (has no {})", along.option);
            series.extend(points.map(|points| Series { name, points, role: Role::Level }));
            continue;
        };
        let at = series.iter().position(|series| series.name == name).unwrap_or(series.len());
        if at == series.len() {
            series.push(Series { name, ..Series::default() });
        }
        if let (Some(series), Some(y)) = (series.get_mut(at), plotted(row, metric)) {
            series.points.push((x, y));
        }
        if let Some(upper) = number(row, "bound_read_hit_ratio_upper").filter(|_| metric == "read_hit_ratio") {
            bound.points.push((x, 100.0 * upper));
        }
    }
    bound.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    bound.points.dedup();
    let all = || series.iter().flat_map(|series| &series.points).map(|point| point.0).filter(|x| *x > 0.0);
    let span = all().fold(0.0, f64::max) / all().fold(f64::INFINITY, f64::min);
    // Several chunk sizes give several bounds for one flash, and so no single line.
    if !bound.points.is_empty() && along.values(rows) >= bound.points.len() {
        series.push(bound);
    }
    let x = if span >= LOG_SPAN { Scale::Log } else { Scale::Linear };
    Ok(Chart {
        title: format!("{} by {}", title_of(metric), first_lower(along.label.split(" (").next().unwrap_or_default())),
        subtitle: subtitle(rows, flashes == 1),
        x_label: along.label.to_owned(),
        y_label: label_of(metric).to_owned(),
        y: Scale::Linear,
        kind: ChartKind::Lines { x },
        series,
    })
}

/// Lowers the first letter: "RAM budget" stays, "Flash" becomes "flash".
fn first_lower(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// Returns the setup without the axis, with varying values that are no part of its name.
fn series_name(row: &Row, short: &str, rows: &[Row], along: &Along) -> String {
    let is_shown = |piece: &&str| piece.split_once('=').is_none_or(|(name, _)| name != along.option);
    let mut name = short.split(':').filter(is_shown).collect::<Vec<_>>().join(":");
    for (key, option) in [("mode", "mode"), ("chunk_bytes", "chunk"), ("flash", "flash")] {
        let all: BTreeSet<String> = rows.iter().map(|row| row.get(key).unwrap_or_default().to_string()).collect();
        if all.len() > 1 && along.key != key && !(along.key == "flash_bytes" && key == "flash") {
            let value = row.get(key).unwrap_or_default();
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            name.push_str(&format!(":{option}={value}"));
        }
    }
    name
}
