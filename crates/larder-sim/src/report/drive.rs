//! The figures of a drive under a cache, as keys of a row.
//!
//! Only a row with a simulated drive has them. Operations by their cause are objects of their own.
//! In a CSV file each cause is a column, as `ssd_programs_by_cause.collection`.
//!
//! It leaves the computation to `measure.rs` and `larder-ssd/src/counts.rs`.

use serde_json::{Map, Value, json};

use super::keys::Row;
use crate::{measure::DriveMeasures, setup::drive::DriveSetup};
use larder_ssd::op::Cause;

/// Keys of a row with a drive, behind those of every row, in the order of a CSV file.
pub const COLUMNS: &[&str] = &[
    "ssd",
    "ftl",
    "ssd_logical_bytes",
    "ssd_blocks",
    "ssd_block_bytes",
    "ssd_page_bytes",
    "ssd_over_provisioning_percent",
    "ssd_spare_percent",
    "ssd_rated_cycles",
    "ssd_erasures",
    "ssd_bytes_erased",
    "ssd_host_bytes_written",
    "ssd_host_pages_written",
    "ssd_pages_deduplicated",
    "ssd_pages_programmed",
    "ssd_pages_copied",
    "ssd_pages_read",
    "ssd_host_pages_read",
    "ssd_host_pages_trimmed",
    "ssd_pages_evicted",
    "ssd_write_amplification",
    "ssd_parts_absorbed",
    "ssd_units_completed",
    "ssd_pages_read_to_complete",
    "ssd_wear_min",
    "ssd_wear_mean",
    "ssd_wear_max",
    "ssd_wear_variation",
    "ssd_life_years",
    "ssd_life_years_worst_block",
    "ssd_life_note",
    "ssd_erasures_by_cause",
    "ssd_programs_by_cause",
    "ssd_reads_by_cause",
];

/// Keys whose values are objects of a number for each cause.
const BY_CAUSE: &[&str] = &["ssd_erasures_by_cause", "ssd_programs_by_cause", "ssd_reads_by_cause"];

/// The beginning of the key of a drive's figure.
pub const PREFIX: &str = "ssd";

/// Returns true if a drive was simulated.
pub fn has_drive(row: &Row) -> bool {
    row.get(PREFIX).is_some_and(|name| !name.is_null())
}

/// Returns the keys of a drive. `seconds` is the time of the whole trace, if it tells.
pub fn figures(setup: &DriveSetup, measures: &DriveMeasures, seconds: Option<f64>) -> Value {
    let DriveMeasures { counts, host, wear, geometry, logical_bytes, rated_cycles } = measures;
    let life = seconds.map(|seconds| measures.life(seconds));
    // Infinite without erasures: that is no number of JSON.
    let years = |years: f64| years.is_finite().then_some(years);
    let note = match life {
        None => Some("the trace tells of no time that passes"),
        Some(life) if life.years_mean_block.is_infinite() => Some("nothing was erased"),
        Some(_) => None,
    };
    json!({
        "ssd": setup.profile.name,
        "ftl": setup.ftl.name,
        "ssd_logical_bytes": logical_bytes,
        "ssd_blocks": geometry.blocks(),
        "ssd_block_bytes": geometry.block_bytes(),
        "ssd_page_bytes": geometry.page_bytes,
        "ssd_over_provisioning_percent": geometry.over_provisioning_percent,
        "ssd_spare_percent": measures.spare_percent(),
        "ssd_rated_cycles": rated_cycles,
        "ssd_erasures": counts.blocks_erased(),
        "ssd_bytes_erased": counts.blocks_erased() * geometry.block_bytes(),
        "ssd_host_bytes_written": host.bytes_written,
        "ssd_host_pages_written": counts.host_pages_written,
        "ssd_pages_deduplicated": counts.pages_deduplicated,
        "ssd_pages_programmed": counts.pages_programmed(),
        "ssd_pages_copied": counts.pages_copied(),
        "ssd_pages_read": counts.pages_read(),
        "ssd_host_pages_read": counts.host_pages_read,
        "ssd_host_pages_trimmed": counts.host_pages_trimmed,
        "ssd_pages_evicted": counts.pages_evicted,
        "ssd_write_amplification": measures.write_amplification(),
        "ssd_parts_absorbed": host.writes_absorbed,
        "ssd_units_completed": host.units_completed,
        "ssd_pages_read_to_complete": host.pages_read_to_complete,
        "ssd_wear_min": wear.min,
        "ssd_wear_mean": wear.mean,
        "ssd_wear_max": wear.max,
        "ssd_wear_variation": measures.wear.variation(),
        "ssd_life_years": life.and_then(|life| years(life.years_mean_block)),
        "ssd_life_years_worst_block": life.and_then(|life| years(life.years_worst_block)),
        "ssd_life_note": note,
        "ssd_erasures_by_cause": by_cause(&counts.erases),
        "ssd_programs_by_cause": by_cause(&counts.programs),
        "ssd_reads_by_cause": by_cause(&counts.reads),
    })
}

fn by_cause(counts: &[u64; Cause::COUNT]) -> Value {
    let numbers = Cause::ALL.iter().zip(counts).map(|(cause, count)| (cause.name().to_owned(), (*count).into()));
    Value::Object(Map::from_iter(numbers))
}

/// Returns the columns of a CSV file: their heads, and the keys of their values in a row.
pub(super) fn csv_columns() -> impl Iterator<Item = (String, &'static str, Option<&'static str>)> {
    COLUMNS.iter().flat_map(|&column| {
        let causes: Vec<Option<&'static str>> = match BY_CAUSE.contains(&column) {
            true => Cause::ALL.iter().map(|cause| Some(cause.name())).collect(),
            false => vec![None],
        };
        causes.into_iter().map(move |cause| match cause {
            Some(cause) => (format!("{column}.{cause}"), column, Some(cause)),
            None => (column.to_owned(), column, None),
        })
    })
}
