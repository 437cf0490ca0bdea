//! Reports: a row is the JSON object of one replay; rows become a list, a CSV file, a table or a
//! chart.
//!
//! [`COLUMNS`] names every key of a row; docs/LAB.md explains them. Names carry units. A name that
//! ends in `_ratio` is a share of 1, or 1 and more. A figure that was not asked for, or not
//! computed, is null.
//!
//! Rows of caches on a simulated drive have the keys of [`drive::COLUMNS`], too, and those with
//! time [`time::COLUMNS`].
//!
//! Invariants: each row has each key. A ratio of nothing, such as of hits without reads, is null.
//!
//! It leaves the computation to `measure.rs` and `bound.rs`.

pub mod drive;
mod keys;
pub mod plot;
pub mod table;
pub mod time;

use serde_json::{Value, json};

use crate::{
    bound::Bound,
    measure::Measures,
    setup::{ReplayDesign, Setup},
};

pub use keys::{COLUMNS, METRICS, Row};

/// Returns a number of a row in the unit of its axis in [`METRICS`]. `None` if it is null.
///
/// The unit is percent, MiB, thousands, millions or milliseconds.
pub fn plotted(row: &Row, metric: &str) -> Option<f64> {
    let value = row.get(metric)?.as_f64()?;
    if metric.starts_with(time::PREFIX) && metric.ends_with("_us") {
        return Some(value / 1e3);
    }
    let unit = METRICS.iter().find(|(name, _)| *name == metric).map_or("", |(_, label)| *label);
    Some(match unit {
        _ if unit.ends_with("(%)") => 100.0 * value,
        _ if unit.ends_with("(MiB)") => value / f64::from(1 << 20),
        _ if unit.contains("million") => value / 1e6,
        _ if unit.ends_with("(thousands)") => value / 1e3,
        _ => value,
    })
}

/// Returns the options in the name of a row's setup, as `name=value`.
fn own_options(row: &Row) -> Vec<&str> {
    row.get("setup").and_then(Value::as_str).unwrap_or_default().split(':').skip(1).collect()
}

/// Returns the options that are the same in all rows whose design has them.
pub fn common_options(rows: &[Row]) -> Vec<String> {
    let is_common = |option: &str| {
        let name = option.split('=').next().unwrap_or_default();
        rows.iter().all(|row| {
            let design = ReplayDesign::named(row.get("design").and_then(Value::as_str).unwrap_or_default());
            let has = design.is_ok_and(|design| design.options.iter().any(|id| id.name() == name));
            // A translation layer belongs to no design.
            !has && name != "ftl" || own_options(row).contains(&option)
        })
    };
    let mut common: Vec<String> = Vec::new();
    for option in rows.iter().flat_map(own_options) {
        if is_common(option) && !common.iter().any(|known| known == option) {
            common.push(option.to_owned());
        }
    }
    common
}

/// Returns the names of the rows' setups, without their common options.
pub fn short_names(rows: &[Row]) -> Vec<String> {
    let common = common_options(rows);
    let name = |row: &Row| {
        let design = row.get("design").and_then(Value::as_str).unwrap_or_default().to_owned();
        let own = own_options(row).into_iter().filter(|option| !common.iter().any(|other| other == option));
        std::iter::once(design).chain(own.map(str::to_owned)).collect::<Vec<_>>().join(":")
    };
    rows.iter().map(name).collect()
}

/// The known facts on the trace of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceFacts {
    /// Its name, as it was given.
    pub name: String,
    /// The source of its content, if it has any.
    pub content: Option<String>,
    /// Bad lines that were passed over.
    pub lines_skipped: u64,
    /// Times that stepped back.
    pub back_steps: u64,
    /// The time that the trace takes, if it tells.
    pub seconds: Option<f64>,
}

/// The bounds of any cache in place of that of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowBounds {
    /// The bound if chunks take their compressed size.
    pub compressed: Bound,
    /// The highest ratio of read hits if they take their whole size.
    pub uncompressed_ratio: f64,
    /// The same if they take their compressed size and the origin reveals their contents.
    pub revealed_ratio: f64,
}

/// The bound of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowBound {
    /// The trace has a bound.
    Known(RowBounds),
    /// The trace has no bound, because reads contradict it.
    Withdrawn {
        /// The contradicting reads, in chunks.
        reads: u64,
    },
}

impl RowBound {
    fn known(&self) -> Option<&RowBounds> {
        if let RowBound::Known(bounds) = self { Some(bounds) } else { None }
    }

    /// Returns the reason if there is none, in one sentence.
    fn why_withdrawn(&self) -> Option<String> {
        let RowBound::Withdrawn { reads } = self else { return None };
        let (reads, find) =
            if *reads == 1 { ("1 read".to_owned(), "finds") } else { (format!("{reads} reads"), "find") };
        Some(format!(
            "the trace contradicts itself, so no bound holds: {reads} of a chunk {find} other content than was last written \
             or first read there"
        ))
    }
}

/// Returns the row of a replay.
pub fn row(setup: &Setup, measures: &Measures, trace: &TraceFacts, bound: Option<&RowBound>) -> Row {
    let beneath = setup.options.drive.as_ref().zip(measures.drive.as_ref());
    let beneath = beneath.map_or(Value::Null, |(setup, measures)| drive::figures(setup, measures, trace.seconds));
    let parts = [names(setup, measures, trace), hits(measures, bound), costs(measures), state(measures), beneath];
    parts
        .into_iter()
        .filter_map(|part| if let Value::Object(part) = part { Some(part) } else { None })
        .flatten()
        .collect()
}

/// Returns the names of the setup and the trace.
fn names(setup: &Setup, measures: &Measures, trace: &TraceFacts) -> Value {
    json!({
        "design": setup.design.name,
        "setup": setup.label(),
        "trace": trace.name,
        "content": trace.content,
        "mode": setup.policy.name(),
        "chunk_bytes": setup.chunk_bytes,
        "flash": setup.flash.to_string(),
        "flash_bytes": measures.flash_bytes,
        "flash_data_bytes": measures.flash_data_bytes,
        "ram_budget_bytes": setup.options.ram_bytes,
        "warmup_requests": measures.warmup_requests,
        "elapsed_seconds": measures.elapsed.as_secs_f64(),
        "requests_per_second": measures.requests_per_second().round(),
        "lines_skipped": trace.lines_skipped,
        "back_steps": trace.back_steps,
    })
}

/// Returns `ratio`, or `None` if its whole is 0.
fn of(whole: u64, ratio: f64) -> Option<f64> {
    (whole > 0).then_some(ratio)
}

/// Returns the requests and their hits.
fn hits(measures: &Measures, bound: Option<&RowBound>) -> Value {
    let bounds = bound.and_then(RowBound::known).filter(|_| measures.tally.reads > 0);
    let tally = &measures.tally;
    json!({
        "requests": tally.requests(),
        "reads": tally.reads,
        "writes": tally.writes,
        "trims": tally.trims,
        "flushes": tally.flushes,
        "read_hits": tally.read_hits,
        "write_hits": tally.write_hits,
        "read_hit_ratio": of(tally.reads, tally.read_hit_ratio()),
        "write_hit_ratio": of(tally.writes, tally.write_hit_ratio()),
        "read_miss_ratio": of(tally.requests(), tally.read_miss_ratio()),
        "write_miss_ratio": of(tally.requests(), tally.write_miss_ratio()),
        "total_miss_ratio": of(tally.requests(), tally.total_miss_ratio()),
        "bound_read_hit_ratio_upper": bounds.map(|bounds| bounds.compressed.read_hit_ratio_upper()),
        "bound_read_hit_ratio_lower": bounds.map(|bounds| bounds.compressed.read_hit_ratio_lower()),
        "bound_uncompressed_read_hit_ratio": bounds.map(|bounds| bounds.uncompressed_ratio),
        "bound_revealed_read_hit_ratio_upper": bounds.map(|bounds| bounds.revealed_ratio),
        "bound_flash_bytes_lower": bounds.map(|bounds| bounds.compressed.written_lower),
        "bound_flash_bytes_upper": bounds.map(|bounds| bounds.compressed.written_upper),
        "bound_withdrawn": bound.and_then(RowBound::why_withdrawn),
    })
}

/// Returns the traffic of the devices.
fn costs(measures: &Measures) -> Value {
    let Measures { tally, traffic, .. } = measures;
    json!({
        "write_reduction_ratio": of(traffic.chunks_stored + traffic.chunks_deduplicated, measures.write_reduction_ratio()),
        "writes_to_flash_ratio": of(tally.requests(), tally.writes_to_flash_ratio(traffic)),
        "flash_bytes_written": traffic.flash_data_bytes_written,
        "flash_metadata_bytes_written": traffic.flash_metadata_bytes_written,
        "flash_total_bytes_written": measures.flash_total_bytes_written(),
        "flash_bytes_read": traffic.flash_data_bytes_read,
        "flash_metadata_bytes_read": traffic.flash_metadata_bytes_read,
        "origin_chunks_read": traffic.origin_chunks_read,
        "origin_chunks_written": traffic.origin_chunks_written,
        "chunks_stored": traffic.chunks_stored,
        "chunks_deduplicated": traffic.chunks_deduplicated,
        "chunks_evicted": traffic.chunks_evicted,
        "weu_erasures": traffic.weu_erasures,
        "ghost_hits": traffic.ghost_hits,
    })
}

/// Returns the state of the cache at the end.
fn state(measures: &Measures) -> Value {
    let figures = &measures.figures;
    json!({
        "mapped_chunks": figures.mapped_chunks,
        "live_chunks": figures.live_chunks,
        "stale_chunks": figures.stale_chunks,
        "stale_ratio": of(figures.stale_chunks + figures.live_chunks, measures.stale_ratio()),
        "dedup_ratio": of(figures.live_chunks, measures.dedup_ratio()),
        "compression_ratio": of(figures.live_chunks, measures.compression_ratio()),
        "index_ram_bytes": figures.index_ram_bytes,
        "index_ram_bytes_per_mapped_chunk": of(figures.mapped_chunks, measures.index_ram_bytes_per_mapped_chunk()),
        "index_ram_bytes_per_cached_gib": of(figures.mapped_chunks, measures.index_ram_bytes_per_cached_gib()),
    })
}

/// Writes rows as CSV: a header, and a line for each. A null is empty.
///
/// Columns of drives and of time are there if some row has them.
pub fn csv(rows: &[Row]) -> String {
    let mut columns: Vec<(String, &str, Option<&str>)> =
        COLUMNS.iter().map(|column| ((*column).to_owned(), *column, None)).collect();
    if rows.iter().any(drive::has_drive) {
        columns.extend(drive::csv_columns());
    }
    if rows.iter().any(time::has_time) {
        columns.extend(time::COLUMNS.iter().map(|column| ((*column).to_owned(), *column, None)));
    }
    let heads: Vec<&str> = columns.iter().map(|(head, ..)| head.as_str()).collect();
    let mut out = heads.join(",") + "\n";
    for row in rows {
        let cells = columns.iter().map(|(_, key, part)| {
            let value = row.get(*key);
            csv_cell(part.map_or(value, |part| value.and_then(|value| value.get(part))))
        });
        out.push_str(&cells.collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

/// Returns a value as a cell of a CSV file; none is empty.
pub fn csv_cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
