//! AustereCache's experiments on time: Figures 11, 12 and 13 (§5.5, Exp#7 to Exp#9).
//!
//! Chunks have 32 KiB, caches are in write-back, requests those of the paper's synthetic traces
//! (§5.1). CD-LRU-D is `d-lru`, CD-ARC-D `d-arc`, CD-ARC-DC `cd-arc`. AC-D and AC-DC are `austere`
//! without compression and with it.
//!
//! It does not count indices, hits and writes saved; the rest of this crate does.

mod cpu;
mod index;
mod setting;
mod threads;
mod throughput;

use super::{Clocks, LiveRun, Source};
use crate::{Heading, StandIn, profile};

const PAPER: &str = "AustereCache (ATC '20)";
const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@austere",
    scale: 0.03,
    records: |scale| profile("webvm@austere", scale),
};

/// The paper's experiments.
pub static LIVE: &[LiveRun] = &[
    LiveRun {
        heading: Heading {
            name: "austere-fig11",
            paper: PAPER,
            figure: "Figure 11 (Exp#7)",
            about: "throughput by I/O deduplication ratio and by write-to-read ratio",
        },
        source: Source::Made {
            name: "Synthetic",
            about: "requests by Zipf's law with constant 1, of 32 KiB, in 128 MiB of a disk of 5 GiB",
            scale: 0.2,
        },
        clocks: Clocks::Either,
        run: throughput::run,
    },
    LiveRun {
        heading: Heading {
            name: "austere-fig12",
            paper: PAPER,
            figure: "Figure 12 (Exp#8)",
            about: "microseconds of fingerprint, compression, index lookup and index update",
        },
        source: Source::Traces(&[WEBVM]),
        clocks: Clocks::RealOnly("it shows computing"),
        run: cpu::run,
    },
    LiveRun {
        heading: Heading {
            name: "austere-fig13",
            paper: PAPER,
            figure: "Figure 13 (Exp#9)",
            about: "throughput by number of threads",
        },
        source: Source::Made {
            name: "Synthetic",
            about: "the same as for Figure 11, seven writes to three reads",
            scale: 0.1,
        },
        clocks: Clocks::RealOnly("it shows computing on several threads"),
        run: threads::run,
    },
];
