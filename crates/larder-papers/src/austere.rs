//! AustereCache's experiments on the FIU traces (§5.3 and §5.4), Figures 5 to 10.
//!
//! Caches have room for a share of the working set in whole chunks, with metadata on top. Their LBA
//! index has four times as many entries. That holds for CacheDedup's as well as AustereCache's
//! (§5.2). Chunks are of 32 KiB, subchunks of 8 KiB.
//!
//! Ours, since the paper is silent: the sizes between 12.5% and 100%, and write-through.
//!
//! It leaves the experiments on throughput (§5.5), which take time, to the command line's
//! `paper/`.

mod designs;
mod parameters;
mod schemes;
mod techniques;

use super::{Experiment, Lab, PaperReport, StandIn, profile};

const PAPER: &str = "AustereCache (ATC '20)";
const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@austere",
    scale: 0.06,
    records: |scale| profile("webvm@austere", scale),
};
const HOMES: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@austere",
    scale: 0.03,
    records: |scale| profile("homes@austere", scale),
};
const MAIL: StandIn = StandIn {
    name: "Mail",
    about: "profile mail@austere",
    scale: 0.003,
    records: |scale| profile("mail@austere", scale),
};

/// Blocks of 4 KiB, for chunks of several sizes.
const HOMES_IN_BLOCKS: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@cachededup, of 4 KiB blocks",
    scale: 0.1,
    records: |scale| profile("homes@cachededup", scale),
};

/// The paper's experiments.
#[rustfmt::skip]
pub(super) static EXPERIMENTS: &[Experiment] = &[
    of_all("austere-fig5", "Figure 5 (Exp#1)", "memory of each design's index, by cache size", designs::fig5),
    of_all("austere-fig6", "Figure 6 (Exp#2)", "memory that each technique saves, by cache size", techniques::fig6),
    of_all("austere-fig7", "Figure 7 (Exp#3)", "read hit ratio of each design, by cache size", designs::fig7),
    of_all("austere-fig8", "Figure 8 (Exp#4)", "write reduction ratio of each design, by cache size", designs::fig8),
    Experiment {
        name: "austere-fig9",
        paper: PAPER,
        figure: "Figure 9 (Exp#5)",
        about: "memory, read hits and writes saved, by chunk size and by subchunk size",
        stand_ins: &[HOMES_IN_BLOCKS],
        run: parameters::fig9,
    },
    of_all("austere-fig10", "Figure 10 (Exp#6)", "memory and read hit ratio, by size of the LBA index", parameters::fig10),
];

/// Makes an experiment on all three traces.
const fn of_all(
    name: &'static str,
    figure: &'static str,
    about: &'static str,
    run: fn(&mut Lab<'_>) -> Result<PaperReport, String>,
) -> Experiment {
    Experiment { name, paper: PAPER, figure, about, stand_ins: &[WEBVM, HOMES, MAIL], run }
}
