//! CAFTL's Figures 1, 2 (§1.2), 7 (§3.4.2), 8, 9 (§4.2), 10 to 12 (§4.3) and 13 to 17 (§4.4).
//!
//! A trace goes straight to a drive, with no cache before it. The drive is the `caftl` profile, at
//! the geometry of Table 1 for any size of the trace. A page is 4 KiB and a block of the trace;
//! addresses are logical pages as they are. The baseline is the page-mapped layer that takes trims,
//! over the same space.
//!
//! The drive is empty at the beginning, except for the pages that the trace reads before it writes
//! them. The paper is silent on its drive's preparation. Two of its workloads come to 176 blocks in
//! use (§4.2.2), so its drive is otherwise empty, too.
//!
//! | file | content |
//! |---|---|
//! | `workloads.rs` | the stand-ins for its workloads |
//! | `setting.rs` | the common parts of the experiments |
//! | `stream.rs` | a trace as requests of pages |
//! | `runs.rs` | a drive under a trace, and the outcome |
//! | `content.rs` | Figures 1, 2 and 7, of contents alone |
//! | `removed.rs` | Figures 8, 9 and 12: the removed duplicates, the savings, and the comparisons |
//! | `latency.rs` | Figures 10 and 11: its cost in time |
//! | `accelerated.rs` | Figures 13 to 17: the gains of accelerations |
//!
//! A stand-in for a workload has its time (§4.1.3), and its share of duplicates if §4.2.1 or
//! §4.4.1 prints one. These are 5.8% (t1), 28.1% (h6), and CAFTL's finds in h2, h5 and h7, 16.6,
//! 15 and 18%. The others have 17%, between the least and the greatest of Figure 2. h2 and h5 fill
//! the 176 blocks. All else is ours: amounts, request sizes, bursts.
//!
//! It leaves reading files and disks for Figures 1 and 7 to the command line.

mod accelerated;
mod content;
mod latency;
mod removed;
mod runs;
mod setting;
mod stream;
mod workloads;

use larder_trace::{
    Compressibility,
    generate::{Snapshots, SnapshotsConfig},
};
use workloads::WORKLOADS;

use super::{DISK, Experiment, SEED, StandIn};

const PAPER: &str = "CAFTL (FAST '11)";

/// A disk, for Figures 1 and 7.
const OFFICE: StandIn = StandIn {
    name: DISK,
    about: "a workstation's disk of 38 GB after 100 days, 30% of what is written repeated",
    scale: 0.02,
    records: |scale| {
        let of = SnapshotsConfig { seed: SEED, compress: Compressibility::default(), ..SnapshotsConfig::default() };
        let image_bytes = (of.image_bytes as f64 * scale) as u64;
        Ok(Box::new(Snapshots::new(SnapshotsConfig { image_bytes, ..of })?))
    },
};

macro_rules! experiment {
    ($name:literal, $figure:literal, $about:literal, $of:expr, $run:expr) => {
        Experiment { name: $name, paper: PAPER, figure: $figure, about: $about, stand_ins: $of, run: $run }
    };
}

/// The paper's experiments.
#[rustfmt::skip]
pub(super) static EXPERIMENTS: &[Experiment] = &[
    experiment!("caftl-fig1", "Figure 1", "duplicate pages on disks, in images or file trees", &[OFFICE], content::fig1),
    experiment!("caftl-fig2", "Figure 2", "duplicate writes, by workload", WORKLOADS, content::fig2),
    experiment!("caftl-fig7", "Figure 7", "duplicates that hashes of fewer bits tell", &[OFFICE], content::fig7),
    experiment!("caftl-fig8", "Figure 8", "duplicate writes removed, with sampling and without", WORKLOADS, removed::fig8),
    experiment!("caftl-fig9", "Figure 9", "flash space saved, in erase blocks", WORKLOADS, removed::fig9),
    experiment!("caftl-fig10", "Figure 10", "latency that deduplication costs, by size of the buffer", WORKLOADS, latency::fig10),
    experiment!("caftl-fig11", "Figure 11", "read latency that it costs, by clock of the processor", WORKLOADS, latency::fig11),
    experiment!("caftl-fig12", "Figure 12", "comparisons that ways to search fingerprints save", WORKLOADS, removed::fig12),
    experiment!("caftl-fig13", "Figure 13", "speedup by sampling, with a buffer of 2 MB", WORKLOADS, accelerated::fig13),
    experiment!("caftl-fig14", "Figure 14", "duplicate writes removed, by sampling unit", WORKLOADS, accelerated::fig14),
    experiment!("caftl-fig15", "Figure 15", "speedup by CRC32 pre-hashing, with a buffer of 2 MB", WORKLOADS, accelerated::fig15),
    experiment!("caftl-fig16", "Figure 16", "speedup by the dynamic switch, with a buffer of 2 MB", WORKLOADS, accelerated::fig16),
    experiment!("caftl-fig17", "Figure 17", "all three accelerations, with a buffer of 2 MB", WORKLOADS, accelerated::fig17),
];
