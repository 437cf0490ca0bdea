//! Figure 5 (§5.2) and the latency of Figure 8 (§5.5): traces through caches of 40% of their working set.
//!
//! Requests are made one at a time for Figure 5, so that the disk is not saturated (the paper: "when the storage server is
//! not saturated"), and nine at a time for Figure 8, of one stream in the place of nine virtual machines. Caches are cold at the
//! start, as the paper's are, and everything is measured.
//!
//! What it does not do: leave out the fingerprints' time, as the paper does: on the virtual clock they have none.

use super::super::{
    live::{Case, Means},
    load::{Figures, Load, before, requests},
    rig::{Plan, Volume},
};
use super::{CHUNK_BYTES, DISK, FLASH, cache, designs};
use larder_sim::{
    paper::{Comparison, How, Lab, Report, Span, Table},
    report::plot::Scale,
};
use larder_trace::Unknown;
use std::sync::Arc;

/// Percent of the working set.
const CACHE_PERCENT: u64 = 40;
/// A profile's disk is as large as the paper's: a small one would have short seeks.
const DISK_BYTES_MIN: u64 = 512 << 30;
/// Chunks that profiles touch side by side.
const RUN_CHUNKS: u64 = 8;
/// Virtual machines of Figure 8.
const MACHINES: usize = 9;

/// A pair of designs, and by how many percent the first is lower than the second: trace, pair, figure.
type Published = (&'static str, [&'static str; 2], f64);

const FIG5: [Published; 6] = [
    ("WebVM", ["D-LRU", "LRU"], 47.0),
    ("WebVM", ["D-ARC", "ARC"], 42.0),
    ("Homes", ["D-LRU", "LRU"], 8.0),
    ("Homes", ["D-ARC", "ARC"], 6.0),
    ("Mail", ["D-LRU", "LRU"], 48.0),
    ("Mail", ["D-ARC", "ARC"], 51.0),
];
const FIG8: [Published; 2] = [("Hadoop", ["D-LRU", "LRU"], 12.0), ("Hadoop", ["D-ARC", "ARC"], 12.0)];

/// Figure 5.
pub fn fig5(lab: &mut Lab<'_>, means: &Means) -> Result<Report, String> {
    report(lab, means, 1, &FIG5, "CacheDedup: I/O latency, one request at a time")
}

/// Figure 8's latency and throughput.
pub fn fig8(lab: &mut Lab<'_>, means: &Means) -> Result<Report, String> {
    report(lab, means, MACHINES, &FIG8, "CacheDedup: concurrent machines on one cache")
}

/// A figure of a load.
type Figure = (&'static str, fn(&Figures) -> Option<f64>);

const LATENCY: Figure = ("I/O latency (us)", |figures| Some(figures.mean_us()));
const FIGURES: [Figure; 5] = [
    LATENCY,
    ("Read latency (us)", |figures| figures.reads.mean_us()),
    ("Write latency (us)", |figures| figures.writes.mean_us()),
    ("IOPS", |figures| Some(figures.iops())),
    ("Read hit ratio (%)", Figures::hit_percent),
];

fn report(
    lab: &mut Lab<'_>,
    means: &Means,
    outstanding: usize,
    published: &[Published],
    title: &str,
) -> Result<Report, String> {
    let names: Vec<&str> = std::iter::once("no cache").chain(designs().into_iter().map(|(name, _)| name)).collect();
    let mut tables: Vec<Table> =
        FIGURES.iter().map(|(label, _)| Table::new("All traces", *label, "Cache", &names)).collect();
    for at in 0..lab.workload_count() {
        let found = means.cases(&cases(lab, at, outstanding)?)?;
        let title = lab.workload(at)?.title();
        for (table, (_, of)) in tables.iter_mut().zip(FIGURES) {
            table.push(title, found.iter().map(of));
        }
    }
    let latency = tables.first();
    let comparisons = published.iter().map(|(trace, [less, more], published)| {
        let of = |name: &str| {
            let at = names.iter().position(|other| *other == name)?;
            latency?.ours(lab.title_of(trace))?.get(at).copied().flatten()
        };
        let ours = of(less).zip(of(more)).map(|(less, more)| Span::at(100.0 * (1.0 - less / more)));
        let what = format!("{}: latency of {less} lower than of {more} (%)", lab.title_of(trace));
        Comparison { what, published: Span::at(*published), ours }
    });
    let comparisons = comparisons.collect();
    let subtitle = "Caches of 40% of the working set before a 7,200 rpm disk";
    let charts = tables.iter().take(1).map(|table| table.bars(title, subtitle, Scale::Linear)).collect();
    let of_all = [
        "A write in write-back is over when memory has it, and durable with the next flush, which these traces do not ask for; so \
         writes wait only where the cache is full of dirty data. That is where the designs part: with what they save of the \
         disk. The tens of microseconds that a write computes besides are on the real clock alone (--clock real).",
        "Data takes 40% of the working set in each design, and metadata comes on top; the paper has metadata in it, 1 to 5% of the flash.",
    ];
    let of_profiles = [
        "The engine's d-lru keeps data that no address has any more until it is the least recently used, as Algorithm 1 is written, and \
         d-arc likewise; the experiments that count forget it (§3.1). What that costs D-LRU in misses, Figure 3 has: more than it \
         saves by deduplication.",
        "A profile's reads miss in a fifth and less of all cases, where in the recordings most miss (see Figure 6): with \
         fewer misses, duplicates can save fewer. What a profile shows is the order of designs.",
    ];
    Ok(Report { words: lab.words(&of_all, &of_profiles), tables, comparisons, charts })
}

/// Without a cache, and through each design.
fn cases(lab: &mut Lab<'_>, at: usize, outstanding: usize) -> Result<Vec<Case>, String> {
    let how = How::new(CHUNK_BYTES, Unknown::Unique);
    let working_set = lab.survey(at, &how)?.working_set_chunks;
    let data_bytes = working_set * CACHE_PERCENT / 100 * u64::from(CHUNK_BYTES);
    let mut found = requests(lab.requests(at, &how)?, CHUNK_BYTES, |chunk| chunk)?;
    let end = found.iter().map(|request| request.offset + request.len).max().unwrap_or(0);
    let apart = if lab.has_generated() { (DISK_BYTES_MIN / end.max(1)).max(1) } else { 1 };
    let run_bytes = RUN_CHUNKS * u64::from(CHUNK_BYTES);
    for request in &mut found {
        request.offset = request.offset / run_bytes * run_bytes * apart + request.offset % run_bytes;
    }
    let initial = before(&found, CHUNK_BYTES);
    let load = Load { requests: Arc::new(found), block_bytes: CHUNK_BYTES, outstanding, warmup: 0, settles: false };
    let mut volumes = vec![Volume::Disk];
    for (_, design) in designs() {
        volumes.push(Volume::Cached(cache(design, data_bytes)?));
    }
    let plan = |volume| Plan {
        volume,
        disk: DISK,
        flash: FLASH,
        disk_bytes: DISK_BYTES_MIN.max((end + run_bytes) * apart),
        block_bytes: CHUNK_BYTES,
        initial: initial.clone(),
        workers: 2,
    };
    Ok(volumes.into_iter().map(|volume| (plan(volume), load.clone())).collect())
}
