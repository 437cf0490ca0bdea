//! Figure 7 (§6.2, "Sensitivity analysis"): read response time by working set and deduplication.
//!
//! Each point of the grid is a cache of its own. The whole working set is read once, then as many
//! random reads are made. Then as many again are measured, within bounds, one at a time. The
//! working set is spread over a disk as large as a real one, so that the disk's own buffer plays no
//! part.
//!
//! It does not write, as the paper.

use super::super::{
    LiveCase, Means,
    load::{Load, before, request},
    rig::{Plan, Volume},
};
use super::variants::{DISK, FLASH, LiveVariant, WEU_D, WEU_DC};
use crate::{Comparison, Lab, PaperReport, Span, Table, nitro::EXTENT_BYTES, request::PaperRequest};
use larder_sim::report::plot::Scale;
use larder_trace::generate::{RandomReads, RandomReadsConfig};
use std::sync::Arc;

/// Bytes of the paper's cache, in its example.
const CACHE_BYTES: f64 = 16.0 * (1_u64 << 30) as f64;
/// Working set over cache.
const SIZES: [f64; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
/// Extents for each content.
const RATIOS: [f64; 5] = [1.0, 2.0, 3.0, 5.0, 10.0];
const VARIANTS: [&LiveVariant; 2] = [&WEU_D, &WEU_DC];
/// Measured reads of a point.
const READS: std::ops::RangeInclusive<usize> = 500..=4000;
/// The disk of the spread working set.
const DISK_BYTES: u64 = 1 << 40;
const SEED: u64 = 7;

/// Runs the experiment.
pub fn run(_: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let cache_bytes = (CACHE_BYTES * means.scale) as u64;
    let base = means.cases(&[point(Volume::Flash, cache_bytes, 1.0, 1.0)?])?;
    let base_us = base.first().and_then(|figures| figures.reads.mean_us()).unwrap_or(f64::NAN);
    let mut grid = Vec::new();
    for variant in VARIANTS {
        let volume = Volume::Cached(variant.cache(cache_bytes)?);
        grid.extend(RATIOS.iter().flat_map(|ratio| SIZES.iter().map(move |size| (volume, *size, *ratio))));
    }
    let found = means.each(&grid, |(volume, size, ratio)| {
        let case = point(*volume, cache_bytes, *size, *ratio)?;
        super::super::load::on_rig(&case.0, means.time, &case.1, &means.ending)
    })?;
    let points = RATIOS.len() * SIZES.len();
    let (mut tables, mut charts) = (Vec::new(), Vec::new());
    for (variant, found) in VARIANTS.iter().zip(found.chunks(points)) {
        let mut times = Table::new(
            variant.name,
            "Read response time (SSD: 1)",
            "Working set over cache",
            SIZES.map(|size| format!("{size}x")),
        );
        let mut hits = Table::new(
            variant.name,
            "Read hit ratio (%)",
            "Working set over cache",
            SIZES.map(|size| format!("{size}x")),
        );
        for (ratio, line) in RATIOS.iter().zip(found.chunks(SIZES.len())) {
            let name = format!("deduplication {ratio}x");
            times.push(&name, line.iter().map(|figures| figures.reads.mean_us().map(|us| us / base_us)));
            hits.push(&name, line.iter().map(|figures| figures.hit_percent()));
        }
        let subtitle = "Random reads, one at a time; before a RAID 5 of 7,200 rpm disks";
        charts.push(times.lines(
            format!("Nitro {}: read response time", variant.name),
            subtitle,
            Scale::Linear,
            Scale::Log,
        ));
        tables.extend([times, hits]);
    }
    let comparisons = comparisons(&tables);
    let words = vec![
        format!(
            "An SSD alone, with all data on it, takes {base_us:.0} microseconds a read. The cache has {} MiB, in which the \
             indices are not counted.",
            cache_bytes >> 20
        ),
        "The paper's figure is of its COS system and a contour plot without numbers; its text has the ends of the jump. A miss \
         here is one read of a disk, 100 times a hit; the paper's misses cost more than 8 times a hit, for which its \
         scale ends there. So the same hit ratio is a larger factor here, and only where everything fits is the response \
         time the SSD's."
            .to_owned(),
        "An engine's cache keeps some WEUs free and has indices of bounded size: four mappings for each extent that the flash \
         holds raw, at most. A working set of more extents than that does not fit, however often its contents repeat."
            .to_owned(),
    ];
    Ok(PaperReport { tables, comparisons, words, charts })
}

fn point(volume: Volume, cache_bytes: u64, size: f64, ratio: f64) -> Result<LiveCase, String> {
    let extent = u64::from(EXTENT_BYTES);
    let chunks = ((cache_bytes as f64 * size) as u64 / extent).max(1);
    let (random, measured) = (chunks as usize, (chunks as usize).clamp(*READS.start(), *READS.end()));
    let config = RandomReadsConfig {
        cache_bytes,
        working_set_ratio: size,
        dedup_ratio: ratio,
        chunk_bytes: EXTENT_BYTES,
        requests: (random + measured) as u64,
        seed: SEED,
        ..RandomReadsConfig::default()
    };
    let apart = DISK_BYTES / extent / chunks;
    let warmup = chunks as usize + random;
    let spread = |mut request: PaperRequest| {
        request.offset *= apart;
        request
    };
    let records = RandomReads::new(config).map_err(|error| error.to_string())?;
    let mut requests: Vec<PaperRequest> = records.each().map(|record| spread(request(&record))).collect();
    for record in records {
        requests.push(spread(request(&record.map_err(|error| error.to_string())?)));
    }
    let initial = before(&requests, EXTENT_BYTES);
    let plan = Plan {
        volume,
        disk: DISK,
        flash: FLASH,
        disk_bytes: DISK_BYTES,
        block_bytes: EXTENT_BYTES,
        initial,
        workers: 1,
    };
    Ok((plan, Load { requests: Arc::new(requests), block_bytes: EXTENT_BYTES, outstanding: 1, warmup, drains: false }))
}

fn comparisons(tables: &[Table]) -> Vec<Comparison> {
    let cells = |at: usize, sizes: std::ops::RangeInclusive<f64>, ratios: std::ops::RangeInclusive<f64>| {
        let table = tables.get(2 * at)?;
        let lines = RATIOS.iter().filter(move |ratio| ratios.contains(ratio));
        let lines = lines.filter_map(|ratio| table.ours(&format!("deduplication {ratio}x")));
        let cells = lines.flat_map(|line| SIZES.iter().zip(line)).filter(|(size, _)| sizes.contains(size));
        Span::over(cells.filter_map(|(_, cell)| *cell))
    };
    let most = |span: Option<Span>| span.map(|span| Span::at(span.high));
    let mut all = Vec::new();
    for (at, variant) in VARIANTS.iter().enumerate() {
        let name = variant.name;
        let mut say = |what: &str, published, ours| {
            all.push(Comparison { what: format!("{name}: {what}"), published: Span::at(published), ours });
        };
        say("all fits (1x): close to the SSD's", 1.0, cells(at, 1.0..=1.0, 1.0..=10.0));
        say("above 5x deduplication, 5x working set: close to the SSD's", 1.0, cells(at, 5.0..=5.0, 10.0..=10.0));
        say("where it is high, above", 8.0, most(cells(at, 1.0..=10.0, 1.0..=10.0)));
    }
    all
}
