//! Figure 5 (§5.2) and Figure 8's latency (§5.5): traces through caches of 40% of their working
//! set.
//!
//! For Figure 5 each trace has a cache of its own. Requests are made one at a time, so that the
//! disk is not saturated (the paper: "when the storage server is not saturated"). For Figure 8 all
//! traces share one cache, at once. Each has a part of one volume, and a client that makes its
//! requests in their order. The generated profile has the totals of nine machines (Table 2), so its
//! addresses are dealt to nine clients, in runs. The machines share the content that the profile
//! repeats over all addresses. Caches are cold at the start, as the paper's are, and everything is
//! measured.
//!
//! It does not leave out the fingerprints' time, as the paper does: on the virtual clock they have
//! none.

use super::super::{
    LiveCase, Means,
    disk::DiskContent,
    load::{Load, LoadFigures, before, requests, requests_with, side_by_side},
    rig::{Plan, Volume},
};
use super::setting::{CHUNK_BYTES, DISK, FLASH, cache, designs};
use crate::{Comparison, How, Lab, PaperReport, Span, Table, content::ContentSizes, request::PaperRequest};
use larder_sim::report::plot::Scale;
use larder_trace::Unknown;
use std::{collections::HashMap, sync::Arc};

/// Percent of the working set.
const CACHE_PERCENT: u64 = 40;
/// The size of a profile's disk, as large as the paper's: a small one would have short seeks.
const DISK_BYTES_MIN: u64 = 512 << 30;
/// Chunks that profiles touch side by side.
const RUN_CHUNKS: u64 = 8;
const RUN_BYTES: u64 = RUN_CHUNKS * CHUNK_BYTES as u64;
/// Virtual machines of Figure 8 (§5.5: three groups of students with three each).
const MACHINES: usize = 9;

/// A trace, a pair of designs, and by how many percent the first is lower than the second.
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

/// Runs Figure 5.
pub fn fig5(lab: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let mut rows = Vec::new();
    for at in 0..lab.workload_count() {
        let found = means.cases(&cases(lab, at)?)?;
        let workload = lab.workload(at)?;
        rows.push(Row { name: workload.name().to_owned(), title: workload.title().to_owned(), found });
    }
    let mut report = report(&rows, &FIG5, "CacheDedup: I/O latency, one request at a time");
    let lru = |row: &Row| Some(100.0 - row.found.get(LRU_AT)?.hit_percent()?);
    let misses: Vec<f64> = rows.iter().filter_map(lru).collect();
    let least = misses.iter().copied().fold(f64::INFINITY, f64::min);
    let most = misses.iter().copied().fold(0.0, f64::max);
    let of_profiles = format!(
        "LRU misses {least:.0} to {most:.0}% of the profiles' reads, and most of the recordings' (see Figure 6). \
         With fewer misses, duplicates can save fewer. A profile shows the order of designs."
    );
    report.words = lab.words(&OF_ALL, &[OF_PROFILES, &of_profiles]);
    Ok(report)
}

/// Runs Figure 8's latency and throughput.
pub fn fig8(lab: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let SharedCache { cases, clients, outstanding } = shared(lab)?;
    let found = means.each(&cases, |(plan, loads)| side_by_side(plan, means.time, loads, &means.ending))?;
    let (mut names, mut titles) = (Vec::new(), Vec::new());
    for at in 0..lab.workload_count() {
        let workload = lab.workload(at)?;
        names.push(workload.name().to_owned());
        titles.push(workload.title().to_owned());
    }
    // Several of the paper's machines are its traces still.
    names.dedup();
    let rows = [Row { name: names.join(" + "), title: titles.join(" + "), found }];
    let of_one = match outstanding {
        1 => "one request".to_owned(),
        requests => format!("{requests} requests"),
    };
    let who = match (lab.has_generated(), clients) {
        (true, _) => format!(
            "The load: {clients} clients at once before one cache, in the place of the paper's nine machines, each \
             with {of_one} under way at most."
        ),
        (false, 1) => format!(
            "The load: one trace alone, with {of_one} under way at most. Two or more, each with a --trace, share a \
             cache: each has its own part of one volume, and a client of its own."
        ),
        (false, _) => format!(
            "The load: {clients} traces at once before one cache, each with its own part of one volume and {of_one} \
             under way at most."
        ),
    };
    let mut report = report(&rows, &FIG8, "CacheDedup: concurrent workloads on one cache");
    let of_all: Vec<&str> = std::iter::once(who.as_str()).chain(OF_ALL).collect();
    let dealt = "The profile has the totals of the paper's nine machines, and its addresses are dealt to the clients in turn, eight chunks \
                 at a time. So what one machine shares with another is what the profile repeats over all addresses.";
    report.words = lab.words(&of_all, &[dealt, OF_PROFILES]);
    Ok(report)
}

/// A figure of a load.
type TraceFigure = (&'static str, fn(&LoadFigures) -> Option<f64>);

const LATENCY: TraceFigure = ("I/O latency (us)", |figures| Some(figures.mean_us()));
const FIGURES: [TraceFigure; 5] = [
    LATENCY,
    ("Read latency (us)", |figures| figures.reads.mean_us()),
    ("Write latency (us)", |figures| figures.writes.mean_us()),
    ("IOPS", |figures| Some(figures.iops())),
    ("Read hit ratio (%)", LoadFigures::hit_percent),
];

/// LRU's place among the cases of a trace.
const LRU_AT: usize = 1;
const OF_ALL: [&str; 2] = [
    "A write in write-back is over when memory has it, and durable with the next flush, which these traces do not \
     ask for. So writes wait only if the cache is full of dirty data. There the designs part, by the work that they \
     save the disk. The tens of microseconds that a write computes besides are on the real clock alone (--clock \
     real).",
    "Data takes 40% of the working set in each design, and metadata comes on top; the paper has metadata in it, 1 to 5% of the flash.",
];
const OF_PROFILES: &str = "The engine's d-lru keeps data that no address has any more until it is the least recently \
                           used, as Algorithm 1 is written, and d-arc likewise. The experiments that count forget it \
                           (§3.1). Figure 3 has the cost for D-LRU in misses: more than it saves by \
                           deduplication.";

/// The results of a trace, or of all that shared a cache.
struct Row {
    /// The paper's name for it, or another.
    name: String,
    title: String,
    /// The figures of each volume.
    found: Vec<LoadFigures>,
}

/// Returns the tables, beside the statements of the paper's text.
fn report(rows: &[Row], published: &[Published], title: &str) -> PaperReport {
    let names: Vec<&str> = std::iter::once("no cache").chain(designs().into_iter().map(|(name, _)| name)).collect();
    let mut tables: Vec<Table> =
        FIGURES.iter().map(|(label, _)| Table::new("All traces", *label, "Cache", &names)).collect();
    for Row { title, found, .. } in rows {
        for (table, (_, of)) in tables.iter_mut().zip(FIGURES) {
            table.push(title, found.iter().map(of));
        }
    }
    let comparisons = published.iter().map(|(trace, [less, more], published)| {
        let row = rows.iter().find(|row| row.name == *trace);
        let of = |name: &str| {
            let at = names.iter().position(|other| *other == name)?;
            Some(row?.found.get(at)?.mean_us())
        };
        let ours = of(less).zip(of(more)).map(|(less, more)| Span::at(100.0 * (1.0 - less / more)));
        let title = row.map_or(*trace, |row| &row.title);
        let what = format!("{title}: latency of {less} lower than of {more} (%)");
        Comparison { what, published: Span::at(*published), ours }
    });
    let comparisons = comparisons.collect();
    let subtitle = "Caches of 40% of the working set before a 7,200 rpm disk";
    let charts = tables.iter().take(1).map(|table| table.bars(title, subtitle, Scale::Linear)).collect();
    PaperReport { words: Vec::new(), tables, comparisons, charts }
}

/// Returns the volumes: without a cache, and through each design.
fn volumes(data_bytes: u64) -> Result<Vec<Volume>, String> {
    let cached = designs().into_iter().map(|(_, design)| cache(design, data_bytes).map(Volume::Cached));
    std::iter::once(Ok(Volume::Disk)).chain(cached).collect()
}

fn plan(volume: Volume, disk_bytes: u64, initial: DiskContent) -> Plan {
    Plan { volume, disk: DISK, flash: FLASH, disk_bytes, block_bytes: CHUNK_BYTES, initial, workers: 2 }
}

fn load(requests: Vec<PaperRequest>, outstanding: usize) -> Load {
    Load { requests: Arc::new(requests), block_bytes: CHUNK_BYTES, outstanding, warmup: 0, drains: false }
}

fn how() -> How {
    How::new(CHUNK_BYTES, Unknown::Unique)
}

fn data_bytes(working_set_chunks: u64) -> u64 {
    working_set_chunks * CACHE_PERCENT / 100 * u64::from(CHUNK_BYTES)
}

/// Returns the end of the last request.
fn end_of(requests: &[PaperRequest]) -> u64 {
    requests.iter().map(|request| request.offset.saturating_add(request.len)).max().unwrap_or(0)
}

/// Moves requests to `base`, and their runs `times` as far apart.
fn spread(requests: &mut [PaperRequest], base: u64, times: u64) {
    for request in requests {
        request.offset = base + request.offset / RUN_BYTES * RUN_BYTES * times + request.offset % RUN_BYTES;
    }
}

/// Returns the cases of one trace, each volume for itself.
fn cases(lab: &mut Lab<'_>, at: usize) -> Result<Vec<LiveCase>, String> {
    let data_bytes = data_bytes(lab.survey(at, &how())?.working_set_chunks);
    let mut found = requests(lab.requests(at, &how())?, CHUNK_BYTES, |chunk| chunk)?;
    let end = end_of(&found);
    let apart = if lab.has_generated() { (DISK_BYTES_MIN / end.max(1)).max(1) } else { 1 };
    spread(&mut found, 0, apart);
    let (initial, load) = (before(&found, CHUNK_BYTES), load(found, 1));
    let disk_bytes = DISK_BYTES_MIN.max((end + RUN_BYTES) * apart);
    let case = |volume| (plan(volume, disk_bytes, initial.clone()), load.clone());
    Ok(volumes(data_bytes)?.into_iter().map(case).collect())
}

/// The loads that share a cache.
struct SharedCache {
    /// Each volume, and its concurrent loads.
    cases: Vec<(Plan, Vec<Load>)>,
    clients: usize,
    /// The most requests of each under way: of all together about as many as there are machines.
    outstanding: usize,
}

/// Returns all traces, each with its part of one volume.
fn shared(lab: &mut Lab<'_>) -> Result<SharedCache, String> {
    let (mut streams, mut working_set, mut sizes) = (Vec::new(), 0, ContentSizes::default());
    let is_generated = lab.has_generated();
    for at in 0..lab.workload_count() {
        working_set += lab.survey(at, &how())?.working_set_chunks;
        let found = requests_with(lab.requests(at, &how())?, CHUNK_BYTES, |chunk| chunk, &mut sizes)?;
        match is_generated {
            true => streams.extend(dealt(found)),
            false => streams.push(found),
        }
    }
    let clients = streams.len().max(1);
    let part_bytes = DISK_BYTES_MIN / clients as u64 / RUN_BYTES * RUN_BYTES;
    let (mut base, mut initial) = (0_u64, HashMap::new());
    for stream in &mut streams {
        let own = end_of(stream).saturating_add(RUN_BYTES) / RUN_BYTES * RUN_BYTES;
        let apart = if is_generated { (part_bytes / own).max(1) } else { 1 };
        spread(stream, base, apart);
        base = base.saturating_add(own.saturating_mul(apart));
        initial.extend(before(stream, CHUNK_BYTES).iter().map(|(&block, &bytes)| (block, bytes)));
    }
    let (initial, outstanding) = (Arc::new(initial), MACHINES.div_ceil(clients));
    let loads: Vec<Load> = streams.into_iter().map(|stream| load(stream, outstanding)).collect();
    let case = |volume| (plan(volume, DISK_BYTES_MIN.max(base), initial.clone()), loads.clone());
    let cases = volumes(data_bytes(working_set))?.into_iter().map(case).collect();
    Ok(SharedCache { cases, clients, outstanding })
}

/// Deals the requests of a stream for all machines to them by address, in runs.
///
/// The requests of a machine keep their order.
fn dealt(requests: Vec<PaperRequest>) -> [Vec<PaperRequest>; MACHINES] {
    let mut machines = [const { Vec::new() }; MACHINES];
    for mut request in requests {
        let run = request.offset / RUN_BYTES;
        request.offset = run / MACHINES as u64 * RUN_BYTES + request.offset % RUN_BYTES;
        if let Some(machine) = machines.get_mut((run % MACHINES as u64) as usize) {
            machine.push(request);
        }
    }
    machines
}
