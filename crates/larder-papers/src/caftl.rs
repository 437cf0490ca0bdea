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
mod stream;

use larder_trace::{
    Compressibility, TraceResult, Unknown,
    generate::{Bursts, BurstsConfig, Snapshots, SnapshotsConfig},
};

use super::{Comparison, Experiment, How, Lab, Records, SEED, Span, StandIn, Table};

const PAPER: &str = "CAFTL (FAST '11)";
/// Bytes of a page.
const PAGE_BYTES: u32 = 4096;
/// The columns of most tables.
const WORKLOAD: &str = "Workload";

/// Makes a kind of workload, as it is generated.
const fn bursts(seconds: f64, blocks_written: u64, request_blocks: (u32, u32), duplication: f64) -> BurstsConfig {
    BurstsConfig {
        seconds,
        blocks_written,
        request_blocks,
        write_share: 0.7,
        duplication,
        footprint_blocks: blocks_written / 2,
        burst_requests: 32,
        seed: SEED,
    }
}

/// Makes small requests, few at a time, for hours.
const fn desktop(hours: f64) -> BurstsConfig {
    BurstsConfig { write_share: 0.6, burst_requests: 16, ..bursts(3600.0 * hours, 400_000, (1, 8), 0.17) }
}

/// Makes large writes of temporary data for minutes.
const fn hadoop(minutes: f64, blocks_written: u64, duplication: f64) -> BurstsConfig {
    bursts(60.0 * minutes, blocks_written, (32, 128), duplication)
}

/// Makes many writes, a checkpoint at a time.
const fn transactions(minutes: f64, request_blocks: (u32, u32), duplication: f64) -> BurstsConfig {
    let of = bursts(60.0 * minutes, 600_000, request_blocks, duplication);
    BurstsConfig { write_share: 0.85, footprint_blocks: 150_000, burst_requests: 256, ..of }
}

fn generated(config: BurstsConfig, scale: f64) -> TraceResult<Records<'static>> {
    Ok(Box::new(Bursts::new(config.scaled(scale))?))
}

macro_rules! workload {
    ($name:literal, $about:literal, $scale:literal, $config:expr) => {
        StandIn { name: $name, about: $about, scale: $scale, records: |scale| generated($config, scale) }
    };
}

/// The eleven workloads of §4.1.3.
const WORKLOADS: &[StandIn] = &[
    workload!("d1", "12 hours of small requests in bursts of 16, 17% duplicates", 0.2, desktop(12.0)),
    workload!("d2", "19 hours of small requests in bursts of 16, 17% duplicates", 0.2, desktop(19.0)),
    workload!("h1", "10 minutes of large writes, 17% duplicates", 0.2, hadoop(10.0, 400_000, 0.17)),
    workload!("h2", "2 minutes of large writes, 44 MB, 16.6% duplicates", 1.0, hadoop(2.0, 11_264, 0.166)),
    workload!("h3", "10 minutes of large writes, 17% duplicates", 0.2, hadoop(10.0, 300_000, 0.17)),
    workload!("h4", "10 minutes of large writes, 17% duplicates", 0.2, hadoop(10.0, 200_000, 0.17)),
    workload!("h5", "2 minutes of large writes, 44 MB, 15% duplicates", 1.0, hadoop(2.0, 11_264, 0.15)),
    workload!("h6", "20 minutes of large writes, 28.1% duplicates", 0.2, hadoop(20.0, 400_000, 0.281)),
    workload!("h7", "40 minutes of large writes, 18% duplicates", 0.2, hadoop(40.0, 800_000, 0.18)),
    workload!(
        "t1",
        "30 minutes of bursts of 256 small writes, 5.8% duplicates",
        0.2,
        transactions(30.0, (1, 8), 0.058)
    ),
    workload!("t2", "4 hours of bursts of 256 larger writes, 17% duplicates", 0.2, transactions(240.0, (2, 32), 0.17)),
];

/// The name of the trace in experiments about the contents of disks.
pub const DISK: &str = "disk";

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

fn how() -> How {
    How::new(PAGE_BYTES, Unknown::Unique)
}

/// Returns the titles of the traces in reports.
fn titles(lab: &Lab<'_>) -> Result<Vec<String>, String> {
    (0..lab.workload_count()).map(|at| Ok(lab.workload(at)?.title().to_owned())).collect()
}

/// Publishes figures of single workloads in a series.
fn publish(table: &mut Table, lab: &Lab<'_>, series: &str, figures: &[(&str, f64)]) {
    for (workload, value) in figures {
        table.publish(series, lab.title_of(workload), *value);
    }
}

/// Returns the least and the greatest of a series.
fn span(table: &Table, series: &str) -> Option<Span> {
    Span::over(table.ours(series)?.iter().flatten().copied())
}

/// Compares the text's figure with a series' greatest one, or with all of them.
fn compared(what: &str, published: Span, ours: Option<Span>) -> Comparison {
    let ours = if published.low == published.high { ours.map(|span| Span::at(span.high)) } else { ours };
    Comparison { what: what.to_owned(), published, ours }
}

/// True of all figures that are of drives.
const OF_DRIVES: &str = "The drive is that of Tables 1 and 2 at its full size, and empty but for what a trace reads before it writes it: that \
     lies there as pages that were never fingerprinted, since the drive had no CAFTL then. The paper does not say how \
     its drive is prepared. Idle time is used for out-of-line work, where nothing else is said. A trace's requests come \
     at its own times, or, where it has none, each when the one before is over; a request is of at most 128 pages.";
/// True of figures with both kinds of reads.
const OF_QUEUES: &str = "Reads take room in the buffer before writes that wait for it, as section 4.3.2 has it that reads have the priority. Tables \
     of \"one queue\" have drives, without CAFTL and with it, where reads wait for room behind the writes that came before \
     them: the waiting for the buffer that section 4.4.1 speaks of would come of that.";
/// True of all figures with sampling.
const OF_SAMPLES: &str = "Traces have fingerprints and no bytes: the sample bytes of a page, its first four, and its CRC32 are \
                          SYNTHETIC, hashes of its fingerprint.";
/// True of stand-ins.
const OF_GENERATED: &str = "Of its workloads the paper prints how long they ran and some shares of duplicates, which the generated ones \
     have. Amounts, sizes of requests, bursts, and that half of the duplicates come as whole requests, are ours; so \
     absolute figures say little, and how the ways of CAFTL stand to each other says more.";
