//! The schemes of the paper, and the sizes and figures of its experiments.
//!
//! It runs no experiment.

use crate::{How, Lab, Replayed, Span, Table};
use larder_core::austere::config::SUBCHUNKS_PER_CHUNK;
use larder_sim::{
    cache::WritePolicy,
    report::plot::{Chart, Scale},
    setup::{FlashAmount, Options, ReplayDesign, Setup},
};
use larder_trace::Unknown;

pub(super) const MIB: f64 = (1u64 << 20) as f64;

pub(super) const SIZE_LABEL: &str = "Cache size (% of WSS)";

pub(super) const PERCENTS: [f64; 4] = [12.5, 25.0, 50.0, 100.0];

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: u32 = 32 << 10;

/// Slots of a bucket. Caches are of whole buckets, so that all designs have the same room.
pub(super) const BUCKET_CHUNKS: u64 = 128;

/// The least bytes of data of a cache, which designs in WEUs can have, too.
pub(super) const CACHE_BYTES_MIN: u64 = 8 << 20;

/// Entries of the LBA index for each chunk that the flash holds.
pub(super) const LBA_ENTRIES_PER_CHUNK: u64 = 4;

/// A scheme of the paper: its name, and its design.
#[derive(PartialEq, Eq)]
pub(super) struct Scheme {
    pub name: &'static str,
    pub design: &'static str,
    pub compress: Option<bool>,
}

impl Scheme {
    /// Makes a cache with room for so many chunks of data.
    pub fn setup(&self, chunks: u64, chunk_bytes: u32) -> Result<Setup, String> {
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

pub(super) const CD_LRU_D: Scheme = Scheme { name: "CD-LRU-D", design: "d-lru", compress: None };

pub(super) const CD_ARC_D: Scheme = Scheme { name: "CD-ARC-D", design: "d-arc", compress: None };

pub(super) const AC_D: Scheme = Scheme { name: "AC-D", design: "austere", compress: Some(false) };

pub(super) const CD_ARC_DC: Scheme = Scheme { name: "CD-ARC-DC", design: "cd-arc", compress: None };

pub(super) const AC_DC: Scheme = Scheme { name: "AC-DC", design: "austere", compress: None };

/// Chunks of 32 KiB; unread blocks are zeroes (§5.1).
pub(super) fn how() -> How {
    How::new(CHUNK_BYTES, Unknown::Zero)
}

/// Returns so many percent of a working set, in whole buckets.
pub(super) fn cache_chunks(working_set_chunks: u64, percent: f64, chunk_bytes: u32) -> u64 {
    let chunks = working_set_chunks as f64 * percent / 100.0;
    let least = CACHE_BYTES_MIN / u64::from(chunk_bytes) / BUCKET_CHUNKS;
    ((chunks / BUCKET_CHUNKS as f64).round() as u64).max(least).max(1) * BUCKET_CHUNKS
}

/// Replays a trace through each scheme at each size; the sizes of a scheme lie together.
pub(super) fn by_size(
    lab: &mut Lab<'_>,
    at: usize,
    schemes: &[&Scheme],
    percents: &[f64],
) -> Result<Vec<Vec<Replayed>>, String> {
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
pub(super) fn over(tables: &[Table], traces: &[&str], [a, b]: [&str; 2], of: fn(f64, f64) -> f64) -> Option<Span> {
    let tables = tables.iter().filter(|table| traces.is_empty() || traces.contains(&table.title()));
    let pairs = tables.filter_map(|table| Some(table.ours(a)?.iter().zip(table.ours(b)?)));
    Span::over(pairs.flatten().filter_map(|(a, b)| Some(of((*a)?, (*b)?))))
}

/// Returns by how many percent `a` is more than `b`.
pub(super) fn percent_more(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { 100.0 * (a - b) / b }
}

/// Returns by how many percent `a` is less than `b`.
pub(super) fn percent_less(a: f64, b: f64) -> f64 {
    -percent_more(a, b)
}

pub(super) fn ram_mib(replayed: &Replayed) -> f64 {
    replayed.measures.figures.index_ram_bytes as f64 / MIB
}

pub(super) fn read_hit_percent(replayed: &Replayed) -> f64 {
    100.0 * replayed.measures.tally.read_hit_ratio()
}

pub(super) fn write_reduction_percent(replayed: &Replayed) -> f64 {
    100.0 * replayed.measures.write_reduction_ratio()
}

/// Draws a chart of lines for each table, with the name of the trace over it.
pub(super) fn charts(tables: &[Table], what: &str, y: Scale) -> Vec<Chart> {
    let subtitle = "Write-through, chunks of 32 KiB";
    let chart = |table: &Table| table.lines(format!("{}: {what}", table.title()), subtitle, Scale::Linear, y);
    tables.iter().map(chart).collect()
}
