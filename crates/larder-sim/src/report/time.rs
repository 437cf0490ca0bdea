//! The figures of a cache with time ([`whole`](crate::whole)), as keys of a row.
//!
//! They are in a row where time was asked for, and in no other. Times are of requests of the trace, each of one chunk or several.
//!
//! What it does not do: compute.

use serde_json::{Value, json};

use super::Row;
use crate::{
    ssd::time::latency::Latencies,
    whole::{Pace, figures::Figures},
};

/// Keys of a row with time, behind all others, in the order of a CSV file.
pub const COLUMNS: &[&str] = &[
    "time_origin",
    "time_pace",
    "time_outstanding",
    "time_elapsed_seconds",
    "time_iops",
    "time_reads",
    "time_read_mean_us",
    "time_read_p50_us",
    "time_read_p95_us",
    "time_read_p99_us",
    "time_read_max_us",
    "time_writes",
    "time_write_mean_us",
    "time_write_p50_us",
    "time_write_p95_us",
    "time_write_p99_us",
    "time_write_max_us",
    "time_flushes",
    "time_flush_mean_us",
    "time_ssd_busy_ratio",
    "time_ssd_write_amplification",
    "time_origin_busy_ratio",
    "time_origin_reads",
    "time_origin_writes",
];

/// A key that begins so is of time.
pub const PREFIX: &str = "time_";

/// Whether time was asked for.
pub fn has_time(row: &Row) -> bool {
    row.contains_key("time_iops")
}

/// Adds the keys of time to a row.
pub fn add(row: &mut Row, origin: &str, pace: Pace, figures: &Figures) {
    let (pace, outstanding) = match pace {
        Pace::Own => ("own", None),
        Pace::Full(outstanding) => ("full", Some(outstanding)),
    };
    let Figures { reads, writes, flushes, .. } = figures;
    let mean = |times: &Latencies| (times.count() > 0).then(|| times.mean_ns() / 1e3);
    let part = |times: &Latencies, percent| (times.count() > 0).then(|| times.percentile_ns(percent) as f64 / 1e3);
    // Of no time there is no share.
    let has_elapsed = figures.elapsed_ns > 0;
    let keys = json!({
        "time_origin": origin,
        "time_pace": pace,
        "time_outstanding": outstanding,
        "time_elapsed_seconds": figures.elapsed_ns as f64 / 1e9,
        "time_iops": has_elapsed.then(|| figures.iops()),
        "time_reads": reads.count(),
        "time_read_mean_us": mean(reads),
        "time_read_p50_us": part(reads, 50.0),
        "time_read_p95_us": part(reads, 95.0),
        "time_read_p99_us": part(reads, 99.0),
        "time_read_max_us": part(reads, 100.0),
        "time_writes": writes.count(),
        "time_write_mean_us": mean(writes),
        "time_write_p50_us": part(writes, 50.0),
        "time_write_p95_us": part(writes, 95.0),
        "time_write_p99_us": part(writes, 99.0),
        "time_write_max_us": part(writes, 100.0),
        "time_flushes": flushes.count(),
        "time_flush_mean_us": mean(flushes),
        "time_ssd_busy_ratio": figures.drive_utilisation.filter(|_| has_elapsed),
        "time_ssd_write_amplification": figures.write_amplification,
        "time_origin_busy_ratio": has_elapsed.then_some(figures.origin_utilisation),
        "time_origin_reads": figures.origin.reads,
        "time_origin_writes": figures.origin.writes,
    });
    if let Value::Object(keys) = keys {
        row.extend(keys);
    }
}
