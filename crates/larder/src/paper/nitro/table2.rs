//! Table 2 (§6.2) with a TPS origin: IOPS and read response time of five variants against no cache, warm and cold.
//!
//! Requests are made sixteen at a time, as fast as they go, in place of the paper's trace "at an accelerated speed to use ~95% of
//! the system resources". Warm: the first 16 of 21 days are not measured; cold: they are left out (§6.2). Caches are of 2%
//! of the file system, in write-back.
//!
//! What it does not do: NVRAM, which acknowledges the paper's writes. Here memory does, which a power loss takes: the flash has them
//! with the next FLUSH, or within a second.

use super::super::{
    live::{Case, Means},
    load::{Figures, Load, before, requests},
    rig::{Plan, Volume},
};
use super::{DISK, EXTENT, EXTENT_BYTES, FLASH, Variant, WEU, WEU_C, WEU_D, WEU_DC};
use larder_sim::{
    paper::{
        Comparison, Lab, Report, Span, Table,
        nitro::{OF_FILE_SYSTEM, cache_extents, how, warmup},
    },
    report::plot::Scale,
};
use std::sync::Arc;

const VARIANTS: [&Variant; 5] = [&EXTENT, &WEU, &WEU_C, &WEU_D, &WEU_DC];
/// Requests under way.
const OUTSTANDING: usize = 16;
/// The disk is as large as the paper's largest file system at least: a small one would have short seeks.
const DISK_BYTES_MIN: u64 = 512 << 30;
/// Chunks that profiles touch side by side.
const RUN_CHUNKS: u64 = 8;

/// The paper's figures for TPS: of each trace, IOPS improved and response time reduced, in percent.
const PUBLISHED: [(&str, [f64; 5], [f64; 5]); 3] = [
    ("WebVM", [93.0, 113.0, 148.0, 198.0, 264.0], [39.0, 41.0, 49.0, 58.0, 64.0]),
    ("Homes", [90.0, 130.0, 175.0, 233.0, 287.0], [39.0, 42.0, 47.0, 49.0, 54.0]),
    ("Mail", [56.0, 75.0, 115.0, 122.0, 165.0], [41.0, 44.0, 51.0, 57.0, 61.0]),
];

/// Runs it.
pub fn run(lab: &mut Lab<'_>, means: &Means) -> Result<Report, String> {
    let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    let table = |title: &str, label: &str| Table::new(title, label, "Trace", &names);
    let (iops_label, times_label) = ("IOPS more than without a cache (%)", "Read response time less (%)");
    let mut tables = [
        table("Warm", iops_label),
        table("Warm", times_label),
        table("Cold", iops_label),
        table("Cold", times_label),
        table("Warm", "Read hit ratio (%)"),
        table("Cold", "Read hit ratio (%)"),
    ];
    let mut bases = Vec::new();
    for at in 0..lab.workload_count() {
        let title = lab.workload(at)?.title().to_owned();
        let cases = cases(lab, at)?;
        let found = means.cases(&cases)?;
        for (state, found) in found.chunks(VARIANTS.len() + 1).enumerate() {
            let Some((base, found)) = found.split_first() else { continue };
            let more = |figures: &Figures| Some(100.0 * (figures.iops() / base.iops() - 1.0));
            let less = |figures: &Figures| {
                let (ours, base) = (figures.reads.mean_us()?, base.reads.mean_us()?);
                Some(100.0 * (1.0 - ours / base))
            };
            let [warm_iops, warm_times, cold_iops, cold_times, warm_hits, cold_hits] = &mut tables;
            let (iops, times, hits) = match state {
                0 => (warm_iops, warm_times, warm_hits),
                _ => (cold_iops, cold_times, cold_hits),
            };
            iops.push(&title, found.iter().map(more));
            times.push(&title, found.iter().map(less));
            hits.push(&title, found.iter().map(Figures::hit_percent));
            if state == 0 {
                bases.push(format!(
                    "{title} {:.0} IOPS and {:.1} ms a read",
                    base.iops(),
                    base.reads.mean_us().unwrap_or(f64::NAN) / 1000.0
                ));
            }
        }
    }
    let [iops, times, ..] = &mut tables;
    for (trace, published_iops, published_times) in PUBLISHED {
        let title = lab.title_of(trace).to_owned();
        for ((variant, more), less) in VARIANTS.iter().zip(published_iops).zip(published_times) {
            iops.publish(&title, variant.name, more);
            times.publish(&title, variant.name, less);
        }
    }
    let comparisons = comparisons(lab, &tables);
    let subtitle = "Against five 7,200 rpm disks as RAID 5 without a cache; cache of 2% of the file system";
    let charts = tables
        .iter()
        .take(4)
        .map(|table| table.bars(format!("Nitro, {}", table.title().to_lowercase()), subtitle, Scale::Linear))
        .collect();
    let base = format!("Without a cache, warm: {}.", bases.join("; "));
    let of_all = [
        OF_FILE_SYSTEM,
        &base,
        "Extent (ND, NC) is the design lru, the others are nitro; a WEU is a 64th of the cache, 512 KiB at least. That the \
         paper's extents do worse it lays to small overwrites inside its SSD; the SSD here has the same time for any write \
         and collects no garbage, so that part cannot show. What shows is the other side of WEUs: an extent is overwritten in place, \
         and what is overwritten in a WEU lies there until the WEU goes, which has what is dirty in it written to the disk.",
    ];
    let of_profiles = [
        "A profile's reads and writes go by age and recency of addresses. The hit ratios below the times tell what the \
         recordings' order would change: the more of them, the more the disk is spared.",
    ];
    Ok(Report { words: lab.words(&of_all, &of_profiles), tables: tables.into(), comparisons, charts })
}

/// Warm, without a cache and with each; then cold.
fn cases(lab: &mut Lab<'_>, at: usize) -> Result<Vec<Case>, String> {
    let how = how(EXTENT_BYTES);
    let data_bytes = cache_extents(lab, at, 2.0)? * u64::from(EXTENT_BYTES);
    let chunks = lab.requests(at, &how)?;
    let is_generated = lab.has_generated();
    let found = requests(chunks, EXTENT_BYTES, |chunk| chunk)?;
    let end = found.iter().map(|request| request.offset + request.len).max().unwrap_or(0);
    // A profile at a scale is of a disk at that scale: its runs are drawn apart again.
    let apart = if is_generated { (DISK_BYTES_MIN / end.max(1)).max(1) } else { 1 };
    let run_bytes = RUN_CHUNKS * u64::from(EXTENT_BYTES);
    let mut all = found;
    for request in &mut all {
        request.offset = request.offset / run_bytes * run_bytes * apart + request.offset % run_bytes;
    }
    let first = warmup(all.len() as u64) as usize;
    let last = all.get(first..).unwrap_or_default().to_vec();
    let mut volumes = vec![Volume::Disk];
    for variant in VARIANTS {
        volumes.push(Volume::Cached(variant.cache(data_bytes)?));
    }
    let mut cases = Vec::new();
    for (requests, warmup) in [(all, first), (last, 0)] {
        let initial = before(&requests, EXTENT_BYTES);
        let load = Load {
            requests: Arc::new(requests),
            block_bytes: EXTENT_BYTES,
            outstanding: OUTSTANDING,
            warmup,
            settles: false,
        };
        let disk_bytes = DISK_BYTES_MIN.max(end * apart + run_bytes * apart);
        cases.extend(volumes.iter().map(|volume| {
            let plan = Plan {
                volume: *volume,
                disk: DISK,
                flash: FLASH,
                disk_bytes,
                block_bytes: EXTENT_BYTES,
                initial: initial.clone(),
                workers: 2,
            };
            (plan, load.clone())
        }));
    }
    Ok(cases)
}

/// What the text says of all traces together.
fn comparisons(lab: &Lab<'_>, tables: &[Table; 6]) -> Vec<Comparison> {
    let [iops, times, cold_iops, cold_times, ..] = tables;
    let titles = PUBLISHED.map(|(trace, ..)| lab.title_of(trace));
    let over = |table: &Table, skip: usize| {
        let lines = titles.iter().filter_map(|title| table.ours(title));
        Span::over(lines.flat_map(|line| line.iter().skip(skip)).filter_map(|cell| *cell))
    };
    let low = |span: Option<Span>| span.map(|span| Span::at(span.low));
    let high = |span: Option<Span>| span.map(|span| Span::at(span.high));
    let line = |what: &str, published, ours| Comparison { what: what.to_owned(), published, ours };
    let by = |line: &[Option<f64>]| {
        let (extent, weu) = (line.first().copied().flatten()?, line.get(1).copied().flatten()?);
        Some(100.0 * (1.0 - (100.0 + extent) / (100.0 + weu)))
    };
    let extents = Span::over(titles.iter().filter_map(|title| iops.ours(title)).filter_map(by));
    vec![
        line("WEU variants, warm: IOPS more by at least (%)", Span::at(75.0), low(over(iops, 1))),
        line("WEU variants, warm: read response time less by at least (%)", Span::at(41.0), low(over(times, 1))),
        line("Extents: IOPS less than WEU (ND, NC) (%)", Span::of(13.0, 22.0), extents),
        line("Cold, COS: IOPS more by up to (%)", Span::at(520.0), high(over(cold_iops, 1))),
        line("Cold, COS: read response time less by (%)", Span::of(2.0, 29.0), over(cold_times, 1)),
    ]
}
