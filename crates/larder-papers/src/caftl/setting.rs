//! Sizes, words and steps that the paper's experiments have in common.
//!
//! It runs no experiment.

use crate::{Comparison, How, Lab, Span, Table};
use larder_trace::Unknown;

/// Bytes of a page.
pub(super) const PAGE_BYTES: u32 = 4096;

/// The columns of most tables.
pub(super) const WORKLOAD: &str = "Workload";

pub(super) fn how() -> How {
    How::new(PAGE_BYTES, Unknown::Unique)
}

/// Returns the titles of the traces in reports.
pub(super) fn titles(lab: &Lab<'_>) -> Result<Vec<String>, String> {
    (0..lab.workload_count()).map(|at| Ok(lab.workload(at)?.title().to_owned())).collect()
}

/// Publishes figures of single workloads in a series.
pub(super) fn publish(table: &mut Table, lab: &Lab<'_>, series: &str, figures: &[(&str, f64)]) {
    for (workload, value) in figures {
        table.publish(series, lab.title_of(workload), *value);
    }
}

/// Returns the least and the greatest of a series.
pub(super) fn span(table: &Table, series: &str) -> Option<Span> {
    Span::over(table.ours(series)?.iter().flatten().copied())
}

/// Compares the text's figure with a series' greatest one, or with all of them.
pub(super) fn compared(what: &str, published: Span, ours: Option<Span>) -> Comparison {
    let ours = if published.low == published.high { ours.map(|span| Span::at(span.high)) } else { ours };
    Comparison { what: what.to_owned(), published, ours }
}

/// True of all figures that are of drives.
pub(super) const OF_DRIVES: &str = "The drive is that of Tables 1 and 2 at its full size. It is empty, but for the \
     pages that a trace reads before it writes them. These were never fingerprinted, since the drive had no CAFTL \
     then. The paper does not say how its drive is prepared. Idle time is used for out-of-line work, unless a table \
     says otherwise. A trace's requests come at its own times. If it has none, each comes when the one before is \
     over. A request is of at most 128 pages.";

/// True of figures with both kinds of reads.
pub(super) const OF_QUEUES: &str = "Reads take room in the buffer before writes that wait for it, for section 4.3.2 \
     gives reads the priority. Tables of \"one queue\" have drives, without CAFTL and with it, whose reads wait for \
     room behind earlier writes. The waiting for the buffer in section 4.4.1 would come of that.";

/// True of all figures with sampling.
pub(super) const OF_SAMPLES: &str = "Traces have fingerprints and no bytes: the sample bytes of a page, its first four, and its CRC32 are \
                          SYNTHETIC, hashes of its fingerprint.";

/// True of stand-ins.
pub(super) const OF_GENERATED: &str = "The paper prints how long its workloads ran, and some shares of duplicates, \
     which the generated ones have. Amounts, sizes of requests and bursts are ours, and so is that half of the \
     duplicates come as whole requests. So absolute figures say little, and how the ways of CAFTL stand to each \
     other says more.";
