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
mod techniques;

use larder_core::austere::config::SUBCHUNKS_PER_CHUNK;
use larder_trace::Unknown;

use super::{Experiment, How, Lab, PaperReport, Replayed, Span, StandIn, Table, profile};
use larder_sim::{
    cache::WritePolicy,
    report::plot::{Chart, Scale},
    setup::{FlashAmount, Options, ReplayDesign, Setup},
};

const PAPER: &str = "AustereCache (ATC '20)";
const MIB: f64 = (1u64 << 20) as f64;
const SIZE_LABEL: &str = "Cache size (% of WSS)";
const PERCENTS: [f64; 4] = [12.5, 25.0, 50.0, 100.0];
/// Bytes of a chunk.
const CHUNK_BYTES: u32 = 32 << 10;
/// Slots of a bucket. Caches are of whole buckets, so that all designs have the same room.
const BUCKET_CHUNKS: u64 = 128;
/// The least bytes of data of a cache, which designs in WEUs can have, too.
const CACHE_BYTES_MIN: u64 = 8 << 20;
/// Entries of the LBA index for each chunk that the flash holds.
const LBA_ENTRIES_PER_CHUNK: u64 = 4;

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

/// A scheme of the paper: its name, and its design.
#[derive(PartialEq, Eq)]
struct Scheme {
    name: &'static str,
    design: &'static str,
    compress: Option<bool>,
}

const CD_LRU_D: Scheme = Scheme { name: "CD-LRU-D", design: "d-lru", compress: None };
const CD_ARC_D: Scheme = Scheme { name: "CD-ARC-D", design: "d-arc", compress: None };
const AC_D: Scheme = Scheme { name: "AC-D", design: "austere", compress: Some(false) };
const CD_ARC_DC: Scheme = Scheme { name: "CD-ARC-DC", design: "cd-arc", compress: None };
const AC_DC: Scheme = Scheme { name: "AC-DC", design: "austere", compress: None };

impl Scheme {
    /// Makes a cache with room for so many chunks of data.
    fn setup(&self, chunks: u64, chunk_bytes: u32) -> Result<Setup, String> {
        let lba_entries = Some(LBA_ENTRIES_PER_CHUNK * chunks);
        // The paper's share, for any unit of the device: §5.4 has subchunks of 2 KiB, too.
        let subchunk_bytes = (self == &AC_DC).then_some(chunk_bytes / SUBCHUNKS_PER_CHUNK);
        Ok(Setup {
            design: ReplayDesign::named(self.design)?,
            chunk_bytes,
            flash: FlashAmount::DataChunks(chunks),
            policy: WritePolicy::Through,
            options: Options { lba_entries, compress: self.compress, subchunk_bytes, ..Options::default() },
        })
    }
}

/// Chunks of 32 KiB; unread blocks are zeroes (§5.1).
fn how() -> How {
    How::new(CHUNK_BYTES, Unknown::Zero)
}

/// Returns so many percent of a working set, in whole buckets.
fn cache_chunks(working_set_chunks: u64, percent: f64, chunk_bytes: u32) -> u64 {
    let chunks = working_set_chunks as f64 * percent / 100.0;
    let least = CACHE_BYTES_MIN / u64::from(chunk_bytes) / BUCKET_CHUNKS;
    ((chunks / BUCKET_CHUNKS as f64).round() as u64).max(least).max(1) * BUCKET_CHUNKS
}

/// Replays a trace through each scheme at each size; the sizes of a scheme lie together.
fn by_size(lab: &mut Lab<'_>, at: usize, schemes: &[&Scheme], percents: &[f64]) -> Result<Vec<Vec<Replayed>>, String> {
    let working_set = lab.survey(at, &how())?.working_set_chunks;
    let setup =
        |scheme: &&Scheme, percent: &f64| scheme.setup(cache_chunks(working_set, *percent, CHUNK_BYTES), CHUNK_BYTES);
    let setups = schemes.iter().flat_map(|scheme| percents.iter().map(move |percent| setup(scheme, percent)));
    let setups: Vec<Setup> = setups.collect::<Result<_, String>>()?;
    let replayed = lab.replay(at, &how(), 0, &setups)?;
    Ok(replayed.chunks(percents.len()).map(<[Replayed]>::to_vec).collect())
}

/// Returns the span of a figure over pairs of cells of two series.
///
/// It takes the tables of the named traces, or all tables if none is named.
fn over(tables: &[Table], traces: &[&str], [a, b]: [&str; 2], of: fn(f64, f64) -> f64) -> Option<Span> {
    let tables = tables.iter().filter(|table| traces.is_empty() || traces.contains(&table.title()));
    let pairs = tables.filter_map(|table| Some(table.ours(a)?.iter().zip(table.ours(b)?)));
    Span::over(pairs.flatten().filter_map(|(a, b)| Some(of((*a)?, (*b)?))))
}

/// Returns by how many percent `a` is more than `b`.
fn percent_more(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { 100.0 * (a - b) / b }
}

/// Returns by how many percent `a` is less than `b`.
fn percent_less(a: f64, b: f64) -> f64 {
    -percent_more(a, b)
}

fn ram_mib(replayed: &Replayed) -> f64 {
    replayed.measures.figures.index_ram_bytes as f64 / MIB
}

fn read_hit_percent(replayed: &Replayed) -> f64 {
    100.0 * replayed.measures.tally.read_hit_ratio()
}

fn write_reduction_percent(replayed: &Replayed) -> f64 {
    100.0 * replayed.measures.write_reduction_ratio()
}

/// Draws a chart of lines for each table, with the name of the trace over it.
fn charts(tables: &[Table], what: &str, y: Scale) -> Vec<Chart> {
    let subtitle = "Write-through, chunks of 32 KiB";
    let chart = |table: &Table| table.lines(format!("{}: {what}", table.title()), subtitle, Scale::Linear, y);
    tables.iter().map(chart).collect()
}
