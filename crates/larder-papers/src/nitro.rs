//! Nitro's experiments by replay: Figures 1 (§2), 4 to 6 (§6.1), and the writes to the SSD
//! (§6.3).
//!
//! The writes are in bytes and in erasures.
//!
//! Extents are of 8 KiB (Table 1); Figure 1 has blocks of 4 KiB. A cache is a share of the file
//! system, 2% by default (Table 1). A trace here has no file system, so the share is converted to
//! one of the working set by §5.2's figures. 5.3% of WebVM's file system is accessed, 5.8% of
//! Homes' and 11.5% of Mail's.
//!
//! The stand-in for a trace at 8 KiB is the profile with each extent's content drawn whole. If
//! extents were put together from blocks of 4 KiB that were drawn one by one, hardly two would be
//! alike. The real traces are put together by §5.2's passes.
//!
//! Ours, since the paper is silent: write-back, and that hit ratios are counted after the first 16
//! days of 21. §6.2 counts so, and its hit ratios are "consistent with Figure 4". Metadata comes
//! on top of the cache's size, for Nitro keeps its indices in RAM. All addresses of a trace may be
//! mapped.
//!
//! IOPS and response times (§6.2) are here by the model of time.
//!
//! It leaves runs of the engine to the command line's `paper/`.

mod dedup;
mod erasures;
mod ratios;
pub mod table2;
mod variants;
mod writes;

use super::{Experiment, StandIn, profile};
pub use variants::{EXTENT_BYTES, OF_FILE_SYSTEM, cache_extents, extents, how, warmup};

const PAPER: &str = "Nitro (ATC '14)";
const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@nitro, in extents of 8 KiB",
    scale: 0.2,
    records: |scale| extents("webvm@nitro", scale),
};
const HOMES: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@nitro, in extents of 8 KiB",
    scale: 0.15,
    records: |scale| extents("homes@nitro", scale),
};
const MAIL: StandIn = StandIn {
    name: "Mail",
    about: "profile mail@nitro, in extents of 8 KiB",
    scale: 0.01,
    records: |scale| extents("mail@nitro", scale),
};
/// Drives that merge for each write take long.
const WEBVM_SMALL: StandIn = StandIn { scale: 0.1, ..WEBVM };
const HOMES_SMALL: StandIn = StandIn { scale: 0.05, ..HOMES };
const WEBVM_BLOCKS: StandIn =
    StandIn { name: "WebVM", about: "profile webvm@nitro", scale: 0.1, records: |scale| profile("webvm@nitro", scale) };
const HOMES_BLOCKS: StandIn =
    StandIn { name: "Homes", about: "profile homes@nitro", scale: 0.1, records: |scale| profile("homes@nitro", scale) };
const MAIL_BLOCKS: StandIn =
    StandIn { name: "Mail", about: "profile mail@nitro", scale: 0.005, records: |scale| profile("mail@nitro", scale) };

/// The paper's experiments.
pub(super) static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "nitro-fig1",
        paper: PAPER,
        figure: "Figure 1",
        about: "deduplication ratio of blocks of 4 KiB, by cache size",
        stand_ins: &[WEBVM_BLOCKS, HOMES_BLOCKS, MAIL_BLOCKS],
        run: dedup::fig1,
    },
    Experiment {
        name: "nitro-fig4",
        paper: PAPER,
        figure: "Figure 4",
        about: "read hit ratio of WEUs and extents, with and without deduplication and compression",
        stand_ins: &[WEBVM, HOMES, MAIL],
        run: ratios::fig4,
    },
    Experiment {
        name: "nitro-fig5",
        paper: PAPER,
        figure: "Figure 5",
        about: "read hit and deduplication ratio, by the share of fingerprints that are kept",
        stand_ins: &[WEBVM, HOMES, MAIL],
        run: dedup::fig5,
    },
    Experiment {
        name: "nitro-fig6",
        paper: PAPER,
        figure: "Figure 6",
        about: "erasures inside the SSD, of WEUs and extents on modified and unmodified drives",
        stand_ins: &[WEBVM_SMALL, HOMES_SMALL, MAIL],
        run: erasures::fig6,
    },
    Experiment {
        name: "nitro-erasures",
        paper: PAPER,
        figure: "§6.3",
        about: "erasures inside the SSD that deduplication and compression save",
        stand_ins: &[WEBVM_SMALL, HOMES_SMALL, MAIL],
        run: erasures::saved,
    },
    Experiment {
        name: "nitro-writes",
        paper: PAPER,
        figure: "§6.3",
        about: "writes to the SSD that deduplication and compression save",
        stand_ins: &[WEBVM, HOMES, MAIL],
        run: writes::run,
    },
    Experiment {
        name: "nitro-table2-modelled",
        paper: PAPER,
        figure: "Table 2",
        about: "IOPS and read response time of five variants against no cache, from modelled time of drive and disks",
        stand_ins: &[WEBVM, HOMES, MAIL],
        run: table2::run,
    },
];
