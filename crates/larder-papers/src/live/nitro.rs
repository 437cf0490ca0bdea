//! Nitro's experiments on a system without data reduction of its own ("TPS", §6.2): Figure 7.
//!
//! The origin is five disks of 7,200 turns as RAID 5 (the paper: eleven), the flash a SATA SSD
//! (§5.4). Extents are of 8 KiB.
//!
//! It does not run the paper's other system ("COS"), which deduplicates on its disks: Larder has
//! none.

mod fig7;
mod fig8;
mod table2;
mod variants;

use super::{Clocks, LiveRun, Source};
use crate::{Heading, StandIn, nitro::extents};

const PAPER: &str = "Nitro (ATC '14)";
const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@nitro, in extents of 8 KiB",
    scale: 0.02,
    records: |scale| extents("webvm@nitro", scale),
};
const HOMES: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@nitro, in extents of 8 KiB",
    scale: 0.006,
    records: |scale| extents("homes@nitro", scale),
};
const MAIL: StandIn = StandIn {
    name: "Mail",
    about: "profile mail@nitro, in extents of 8 KiB",
    scale: 0.001,
    records: |scale| extents("mail@nitro", scale),
};

/// The paper's experiments.
pub static LIVE: &[LiveRun] = &[
    LiveRun {
        heading: Heading {
            name: "nitro-table2",
            paper: PAPER,
            figure: "Table 2",
            about: "IOPS and read response time of five variants against no cache, warm and cold",
        },
        source: Source::Traces(&[WEBVM, HOMES, MAIL]),
        clocks: Clocks::Either,
        run: table2::run,
    },
    LiveRun {
        heading: Heading {
            name: "nitro-fig7",
            paper: PAPER,
            figure: "Figure 7",
            about: "read response time by working set and deduplication",
        },
        source: Source::Made {
            name: "Random reads",
            about: "random reads of a working set of 1 to 10 times the cache, 1 to 10 times deduplicated",
            scale: 0.002,
        },
        clocks: Clocks::Either,
        run: fig7::run,
    },
    LiveRun {
        heading: Heading {
            name: "nitro-fig8",
            paper: PAPER,
            figure: "Figure 8",
            about: "overhead where nothing and where everything hits: a boot storm of 60 virtual machines",
        },
        source: Source::Made {
            name: "Boot storm",
            about: "60 boots of one made-up virtual machine, 90% of its contents shared",
            scale: 0.05,
        },
        clocks: Clocks::RealOnly("it shows computing"),
        run: fig8::run,
    },
];
