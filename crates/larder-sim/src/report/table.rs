//! Rows as a table for people: a line a replay, numbers under one another, and the bounds below
//! them.
//!
//! It leaves the choice of replays to its caller.

use super::{Row, common_options, drive::has_drive, plotted, short_names, time::has_time};

/// A column: its heads, one over the other, and its cell.
struct Column {
    heads: [&'static str; 2],
    cell: fn(&Row) -> String,
}

#[rustfmt::skip]
const COLUMNS: &[Column] = &[
    Column { heads: ["", "flash"], cell: flash },
    Column { heads: ["", "mode"], cell: |row| text(row, "mode").to_owned() },
    Column { heads: ["", "chunk KiB"], cell: |row| row.get("chunk_bytes").and_then(|bytes| bytes.as_u64()).map_or("-".to_owned(), |bytes| (bytes >> 10).to_string()) },
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

/// Columns of rows with a drive: the main measures of the cache, and then the drive.
#[rustfmt::skip]
const DRIVE_COLUMNS: &[Column] = &[
    Column { heads: ["", "flash"], cell: flash },
    Column { heads: ["", "mode"], cell: |row| text(row, "mode").to_owned() },
    Column { heads: ["", "chunk KiB"], cell: |row| row.get("chunk_bytes").and_then(|bytes| bytes.as_u64()).map_or("-".to_owned(), |bytes| (bytes >> 10).to_string()) },
    Column { heads: ["", "ssd"], cell: drive },
    Column { heads: ["read", "hits %"], cell: |row| number(row, "read_hit_ratio", 2) },
    Column { heads: ["write", "hits %"], cell: |row| number(row, "write_hit_ratio", 2) },
    Column { heads: ["written", "MiB"], cell: |row| number(row, "flash_total_bytes_written", 1) },
    Column { heads: ["blocks", "erased"], cell: |row| number(row, "ssd_erasures", 0) },
    Column { heads: ["erased", "MiB"], cell: |row| number(row, "ssd_bytes_erased", 0) },
    Column { heads: ["1000 pages", "programmed"], cell: |row| number(row, "ssd_pages_programmed", 1) },
    Column { heads: ["1000 pages", "copied"], cell: |row| number(row, "ssd_pages_copied", 1) },
    Column { heads: ["1000 pages", "read"], cell: |row| number(row, "ssd_pages_read", 1) },
    Column { heads: ["write", "amplif."], cell: |row| number(row, "ssd_write_amplification", 3) },
    Column { heads: ["erasures a block", "min/mean/max"], cell: wear },
    Column { heads: ["varia-", "tion"], cell: |row| number(row, "ssd_wear_variation", 2) },
    Column { heads: ["life", "years"], cell: |row| years(row, "ssd_life_years") },
    Column { heads: ["million", "requests/s"], cell: |row| number(row, "requests_per_second", 2) },
];

/// Columns of rows with time, behind the others.
#[rustfmt::skip]
const TIME_COLUMNS: &[Column] = &[
    Column { heads: ["", "origin"], cell: |row| text(row, "time_origin").to_owned() },
    Column { heads: ["", "pace"], cell: |row| text(row, "time_pace").to_owned() },
    Column { heads: ["", "outstanding"], cell: |row| number(row, "time_outstanding", 0) },
    Column { heads: ["modelled", "IOPS"], cell: |row| number(row, "time_iops", 0) },
    Column { heads: ["read ms", "mean"], cell: |row| number(row, "time_read_mean_us", 3) },
    Column { heads: ["read ms", "99%"], cell: |row| number(row, "time_read_p99_us", 3) },
    Column { heads: ["write ms", "mean"], cell: |row| number(row, "time_write_mean_us", 3) },
    Column { heads: ["write ms", "99%"], cell: |row| number(row, "time_write_p99_us", 3) },
    Column { heads: ["ssd", "busy %"], cell: |row| number(row, "time_ssd_busy_ratio", 1) },
    Column { heads: ["ssd write", "amplif."], cell: |row| number(row, "time_ssd_write_amplification", 2) },
    Column { heads: ["origin", "busy %"], cell: |row| number(row, "time_origin_busy_ratio", 1) },
];

/// Writes the table of `rows`, with their common parts over it.
///
/// If they have bounds, lines below tell the best possible figure on each flash, and the share of
/// it that the best row reaches.
pub fn table(rows: &[Row]) -> String {
    let is_common = |column: &Column| {
        column.heads[0].is_empty()
            && rows.iter().all(|row| (column.cell)(row) == rows.first().map_or(String::new(), column.cell))
    };
    let all = if rows.iter().any(has_drive) { DRIVE_COLUMNS } else { COLUMNS };
    let of_time = if rows.iter().any(has_time) { TIME_COLUMNS } else { &[] };
    let all: Vec<&Column> = all.iter().chain(of_time).collect();
    let columns: Vec<&Column> = all.iter().copied().filter(|column| !is_common(column)).collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for at in 0..2 {
        let heads = columns.iter().map(|column| column.heads[at].to_owned());
        lines.push(std::iter::once(["", "setup"][at].to_owned()).chain(heads).collect());
    }
    let names = short_names(rows);
    for (row, name) in rows.iter().zip(&names) {
        let cells = columns.iter().map(|column| (column.cell)(row));
        lines.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    let mut out = String::new();
    if let Some(row) = rows.first() {
        let common = all.iter().copied().filter(|column| is_common(column));
        let mut facts = vec![text(row, "trace").to_owned()];
        facts.extend(common.map(|column| format!("{} {}", column.heads[1], (column.cell)(row))));
        facts.extend(common_options(rows));
        facts.push(match row.get("content").and_then(|content| content.as_str()) {
            Some("made_up") => "content MADE UP".to_owned(),
            Some("sizes_made_up") => "compressed sizes MADE UP".to_owned(),
            Some(_) => "content as in the trace".to_owned(),
            None => "each chunk with content of its own".to_owned(),
        });
        out.push_str(&(facts.join("; ") + "\n"));
    }
    out.push_str(&aligned(&lines));
    if let Some(why) = rows.iter().find_map(|row| row.get("ssd_life_note")?.as_str()) {
        out.push_str(&format!("life: none where {why}\n"));
    }
    out.push_str(&bounds(rows, &names));
    out
}

/// Aligns the first column to the left, the others to the right.
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

/// Writes the bounds, for each flash and chunk size in the order in which they come.
fn bounds(rows: &[Row], names: &[String]) -> String {
    let place = |row: &Row| (row.get("flash").cloned(), row.get("chunk_bytes").cloned());
    let percent = |row: &Row, key: &str| row.get(key).and_then(|ratio| ratio.as_f64()).map(|ratio| 100.0 * ratio);
    let mut out = String::new();
    let mut seen = Vec::new();
    for row in rows.iter().filter(|row| percent(row, "bound_read_hit_ratio_upper").is_some()) {
        if seen.contains(&place(row)) {
            continue;
        }
        seen.push(place(row));
        let here = || rows.iter().zip(names).filter(|(other, _)| place(other) == place(row));
        let greatest = |key: &str| here().filter_map(|(row, _)| percent(row, key)).fold(0.0, f64::max);
        let (upper, lower) = (greatest("bound_read_hit_ratio_upper"), greatest("bound_read_hit_ratio_lower"));
        let plain = greatest("bound_uncompressed_read_hit_ratio");
        let revealed = greatest("bound_revealed_read_hit_ratio_upper");
        let mib = |key: &str| {
            let most = here().filter_map(|(row, _)| row.get(key).and_then(|bytes| bytes.as_f64())).fold(0.0, f64::max);
            most / f64::from(1 << 20)
        };
        let (least, enough) = (mib("bound_flash_bytes_lower"), mib("bound_flash_bytes_upper"));
        let best = here().filter_map(|(row, name)| Some((percent(row, "read_hit_ratio")?, name)));
        let Some((most, name)) = best.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        if upper <= 0.0 {
            out.push_str(&format!("bound, flash {}: no cache hits any read\n", flash(row)));
            continue;
        }
        let share = 100.0 * most / upper;
        out.push_str(&format!(
            "bound, flash {}: at most {upper:.2}% of the reads can hit, and {lower:.2}% can be had ({plain:.2}% \
             uncompressed); the best here, {name}, has {share:.1}% of the most\n",
            flash(row)
        ));
        out.push_str(&format!(
            "  these hits need {least:.1} MiB written to flash at least, and {enough:.1} MiB are enough; if the origin \
             reveals contents, at most {revealed:.2}% can hit\n"
        ));
    }
    if let Some(why) = rows.iter().find_map(no_reads) {
        out.push_str(&format!("{why}: no ratio of read hits, and no bound\n"));
    }
    // It belongs to the trace, and is the same for all rows of a chunk size.
    let mut said = Vec::new();
    for row in rows {
        let Some(why) = row.get("bound_withdrawn").and_then(|why| why.as_str()) else { continue };
        if !said.contains(&why) {
            said.push(why);
            out.push_str(&format!("bound: {why}\n"));
        }
    }
    out
}

/// Says in words that a row counts no reads.
pub fn no_reads(row: &Row) -> Option<&'static str> {
    let count = |key: &str| row.get(key).and_then(|count| count.as_u64());
    match (count("reads")?, count("warmup_requests")) {
        (0, Some(1..)) => Some("there are no reads after the warm-up"),
        (0, _) => Some("there are no reads in the trace"),
        _ => None,
    }
}

fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(|value| value.as_str()).unwrap_or("-")
}

fn number(row: &Row, key: &str, digits: usize) -> String {
    plotted(row, key).map_or("none".to_owned(), |value| format!("{value:.digits$}"))
}

/// Returns the years of a row, to three significant digits.
///
/// Drives are cut to their caches, so a small one under a trace that hurries is worn in days.
pub fn years(row: &Row, key: &str) -> String {
    let Some(years) = plotted(row, key) else { return "none".to_owned() };
    let magnitude = if years > 0.0 { years.log10().floor() as i64 } else { 0 };
    format!("{years:.digits$}", digits = (2 - magnitude).clamp(0, 9) as usize)
}

/// Describes a drive as it was cut to the cache.
fn drive(row: &Row) -> String {
    let whole = |key: &str| row.get(key).and_then(|value| value.as_u64()).unwrap_or(0);
    let (blocks, kib) = (whole("ssd_blocks"), whole("ssd_block_bytes") >> 10);
    format!("{} of {blocks} blocks of {kib} KiB, {}% spare", text(row, "ssd"), number(row, "ssd_spare_percent", 1))
}

fn wear(row: &Row) -> String {
    let least = row.get("ssd_wear_min").and_then(|value| value.as_u64()).unwrap_or(0);
    let mean = row.get("ssd_wear_mean").and_then(|value| value.as_f64()).unwrap_or(0.0);
    format!("{least}/{mean:.1}/{}", number(row, "ssd_wear_max", 0))
}

/// Returns a flash as it was asked for, with its size unless that tells it.
fn flash(row: &Row) -> String {
    let mib = row.get("flash_bytes").and_then(|bytes| bytes.as_f64()).unwrap_or(0.0) / f64::from(1 << 20);
    let digits = if mib < 10.0 { 2 } else { usize::from(mib < 1000.0) };
    match text(row, "flash") {
        share if share.ends_with('%') => format!("{share} = {mib:.digits$} MiB"),
        chunks if chunks.ends_with('c') => chunks.to_owned(),
        _ => format!("{mib:.digits$} MiB"),
    }
}
