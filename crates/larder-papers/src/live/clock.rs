//! A check that the virtual clock gives the same ratios as the real one.
//!
//! One load runs on both, through each design of the engine.
//!
//! Role: experiments on the virtual clock cost no waiting, and count no computing. The check shows
//! that this keeps the ratios between caches. It makes the same requests on the same rigs, first on
//! a [`Time::Virtual`] rig and then on a [`Time::Real`] one. Both have their table.
//!
//! It does not belong to a paper; there are no published figures of it.

use super::{
    Clocks, LiveCase, LiveRun, Means, Source,
    load::{Load, LoadFigures, before, on_rig, request},
    rig::{CacheOf, Plan, Time, Volume},
};
use crate::{Comparison, Heading, Lab, PaperReport, Span, Table, request::PaperRequest};
use larder_device::throttled::Profile;
use larder_engine::designs::ENGINE_DESIGNS;
use larder_sim::report::plot::Scale;
use larder_trace::generate::{ZipfConfig, ZipfTrace};
use std::sync::Arc;

/// The check.
pub static LIVE: &[LiveRun] = &[LiveRun {
    heading: Heading {
        name: "clock",
        paper: "Larder",
        figure: "its own check",
        about: "the same load on the virtual and on the real clock, through each design",
    },
    source: Source::Made {
        name: "Zipf",
        about: "requests of 4 KiB by Zipf's law, three writes to seven reads, half of the writes duplicates",
        scale: 1.0,
    },
    clocks: Clocks::RealOnly("it compares that clock with the other"),
    run,
}];

const CHUNK_BYTES: u32 = 4096;
/// Requests at a scale of 1, a third of them to warm up.
const REQUESTS: f64 = 3000.0;
const WORKING_SET_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 4 << 20;
/// The size of its disk.
const DISK_BYTES: u64 = 64 << 30;
const OUTSTANDING: usize = 8;

fn run(_: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let requests = Arc::new(requests(means.scale)?);
    let load = Load {
        block_bytes: CHUNK_BYTES,
        outstanding: OUTSTANDING,
        warmup: requests.len() / 3,
        drains: false,
        requests: requests.clone(),
    };
    let plan = Plan {
        volume: Volume::Disk,
        disk: Profile::Hdd7200,
        flash: Profile::SataSsd,
        disk_bytes: DISK_BYTES,
        block_bytes: CHUNK_BYTES,
        initial: before(&requests, CHUNK_BYTES),
        workers: 2,
    };
    let mut names = vec!["no cache"];
    let mut cases: Vec<LiveCase> = vec![(plan.clone(), load.clone())];
    for design in ENGINE_DESIGNS {
        names.push(design.name);
        let volume = Volume::Cached(CacheOf::named(design.name, CHUNK_BYTES, CACHE_BYTES)?);
        cases.push((Plan { volume, ..plan.clone() }, load.clone()));
    }
    let on = |time| means.each(&cases, |(plan, load)| on_rig(plan, time, load, &means.ending));
    Ok(report(&names, &on(Time::Virtual)?, &on(Time::Real)?))
}

fn requests(scale: f64) -> Result<Vec<PaperRequest>, String> {
    let config = ZipfConfig {
        storage_bytes: DISK_BYTES,
        working_set_bytes: WORKING_SET_BYTES,
        chunk_bytes: CHUNK_BYTES,
        requests: (REQUESTS * scale).round().max(30.0) as u64,
        write_to_read: 3.0 / 7.0,
        seed: 3,
        ..ZipfConfig::default()
    };
    let trace = ZipfTrace::new(config).map_err(|error| error.to_string())?;
    let requests: Result<_, _> = trace.map(|record| record.map(|record| request(&record))).collect();
    requests.map_err(|error| error.to_string())
}

/// The figure without a ratio of its own.
///
/// A write in write-back ends in memory, which takes no time on the virtual clock. It has a part in
/// one among all.
const WRITES: &str = "Write response time (us)";

/// A figure of a load.
type ClockFigure = (&'static str, fn(&LoadFigures) -> f64);

const FIGURES: [ClockFigure; 4] = [
    ("IOPS", LoadFigures::iops),
    ("Response time of all (us)", LoadFigures::mean_us),
    ("Read response time (us)", |figures| figures.reads.mean_us().unwrap_or(f64::NAN)),
    (WRITES, |figures| figures.writes.mean_us().unwrap_or(f64::NAN)),
];

fn report(names: &[&'static str], on_virtual: &[LoadFigures], on_real: &[LoadFigures]) -> PaperReport {
    let mut report = PaperReport::default();
    for (label, of) in FIGURES {
        let mut absolute = Table::new("As measured", label, "Cache", names);
        let mut ratios = Table::new("Over no cache", label, "Cache", names);
        let mut of_all = Vec::new();
        for (clock, found) in [("virtual clock", on_virtual), ("real clock", on_real)] {
            let base = found.first().map_or(f64::NAN, of);
            let line: Vec<f64> = found.iter().map(|figures| of(figures) / base).collect();
            absolute.push(clock, found.iter().map(|figures| Some(of(figures))));
            ratios.push(clock, line.iter().map(|ratio| Some(*ratio)));
            of_all.push(line);
        }
        if let [on_virtual, on_real] = of_all.as_slice()
            && label != WRITES
        {
            let off = on_virtual.iter().zip(on_real).map(|(a, b)| b / a);
            let what = format!("{label}: ratio to no cache, real clock over virtual (1: the same)");
            report.comparisons.push(Comparison { what, published: Span::at(1.0), ours: Span::over(off) });
        }
        report.tables.push(absolute);
        if label != WRITES {
            let subtitle = "The same requests on the same devices; real clock beside virtual";
            report.charts.push(ratios.bars(format!("{label}, over no cache"), subtitle, Scale::Linear));
            report.tables.push(ratios);
        }
    }
    report.words = vec![
        "If the disk decides, both clocks agree. They part if a request is over in tens of microseconds. A write in \
         write-back is over when memory has it, and the microseconds that it computes are the real clock's alone. \
         The real clock gives figures of such times, and the experiments that compare them are on it. If one on the \
         virtual clock has a column of them, that is the waiting for devices. Nothing of this is published; 1 is the \
         figure of clocks that agree."
            .to_owned(),
    ];
    report
}
