//! Rows as a table for people: a line a replay, numbers under one another, and below them how far any cache could have
//! gone.
//!
//! What it does not do: choose what is replayed.

use super::{Row, plotted};

/// A column: its heads, one over the other, and its cell.
struct Column {
    heads: [&'static str; 2],
    cell: fn(&Row) -> String,
}

#[rustfmt::skip]
const COLUMNS: &[Column] = &[
    Column { heads: ["", "flash"], cell: flash },
    Column { heads: ["", "mode"], cell: |row| text(row, "mode").trim_start_matches("write-").to_owned() },
    Column { heads: ["read", "hits %"], cell: |row| number(row, "read_hit_ratio", 2) },
    Column { heads: ["write", "hits %"], cell: |row| number(row, "write_hit_ratio", 2) },
    Column { heads: ["all", "misses %"], cell: |row| number(row, "total_miss_ratio", 2) },
    Column { heads: ["dedup", "ratio"], cell: |row| number(row, "dedup_ratio", 2) },
    Column { heads: ["compr.", "ratio"], cell: |row| number(row, "compression_ratio", 2) },
    Column { heads: ["data", "written MiB"], cell: |row| number(row, "flash_bytes_written", 1) },
    Column { heads: ["metadata", "written MiB"], cell: |row| number(row, "flash_metadata_bytes_written", 1) },
    Column { heads: ["writes", "saved %"], cell: |row| number(row, "write_reduction_ratio", 1) },
    Column { heads: ["stale", "%"], cell: |row| number(row, "stale_ratio", 1) },
    Column { heads: ["index", "RAM MiB"], cell: |row| number(row, "index_ram_bytes", 2) },
    Column { heads: ["bytes", "a chunk"], cell: |row| number(row, "index_ram_bytes_per_mapped_chunk", 1) },
    Column { heads: ["million", "requests/s"], cell: |row| number(row, "requests_per_second", 1) },
];

/// The table of `rows`. Where they have bounds, lines below say what is possible on each flash, and how much of that the
/// best of the rows reaches.
pub fn table(rows: &[Row]) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for at in 0..2 {
        let heads = COLUMNS.iter().map(|column| column.heads[at].to_owned());
        lines.push(std::iter::once(["", "setup"][at].to_owned()).chain(heads).collect());
    }
    for row in rows {
        let cells = COLUMNS.iter().map(|column| (column.cell)(row));
        lines.push(std::iter::once(text(row, "setup").to_owned()).chain(cells).collect());
    }
    let mut out = aligned(&lines);
    out.push_str(&bounds(rows));
    out
}

/// The first column to the left, the others to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            match at {
                0 => text.push_str(&format!("{cell:<width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// What is possible, for each flash and chunk size in the order in which they come.
fn bounds(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut seen: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| plotted(row, "bound_read_hit_ratio_upper").is_some()) {
        let place = |row: &Row| {
            format!("{} {}", row.get("flash").unwrap_or_default(), row.get("chunk_bytes").unwrap_or_default())
        };
        if seen.contains(&place(row)) {
            continue;
        }
        seen.push(place(row));
        let here: Vec<&Row> = rows.iter().filter(|other| place(other) == place(row)).collect();
        let greatest = |key: &str| here.iter().filter_map(|row| row.get(key)?.as_f64()).fold(0.0, f64::max) * 100.0;
        let best = here.iter().max_by(|a, b| {
            let ratio = |row: &Row| row.get("read_hit_ratio").and_then(|ratio| ratio.as_f64()).unwrap_or(0.0);
            ratio(a).total_cmp(&ratio(b))
        });
        let (upper, lower) = (greatest("bound_read_hit_ratio_upper"), greatest("bound_read_hit_ratio_lower"));
        let optimum = match upper - lower < 0.005 {
            true => format!("{upper:.2}%"),
            false => format!("between {lower:.2}% and {upper:.2}%"),
        };
        let plain = greatest("bound_uncompressed_read_hit_ratio");
        let reached = best.map_or(String::new(), |best| {
            let ratio = 100.0 * best.get("read_hit_ratio").and_then(|ratio| ratio.as_f64()).unwrap_or(0.0);
            let share = if upper > 0.0 { 100.0 * ratio / upper } else { 100.0 };
            format!("; the best here, {}, has {share:.1}% of that", text(best, "setup"))
        });
        let of = flash(row);
        out.push_str(&format!(
            "bound, {of}: read hits of {optimum} at most are possible ({plain:.2}% uncompressed){reached}\n"
        ));
    }
    out
}

fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(|value| value.as_str()).unwrap_or("-")
}

fn number(row: &Row, key: &str, digits: usize) -> String {
    plotted(row, key).map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// A flash as it was asked for, and its size where that does not tell it.
fn flash(row: &Row) -> String {
    let mib = row.get("flash_bytes").and_then(|bytes| bytes.as_f64()).unwrap_or(0.0) / f64::from(1 << 20);
    let digits = if mib < 10.0 { 2 } else { usize::from(mib < 1000.0) };
    match text(row, "flash") {
        share if share.ends_with('%') => format!("{share} = {mib:.digits$} MiB"),
        chunks if chunks.ends_with('c') => chunks.to_owned(),
        _ => format!("{mib:.digits$} MiB"),
    }
}
