//! Figure 13 (Exp#9): throughput by the number of threads.
//!
//! Each thread makes the requests of its own addresses, one at a time, on the one shared cache. So
//! each read has one right answer, and is verified. The first half of the trace warms the cache, on
//! one thread.
//!
//! It does not add threads of the engine's own: its two workers stay two.

use super::super::{
    Means,
    load::{Load, Making, before},
    rig::{Plan, Rig, Volume},
};
use super::setting::{CHUNK_BYTES, DISK, DISK_BYTES, FLASH, LiveScheme, cache_bytes, synthetic, variants};
use crate::{Comparison, Lab, PaperReport, Span, Table, request::PaperRequest};
use larder_device::driver::block_on;
use larder_sim::report::plot::Scale;
use std::{sync::Arc, thread};

const THREADS: [usize; 4] = [1, 2, 4, 8];
/// I/O deduplication ratios in percent, with the paper's gain of the most threads over one.
const DEDUPS: [(u32, f64); 2] = [(50, 2.08), (80, 2.51)];
/// Requests of a run at a scale of 1, half of them to warm up: a disk's time is real here.
const REQUESTS: f64 = 6144.0;
/// Requests under way during the warm-up.
const WARMING: usize = 8;

/// Runs the experiment.
pub fn run(_: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let variants = variants();
    let (mut tables, mut charts, mut comparisons) = (Vec::new(), Vec::new(), Vec::new());
    for (dedup, published) in DEDUPS {
        let title = format!("I/O deduplication ratio {dedup}%");
        let mut table = Table::new(&title, "Throughput (MiB/s)", "Threads", THREADS);
        let requests =
            synthetic(means.scale, f64::from(dedup) / 100.0, 7.0 / 3.0, (REQUESTS * means.scale).max(64.0) as u64)?;
        let mut gains = Vec::new();
        for variant in &variants {
            let on = |threads: &usize| throughput(variant, &requests, *threads, means);
            let line = means.each(&THREADS, on)?;
            if let (Some(one), Some(most)) = (line.first(), line.iter().skip(1).copied().reduce(f64::max)) {
                gains.push((variant.name, most / one));
            }
            table.push(variant.name, line.into_iter().map(Some));
        }
        let mut say = |name: &str, ours| {
            let what = format!("{title}, {name}: throughput of many threads over one");
            comparisons.push(Comparison { what, published: Span::at(published), ours });
        };
        say("AC-DC", gains.iter().find(|(name, _)| *name == "AC-DC").map(|(_, gain)| Span::at(*gain)));
        say("the engine's designs", Span::over(gains.iter().map(|(_, gain)| *gain)));
        let subtitle = "Seven writes to three reads; caches of half of the working set before a 7,200 rpm disk";
        charts.push(table.lines(format!("Throughput by threads, {title}"), subtitle, Scale::Log, Scale::Linear));
        tables.push(table);
    }
    let words = vec![
        format!(
            "This machine has {} processors, which the threads share with the engine's own. Beyond that they gain by \
             waiting side by side, for a disk with a queue of requests takes the nearest first.",
            thread::available_parallelism().map_or(1, |processors| processors.get())
        ),
        "The paper's requests lock a bucket in either index. So do ours, some buckets at a time, and reads go on \
         beside each other. For a write the engine decides under one lock of the whole cache, since its log has one \
         order. The write's changes in AustereCache's LBA index follow under its bucket's lock alone, if there is \
         room without an eviction. A reader or writer of a block of metadata slots has that block to itself \
         meanwhile. The paper has the number of threads at which its gain is largest in its figure only."
            .to_owned(),
    ];
    Ok(PaperReport { tables, comparisons, words, charts })
}

/// Returns the MiB a second of so many threads.
fn throughput(variant: &LiveScheme, requests: &[PaperRequest], threads: usize, means: &Means) -> Result<f64, String> {
    let volume = Volume::Cached(variant.cache(cache_bytes(means.scale))?);
    let initial = before(requests, CHUNK_BYTES);
    let (disk, flash, disk_bytes) = (DISK, FLASH, DISK_BYTES);
    let plan = Plan { volume, disk, flash, disk_bytes, block_bytes: CHUNK_BYTES, initial, workers: 2 };
    let rig = Rig::new(&plan, means.time)?;
    let made = make(&rig, requests, threads, means);
    rig.end();
    made
}

fn make(rig: &Rig, requests: &[PaperRequest], threads: usize, means: &Means) -> Result<f64, String> {
    let warmup = requests.len() / 2;
    let mut parts: Vec<Vec<PaperRequest>> = vec![Vec::new(); threads];
    for request in requests {
        let chunk = request.offset / u64::from(CHUNK_BYTES);
        if let Some(part) = parts.get_mut(chunk as usize % threads) {
            part.push(request.clone());
        }
    }
    let first_number = requests.get(warmup).map_or(0, |request| request.number);
    let mut makings = Vec::new();
    for part in parts {
        let (first, then): (Vec<PaperRequest>, Vec<PaperRequest>) =
            part.into_iter().partition(|request| request.number < first_number);
        let mut making = Making::new(rig, CHUNK_BYTES);
        block_on(making.all(None, &load(first, WARMING), &means.ending))?;
        makings.push((making, load(then, 1)));
    }
    let began = rig.runtime().now();
    let bytes = thread::scope(|scope| {
        let made: Vec<_> = makings
            .iter_mut()
            .map(|(making, load)| scope.spawn(|| block_on(making.all(None, load, &means.ending))))
            .collect();
        let mut bytes = 0;
        for made in made {
            bytes += made.join().map_err(|_| "a thread of the load panicked".to_owned())??.bytes;
        }
        Ok::<u64, String>(bytes)
    })?;
    let elapsed = rig.runtime().now().saturating_sub(began);
    Ok(bytes as f64 / f64::from(1 << 20) / elapsed.as_secs_f64().max(1e-9))
}

fn load(requests: Vec<PaperRequest>, outstanding: usize) -> Load {
    Load { requests: Arc::new(requests), block_bytes: CHUNK_BYTES, outstanding, warmup: 0, drains: false }
}
