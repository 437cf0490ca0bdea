//! Figure 11 (Exp#7): throughput by I/O deduplication ratio, and by write-to-read ratio.
//!
//! One request at a time, since both systems of the paper are single-threaded there. The first
//! quarter warms the cache up.
//!
//! It does not choose the ratios by the paper: its text has only 7:3, 1:9 and 50%, and ranges.

use super::super::{
    LiveCase, Means,
    load::{Load, LoadFigures, before},
    rig::{Plan, Volume},
};
use super::setting::{CHUNK_BYTES, DISK, DISK_BYTES, FLASH, cache_bytes, synthetic, variants};
use crate::{Comparison, Lab, PaperReport, Span, Table};
use larder_sim::report::plot::Scale;
use std::sync::Arc;

/// Requests of the paper's trace: 5 GiB.
const REQUESTS: f64 = 163_840.0;
/// I/O deduplication ratios in percent, with seven writes to three reads.
const DEDUPS: [u32; 5] = [10, 30, 50, 70, 90];
/// Writes in ten requests; half of the writes are duplicates.
const WRITES: [u32; 5] = [1, 3, 5, 7, 9];
const MIB_LABEL: &str = "Throughput (MiB/s)";

/// Runs the experiment.
pub fn run(_: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let by_dedup = DEDUPS.map(|percent| (f64::from(percent) / 100.0, 7.0 / 3.0));
    let by_writes = WRITES.map(|writes| (0.5, f64::from(writes) / f64::from(10 - writes)));
    let variants = variants();
    let points: Vec<(f64, f64)> = by_dedup.into_iter().chain(by_writes).collect();
    let mut cases = Vec::new();
    for point in &points {
        cases.extend(cases_of(means.scale, *point)?);
    }
    let found = means.cases(&cases)?;
    let at = |point: usize, variant: usize| found.get(point * (variants.len() + 1) + variant);
    let columns: [(&str, &str, usize, Vec<String>); 2] = [
        (
            "Seven writes to three reads",
            "I/O deduplication ratio (%)",
            0,
            DEDUPS.map(|percent| percent.to_string()).into(),
        ),
        (
            "I/O deduplication ratio 50%",
            "Writes to reads",
            DEDUPS.len(),
            WRITES.map(|writes| format!("{writes}:{}", 10 - writes)).into(),
        ),
    ];
    let (mut tables, mut charts) = (Vec::new(), Vec::new());
    for (title, x_label, first, columns) in columns {
        let mut throughput = Table::new(title, MIB_LABEL, x_label, &columns);
        let mut hits = Table::new(title, "Read hit ratio (%)", x_label, &columns);
        let names = std::iter::once("no cache").chain(variants.iter().map(|variant| variant.name));
        for (variant, name) in names.enumerate() {
            let line = |of: fn(&LoadFigures) -> Option<f64>| -> Vec<Option<f64>> {
                (0..columns.len()).map(|column| at(first + column, variant).and_then(of)).collect()
            };
            throughput.push(name, line(|figures| Some(figures.mib_per_s())));
            if variant > 0 {
                hits.push(name, line(LoadFigures::hit_percent));
            }
        }
        let subtitle = "One request at a time; caches of half of the working set before a 7,200 rpm disk";
        charts.push(throughput.bars(
            format!("AustereCache: throughput, {}", title.to_lowercase()),
            subtitle,
            Scale::Linear,
        ));
        tables.extend([throughput, hits]);
    }
    let comparisons = comparisons(&tables);
    let words = vec![
        "AustereCache's write is over when the flash has it; Larder's when memory has it, in whole segments on its way to the flash. \
         So writes cost less here in all designs, until the cache is full of dirty data and waits for the disk."
            .to_owned(),
        "The design lru and arc, without any reduction, and nitro are not in the paper's figure.".to_owned(),
    ];
    Ok(PaperReport { tables, comparisons, words, charts })
}

fn cases_of(scale: f64, (dedup, write_to_read): (f64, f64)) -> Result<Vec<LiveCase>, String> {
    let requests = synthetic(scale, dedup, write_to_read, (REQUESTS * scale) as u64)?;
    let warmup = requests.len() / 4;
    let initial = before(&requests, CHUNK_BYTES);
    let load = Load { requests: Arc::new(requests), block_bytes: CHUNK_BYTES, outstanding: 1, warmup, drains: false };
    let mut volumes = vec![Volume::Disk];
    for variant in variants() {
        volumes.push(Volume::Cached(variant.cache(cache_bytes(scale))?));
    }
    let plan = |volume| Plan {
        volume,
        disk: DISK,
        flash: FLASH,
        disk_bytes: DISK_BYTES,
        block_bytes: CHUNK_BYTES,
        initial: initial.clone(),
        workers: 1,
    };
    Ok(volumes.into_iter().map(|volume| (plan(volume), load.clone())).collect())
}

fn comparisons(tables: &[Table]) -> Vec<Comparison> {
    let throughputs = || tables.iter().step_by(2);
    // All points but one, or that one.
    let more = |a: &str, b: &str, in_column: Option<bool>| {
        let cells = throughputs().enumerate().flat_map(|(table, of)| {
            let lines = of.ours(a).zip(of.ours(b)).into_iter().flat_map(|(a, b)| a.iter().zip(b));
            lines.enumerate().filter_map(move |(column, (a, b))| {
                let is_it = table == 1 && column == 0;
                (in_column.is_none_or(|wanted| wanted == is_it))
                    .then(|| a.zip(*b).map(|(a, b)| 100.0 * (a / b - 1.0)))
                    .flatten()
            })
        });
        Span::over(cells)
    };
    let line = |what: &str, published, ours| Comparison { what: what.to_owned(), published, ours };
    vec![
        line("AC-D over CD-LRU-D, but at 1:9 (%)", Span::of(18.5, 86.6), more("AC-D", "CD-LRU-D", Some(false))),
        line("AC-D over CD-LRU-D at 1:9 (%)", Span::at(-2.3), more("AC-D", "CD-LRU-D", Some(true))),
        line("AC-D over CD-ARC-D (%)", Span::of(-24.5, -1.1), more("AC-D", "CD-ARC-D", None)),
        line("AC-DC over CD-ARC-DC (%)", Span::of(6.8, 99.6), more("AC-DC", "CD-ARC-DC", None)),
    ]
}
