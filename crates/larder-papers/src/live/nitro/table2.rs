//! Table 2 (§6.2) with a TPS origin: IOPS and read response time of five variants.
//!
//! They stand against no cache, warm and cold.
//!
//! Requests are made sixteen at a time, as fast as they go. This replaces the paper's trace "at an
//! accelerated speed to use ~95% of the system resources". Warm: the first 16 of 21 days are not
//! measured; cold: they are left out (§6.2). Caches have 2% of the file system, in write-back.
//!
//! It does not model NVRAM, which acknowledges the paper's writes. Here memory does, and a power
//! loss takes it: the flash has the writes with the next FLUSH, or within a second.

use super::super::{
    LiveCase, Means,
    load::{Load, LoadFigures, before, requests},
    rig::{Plan, Volume},
};
use super::variants::{DISK, EXTENT, FLASH, LiveVariant, WEU, WEU_C, WEU_D, WEU_DC};
use crate::{
    Lab, PaperReport,
    nitro::{
        EXTENT_BYTES, cache_extents, how,
        table2::{DISK_BYTES_MIN, OUTSTANDING, Point, RUN_CHUNKS, Table2},
        warmup,
    },
};
use std::sync::Arc;

const VARIANTS: [&LiveVariant; 5] = [&EXTENT, &WEU, &WEU_C, &WEU_D, &WEU_DC];

/// Runs the experiment.
pub fn run(lab: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let mut table = Table2::default();
    for at in 0..lab.workload_count() {
        let title = lab.workload(at)?.title().to_owned();
        let cases = cases(lab, at)?;
        let found = means.cases(&cases)?;
        for (state, found) in found.chunks(VARIANTS.len() + 1).enumerate() {
            let points: Vec<Point> = found.iter().map(point).collect();
            let Some((base, points)) = points.split_first() else { continue };
            table.push(&title, state == 0, base, points);
        }
    }
    let of_all =
        ["Extent (ND, NC) is the design lru, the others are nitro; a WEU is a 64th of the cache, 512 KiB at least. \
         The paper lays the worse times of its extents to small overwrites inside its SSD. The SSD here has the same \
         time for any write and collects no garbage, so that part cannot show. The other side of WEUs shows: the \
         slot of an overwritten extent is free at once. An overwritten record lies in its WEU until the WEU goes, \
         and the dirty data in that goes to the disk. `nitro-table2-modelled` has the same from the model of time, \
         with the SSD's collection in it."];
    let of_profiles = [
        "A profile's reads and writes go by age and recency of addresses. The hit ratios below the times tell what the \
         recordings' order would change: the more of them, the more the disk is spared.",
    ];
    Ok(table.report(lab, &of_all, &of_profiles))
}

fn point(figures: &LoadFigures) -> Point {
    Point { iops: figures.iops(), read_us: figures.reads.mean_us(), hit_percent: figures.hit_percent() }
}

/// Returns the cases: warm, without a cache and with each; then cold.
fn cases(lab: &mut Lab<'_>, at: usize) -> Result<Vec<LiveCase>, String> {
    let how = how(EXTENT_BYTES);
    let data_bytes = cache_extents(lab, at, 2.0)? * u64::from(EXTENT_BYTES);
    let chunks = lab.requests(at, &how)?;
    let is_generated = lab.has_generated();
    let found = requests(chunks, EXTENT_BYTES, |chunk| chunk)?;
    let end = found.iter().map(|request| request.offset + request.len).max().unwrap_or(0);
    // A scaled profile belongs to a scaled disk, so its runs are drawn apart again.
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
            drains: false,
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
