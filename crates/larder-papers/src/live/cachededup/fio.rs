//! Figures 10 and 11 (§5.7): random reads and writes without duplicates, one job and eight.
//!
//! Each block is requested once. Reads are of a cold cache, so the disk answers all of them; then
//! of a warm one. Writes are made in write-back, with room for all of them. A job has one request
//! under way.
//!
//! It does not run the benchmark `fio` itself, which would need a block device of the kernel.

use super::super::{
    LiveCase, Means,
    load::{Load, LoadFigures, before, on_rig},
    rig::{Plan, Volume},
};
use super::setting::{CHUNK_BYTES, DISK, FLASH, cache, designs};
use crate::{
    Comparison, Lab, PaperReport, Span, Table,
    content::Bytes,
    request::{Block, PaperRequest},
};
use larder_device::{
    rng::{Rng, mix64},
    throttled::Profile,
};
use larder_sim::report::plot::Scale;
use larder_trace::{ContentId, Op};
use std::sync::Arc;

/// The disk of the blocks.
const DISK_BYTES: u64 = 512 << 30;
const SEED: u64 = 10;
/// The most cold reads, since each takes milliseconds.
const COLD_MAX: u64 = 400;
/// The least room of a cache.
const CACHE_BYTES_MIN: u64 = 8 << 20;
/// The measurements of each case; the quickest counts, since other programs slow the others.
const REPEATS: usize = 5;

/// The measured operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoadKind {
    ColdReads,
    WarmReads,
    Writes,
}

const KINDS: [(LoadKind, &str); 3] =
    [(LoadKind::ColdReads, "reads, cold"), (LoadKind::WarmReads, "reads, warm"), (LoadKind::Writes, "writes")];

/// Runs Figure 10: one job, 1 GB.
pub fn fig10(_: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let label = "Latency (us)";
    let table = measured(means, 1, 1 << 30, label, LoadFigures::mean_us)?;
    let added = |kind: &str, pair: [&str; 2]| {
        let [with, without] = pair.map(|name| of(&table, kind, name));
        let ours = with.zip(without).map(|(with, without)| Span::at(with - without));
        let what = format!("{kind}: {} over {} (us)", pair[0], pair[1]);
        Comparison { what, published: Span::of(10.0, 20.0), ours }
    };
    let pairs = [["D-LRU", "LRU"], ["D-ARC", "ARC"]];
    let comparisons = ["reads, cold", "writes"].iter().flat_map(|kind| pairs.map(|pair| added(kind, pair))).collect();
    let words = vec![
        "The paper's designs fingerprint before they answer, also after reads. Here a read never waits for that: \
         missed chunks are fingerprinted behind the reader's back (Nitro §3.1 has it so, too). A write of 4 KiB is \
         fingerprinted with keyed BLAKE3 in a few microseconds before it is acknowledged. Cold reads take a disk's \
         milliseconds, in which such differences drown: their figures are chance."
            .to_owned(),
    ];
    Ok(finished(table, comparisons, words, "CacheDedup: latency, one job", Scale::Log))
}

/// Runs Figure 11: eight jobs, 512 MB each.
pub fn fig11(_: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let table = measured(means, 8, 8 * (512 << 20), "Throughput (MiB/s)", LoadFigures::mib_per_s)?;
    let kept = |kind: &str, pair: [&str; 2]| {
        let [with, without] = pair.map(|name| of(&table, kind, name));
        let ours = with.zip(without).map(|(with, without)| Span::at(with / without));
        let what = format!("{kind}: throughput of {} over that of {} (not significantly less: 1)", pair[0], pair[1]);
        Comparison { what, published: Span::at(1.0), ours }
    };
    let pairs = [["D-LRU", "LRU"], ["D-ARC", "ARC"]];
    let comparisons = ["reads, cold", "writes"].iter().flat_map(|kind| pairs.map(|pair| kept(kind, pair))).collect();
    let words = vec![
        "All requests are made by one thread, eight at a time, and the engine fingerprints on two workers. Reads \
         wait for the disk or the SSD and lose nothing. Writes in write-back wait for neither, so their throughput \
         is that of computing. It shows the fingerprints alone, and the compression of cd-arc and nitro; the paper's \
         writes to an SSD cover both."
            .to_owned(),
    ];
    Ok(finished(table, comparisons, words, "CacheDedup: throughput, eight jobs", Scale::Log))
}

fn of(table: &Table, kind: &str, name: &str) -> Option<f64> {
    let at = designs().iter().position(|(other, _)| *other == name)?;
    table.ours(kind)?.get(at).copied().flatten()
}

fn finished(table: Table, comparisons: Vec<Comparison>, words: Vec<String>, title: &str, scale: Scale) -> PaperReport {
    let subtitle = "Random requests of 4 KiB without duplicates; 7,200 rpm disk and SATA SSD";
    let charts = vec![table.bars(title, subtitle, scale)];
    PaperReport { tables: vec![table], comparisons, words, charts }
}

fn measured(
    means: &Means,
    jobs: usize,
    bytes: u64,
    label: &str,
    of: impl Fn(&LoadFigures) -> f64 + Sync,
) -> Result<Table, String> {
    let blocks = ((bytes as f64 * means.scale) as u64 / u64::from(CHUNK_BYTES)).max(8);
    let designs = designs();
    let mut table = Table::new(
        format!("{jobs} {}", if jobs == 1 { "job" } else { "jobs" }),
        label,
        "Design",
        designs.iter().map(|(name, _)| name),
    );
    for (kind, name) in KINDS {
        let cases: Vec<LiveCase> =
            designs.iter().map(|(_, design)| case(kind, design, jobs, blocks)).collect::<Result<_, _>>()?;
        let found = means.each(&cases, |(plan, load)| {
            let repeats = if kind == LoadKind::ColdReads { 1 } else { REPEATS };
            let mut best: Option<LoadFigures> = None;
            for _ in 0..repeats {
                let figures = on_rig(plan, means.time, load, &means.ending)?;
                best = Some(best.filter(|best| best.elapsed <= figures.elapsed).unwrap_or(figures));
            }
            Ok(best.as_ref().map(&of))
        });
        table.push(name, found?);
    }
    Ok(table)
}

fn case(kind: LoadKind, design: &str, jobs: usize, blocks: u64) -> Result<LiveCase, String> {
    let blocks = if kind == LoadKind::ColdReads { blocks.min(COLD_MAX) } else { blocks };
    let op = if kind == LoadKind::Writes { Op::Write } else { Op::Read };
    let apart = DISK_BYTES / u64::from(CHUNK_BYTES) / blocks;
    let mut places: Vec<u64> = (0..blocks).collect();
    let mut rng = Rng::new(SEED);
    rng.shuffle(&mut places);
    let mut requests: Vec<PaperRequest> = places.iter().map(|place| request(op, *place, apart)).collect();
    let mut warmup = 0;
    if kind == LoadKind::WarmReads {
        // A quick origin fills the cache; the measured requests do not reach it.
        warmup = requests.len();
        rng.shuffle(&mut places);
        requests.extend(places.iter().map(|place| request(op, *place, apart)));
    }
    let initial = before(&requests, CHUNK_BYTES);
    let data_bytes = CACHE_BYTES_MIN.max(2 * blocks * u64::from(CHUNK_BYTES));
    let plan = Plan {
        volume: Volume::Cached(cache(design, data_bytes)?),
        disk: if kind == LoadKind::WarmReads { Profile::Nvme } else { DISK },
        flash: FLASH,
        disk_bytes: DISK_BYTES,
        block_bytes: CHUNK_BYTES,
        initial,
        workers: 2,
    };
    let load = Load {
        requests: Arc::new(requests),
        block_bytes: CHUNK_BYTES,
        outstanding: jobs,
        warmup,
        drains: kind == LoadKind::WarmReads,
    };
    Ok((plan, load))
}

/// Returns a request for a block of its own content, which compresses to a half.
fn request(op: Op, place: u64, apart: u64) -> PaperRequest {
    let fingerprint = ContentId([mix64(place + 1), mix64(!place)]);
    let bytes = Bytes::Of { fingerprint, stored_bytes: CHUNK_BYTES / 2 };
    let len = u64::from(CHUNK_BYTES);
    PaperRequest {
        number: place,
        time_us: None,
        op,
        offset: place * apart * len,
        len,
        blocks: vec![Block { at: 0, len, bytes: Some(bytes) }],
    }
}
