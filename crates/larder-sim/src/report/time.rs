//! The figures of a cache with time ([`whole`](crate::whole)), as keys of a row.
//!
//! Only a row with requested time has them. Times are of requests of the trace, each of one chunk
//! or several. Keys with `time_ssd_` are of the drive's requests for them.
//!
//! It does not compute.

use serde_json::{Value, json};

use super::keys::Row;
use crate::whole::{ReplayPace, figures::TimedFigures};
use larder_ssd::time::latency::Latencies;

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
    "time_ssd_reads",
    "time_ssd_read_mean_us",
    "time_ssd_read_p50_us",
    "time_ssd_read_p95_us",
    "time_ssd_read_p99_us",
    "time_ssd_read_max_us",
    "time_ssd_writes",
    "time_ssd_write_mean_us",
    "time_ssd_write_p50_us",
    "time_ssd_write_p95_us",
    "time_ssd_write_p99_us",
    "time_ssd_write_max_us",
    "time_ssd_busy_ratio",
    "time_ssd_write_amplification",
    "time_origin_busy_ratio",
    "time_origin_reads",
    "time_origin_writes",
];

/// The beginning of a key of time.
pub const PREFIX: &str = "time_";

/// Returns true if time was asked for.
pub fn has_time(row: &Row) -> bool {
    row.contains_key("time_iops")
}

/// Adds the keys of time to a row.
pub fn add(row: &mut Row, origin: &str, pace: ReplayPace, figures: &TimedFigures) {
    let (pace, outstanding) = match pace {
        ReplayPace::Own => ("own", None),
        ReplayPace::Full(outstanding) => ("full", Some(outstanding)),
    };
    let TimedFigures { reads, writes, flushes, drive, .. } = figures;
    // Without time there is no share.
    let has_elapsed = figures.elapsed_ns > 0;
    let keys = json!({
        "time_origin": origin,
        "time_pace": pace,
        "time_outstanding": outstanding,
        "time_elapsed_seconds": figures.elapsed_ns as f64 / 1e9,
        "time_iops": has_elapsed.then(|| figures.iops()),
        "time_flushes": flushes.count(),
        "time_flush_mean_us": mean_us(flushes),
        "time_ssd_busy_ratio": figures.drive_utilisation.filter(|_| has_elapsed),
        "time_ssd_write_amplification": figures.write_amplification,
        "time_origin_busy_ratio": has_elapsed.then_some(figures.origin_utilisation),
        "time_origin_reads": figures.origin.reads,
        "time_origin_writes": figures.origin.writes,
    });
    if let Value::Object(keys) = keys {
        row.extend(keys);
    }
    add_spread(row, "read", Some(reads));
    add_spread(row, "write", Some(writes));
    add_spread(row, "ssd_read", drive.as_ref().map(|drive| &drive.reads));
    add_spread(row, "ssd_write", drive.as_ref().map(|drive| &drive.writes));
}

fn mean_us(times: &Latencies) -> Option<f64> {
    (times.count() > 0).then(|| times.mean_ns() / 1e3)
}

/// Adds the number of requests of a kind, and their times: null if there was none.
fn add_spread(row: &mut Row, kind: &str, times: Option<&Latencies>) {
    row.insert(format!("time_{kind}s"), json!(times.map(Latencies::count)));
    row.insert(format!("time_{kind}_mean_us"), json!(times.and_then(mean_us)));
    for (name, percent) in [("p50", 50.0), ("p95", 95.0), ("p99", 99.0), ("max", 100.0)] {
        let some = times.filter(|times| times.count() > 0);
        let took_us = some.map(|times| times.percentile_ns(percent) as f64 / 1e3);
        row.insert(format!("time_{kind}_{name}_us"), json!(took_us));
    }
}
