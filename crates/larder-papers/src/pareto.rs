//! Our own comparison: `larder` and each other design, by read hits, flash bytes and RAM.
//!
//! A design *dominates* another if it has at least its hits, less half a point, and writes at most
//! its bytes. Each trace is replayed through all designs at each size of a [`Grid`](crate::Grid),
//! in each of its modes. Costs are the engine's, for papers leave out log and checkpoints.
//!
//! Invariants: a figure is none if the flash is too small for the design.
//!
//! It does not belong to a paper. Its "published" figures are the aims of `larder`.

mod aims;
mod cells;
mod charts;
mod exceptions;
mod tables;
mod verdict;
mod workloads;

use super::{Experiment, Lab, PaperReport};
use cells::TraceCells;

/// The experiment.
pub(super) static EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "pareto",
    paper: "Larder",
    figure: "its own claim",
    about: "read hits, flash bytes and RAM of each design, and how near larder comes to the bound",
    stand_ins: workloads::GENERATED,
    run,
}];

fn run(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let mut all = Vec::new();
    for at in 0..lab.workload_count() {
        all.push(TraceCells::replay(lab, at)?);
    }
    let mut report = PaperReport {
        comparisons: aims::comparisons(&all),
        charts: charts::charts(&all),
        words: lab.words(OF_ALL, OF_GENERATED),
        ..PaperReport::default()
    };
    for trace in &all {
        report.tables.extend(tables::of_trace(trace));
    }
    report.tables.extend(tables::of_all(&all));
    report.words.extend(exceptions::words(&all));
    Ok(report)
}

const OF_ALL: &[&str] = &[
    "Bytes written to flash are those of records, padding, log, checkpoints and reinsertion. RAM is the index as the \
     design counts it at the end of the trace, for each chunk that would hit.",
    "The bound is the most hits of any cache of that flash, with the future known and no room for metadata. A first \
     read of an address misses there. The second bound lets it hit, if the origin reveals contents. The bytes of the \
     bound are the least for as many hits as some cache is known to have. In write-back dirty data goes to flash \
     besides, which the bound leaves out.",
    "larder dominates a design if it has at least its hits, less half a point, and writes at most its bytes. The best \
     other design is that with the most hits in the same cache. There is no gap to close if that design is within \
     half a point of the bound.",
    "Peers (s3-fifo, sieve, clock2q+, larc) are the cache of d-lru with another order of contents, so they have its \
     index, and queues and ghosts besides.",
];

const OF_GENERATED: &[&str] =
    &["The generated traces are small, so that a run takes minutes. A machine of BootStorm and a \
                                 snapshot of Restore are read once, each at addresses of its own: only an origin that \
                                 reveals contents gives hits there. Snapshots has no reads at all."];
