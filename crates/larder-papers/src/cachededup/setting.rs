//! Sizes and options that the paper's experiments have in common.
//!
//! It runs no experiment.

use crate::How;
use larder_sim::setup::{Accounting, Options, Orphans, ReplayDesign};
use larder_trace::Unknown;

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: u32 = 4096;

pub(super) const SIZE_LABEL: &str = "Cache size (% of WSS)";

/// Makes a design forget orphans, if it has any.
pub(super) fn forgetful(design: &'static ReplayDesign) -> Options {
    let (orphans, accounting) = (Some(Orphans::Forget), Some(Accounting::Paper));
    Options::default().or_from(&Options { orphans, accounting, ..Options::default() }, design)
}

/// Chunks of the trace's own size.
pub(super) fn how() -> How {
    How::new(CHUNK_BYTES, Unknown::Unique)
}

/// Returns by how many percent `less` is less than `more`.
pub(super) fn percent_less(less: f64, more: f64) -> f64 {
    if more > 0.0 { 100.0 * (more - less) / more } else { 0.0 }
}
