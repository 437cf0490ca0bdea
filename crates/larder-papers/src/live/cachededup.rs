//! CacheDedup's experiments on time: Figures 5 (§5.2), 8 (§5.5), 10 and 11 (§5.7).
//!
//! The origin is one disk of 7,200 turns, the flash a SATA SSD, as in §5.1 (there over iSCSI).
//! Chunks have 4 KiB, caches are in write-back. Beside the paper's four designs stand all others of
//! the engine.
//!
//! It does not model the network of the paper's storage.

mod fio;
mod setting;
mod traces;

use super::{Clocks, LiveRun, Source};
use crate::{Heading, StandIn, profile};

const PAPER: &str = "CacheDedup (FAST '16)";
const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@cachededup",
    scale: 0.01,
    records: |scale| profile("webvm@cachededup", scale),
};
const HOMES: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@cachededup",
    scale: 0.005,
    records: |scale| profile("homes@cachededup", scale),
};
const MAIL: StandIn = StandIn {
    name: "Mail",
    about: "profile mail@cachededup",
    scale: 0.0004,
    records: |scale| profile("mail@cachededup", scale),
};
const HADOOP: StandIn = StandIn {
    name: "Hadoop",
    about: "profile hadoop@cachededup",
    scale: 0.02,
    records: |scale| profile("hadoop@cachededup", scale),
};

/// The paper's experiments.
pub static LIVE: &[LiveRun] = &[
    LiveRun {
        heading: Heading {
            name: "cachededup-fig5",
            paper: PAPER,
            figure: "Figure 5",
            about: "I/O latency of WebVM, Homes and Mail",
        },
        source: Source::Traces(&[WEBVM, HOMES, MAIL]),
        clocks: Clocks::Either,
        run: traces::fig5,
    },
    LiveRun {
        heading: Heading {
            name: "cachededup-fig8-latency",
            paper: PAPER,
            figure: "Figure 8",
            about: "concurrent Hadoop virtual machines that share a cache: I/O latency",
        },
        source: Source::Traces(&[HADOOP]),
        clocks: Clocks::Either,
        run: traces::fig8,
    },
    LiveRun {
        heading: Heading {
            name: "cachededup-fig10",
            paper: PAPER,
            figure: "Figure 10",
            about: "latency of random reads and writes without duplicates, one job",
        },
        source: Source::Made { name: "fio", about: "random I/O of 4 KiB without duplicates, one job", scale: 0.01 },
        clocks: Clocks::RealOnly("it shows computing"),
        run: fio::fig10,
    },
    LiveRun {
        heading: Heading {
            name: "cachededup-fig11",
            paper: PAPER,
            figure: "Figure 11",
            about: "throughput of random reads and writes without duplicates, eight jobs",
        },
        source: Source::Made { name: "fio", about: "random I/O of 4 KiB without duplicates, eight jobs", scale: 0.01 },
        clocks: Clocks::RealOnly("it shows computing"),
        run: fio::fig11,
    },
];
