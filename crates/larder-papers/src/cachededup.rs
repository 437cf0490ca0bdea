//! CacheDedup's replayed experiments: Figures 3, 4 (§5.2), 6 (§5.3), 7 (§5.4), 8 (§5.5), 9
//! (§5.6).
//!
//! Chunks are of 4 KiB, in write-back (§5.1). The flash is a share of the working set, and holds
//! data and metadata. The metadata is the least and 2% of the data's bytes more, except in Figures
//! 7 and 9. D-LRU and D-ARC forget contents without an address (§3.1).
//!
//! It leaves latency and throughput (Figures 5, 10 and 11, and Figure 8's latency), which take
//! time, to the command line's `paper/`.

mod compressed;
mod designs;
mod setting;
mod sharing;

use super::{Experiment, StandIn, profile};

const PAPER: &str = "CacheDedup (FAST '16)";
const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@cachededup",
    scale: 0.2,
    records: |scale| profile("webvm@cachededup", scale),
};
const WEBVM_IN_WEUS: StandIn = StandIn { scale: 0.1, ..WEBVM };
const HOMES: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@cachededup",
    scale: 0.15,
    records: |scale| profile("homes@cachededup", scale),
};
const MAIL: StandIn = StandIn {
    name: "Mail",
    about: "profile mail@cachededup",
    scale: 0.006,
    records: |scale| profile("mail@cachededup", scale),
};
const HADOOP: StandIn = StandIn {
    name: "Hadoop",
    about: "profile hadoop@cachededup",
    scale: 1.0,
    records: |scale| profile("hadoop@cachededup", scale),
};

/// The paper's experiments.
pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "cachededup-fig3",
        paper: PAPER,
        figure: "Figure 3",
        about: "miss ratios of WebVM, by cache size",
        stand_ins: &[WEBVM],
        run: designs::fig3,
    },
    Experiment {
        name: "cachededup-fig4",
        paper: PAPER,
        figure: "Figure 4",
        about: "total miss ratio of Homes and Mail, by cache size",
        stand_ins: &[HOMES, MAIL],
        run: designs::fig4,
    },
    Experiment {
        name: "cachededup-fig6",
        paper: PAPER,
        figure: "Figure 6",
        about: "writes to flash, by cache size",
        stand_ins: &[WEBVM, HOMES, MAIL],
        run: designs::fig6,
    },
    Experiment {
        name: "cachededup-fig7",
        paper: PAPER,
        figure: "Figure 7",
        about: "flash given to metadata in place of data",
        stand_ins: &[MAIL],
        run: sharing::fig7,
    },
    Experiment {
        name: "cachededup-fig8",
        paper: PAPER,
        figure: "Figure 8",
        about: "concurrent Hadoop virtual machines: misses and writes to flash",
        stand_ins: &[HADOOP],
        run: designs::fig8,
    },
    Experiment {
        name: "cachededup-fig9",
        paper: PAPER,
        figure: "Figure 9",
        about: "CD-ARC and Nitro where chunks compress to a half and a quarter",
        stand_ins: &[WEBVM_IN_WEUS],
        run: compressed::fig9,
    },
];
