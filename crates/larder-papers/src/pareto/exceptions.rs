//! Words on caches in which `larder` does not dominate, and on those that cannot be.
//!
//! It does not explain them.

use super::{
    cells::{CellFigures, ModeCells, TraceCells},
    verdict::dominates,
};

/// Returns a paragraph for each trace and mode with an exception, and one on small flashes.
pub(super) fn words(all: &[TraceCells]) -> Vec<String> {
    let mut words = Vec::new();
    for trace in all {
        for mode in &trace.modes {
            let exceptions: Vec<String> =
                (0..trace.percents.len()).filter_map(|size| at_size(trace, mode, size)).collect();
            if !exceptions.is_empty() {
                let (title, mode) = (&trace.title, mode.policy.name());
                words.push(format!("Not dominated, {title}, {mode}: {}.", exceptions.join("; ")));
            }
        }
    }
    let refused: Vec<&str> = all.iter().flat_map(|trace| &trace.refused).map(String::as_str).collect();
    if !refused.is_empty() {
        words.push(format!("Too small a flash: {}.", refused.join("; ")));
    }
    words
}

/// Returns the designs of a size that ours does not dominate.
fn at_size(trace: &TraceCells, mode: &ModeCells, size: usize) -> Option<String> {
    let ours = mode.ours(size)?;
    let one = |(name, cells): (&str, &[Option<CellFigures>])| {
        let other = cells.get(size).copied().flatten().filter(|other| !dominates(&ours, other))?;
        let bytes = 100.0 * ours.written / other.written;
        Some(format!("{name} ({:+.1} points, {bytes:.0}% of its bytes)", ours.hits - other.hits))
    };
    let exceptions: Vec<String> = mode.others().filter_map(one).collect();
    let percent = trace.percents.get(size)?;
    (!exceptions.is_empty()).then(|| format!("{percent}%: {}", exceptions.join(", ")))
}
