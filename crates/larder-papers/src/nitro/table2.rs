//! Table 2 (§6.2) with a TPS origin: its tables, and the experiment that fills them by the model.
//!
//! The model is `larder_sim::whole`; other callers fill the tables with figures of their own.
//!
//! Requests are made sixteen at a time, as fast as they go, in place of the paper's trace "at an
//! accelerated speed to use ~95% of the system resources". Warm: the first 16 of 21 days are not
//! measured; cold: they are left out (§6.2). Caches are of 2% of the file system, in write-back.
//! The origin is five disks of 7,200 turns as RAID 5 (the paper: eleven). The drive is §5.4's,
//! page-mapped with TRIM and cut to the cache.
//!
//! It does not model NVRAM, which acknowledges the paper's writes. Here memory does, as long as
//! there is room.

use std::sync::{Mutex, PoisonError};

use super::variants::{
    EXTENT, EXTENT_BYTES, OF_FILE_SYSTEM, Variant, WEU, WEU_C, WEU_D, WEU_DC, cache_extents, how, warmup,
};
use crate::{Comparison, Lab, PaperReport, Span, Table};
use larder_sim::{
    cache::ReplayCache,
    origin::{self, OriginModel},
    report::plot::{Chart, Scale},
    setup::{Granularity, Options, Setup},
    whole::{ClientRequest, Clients, ReplayPace, Whole, drive::fitted, figures::TimedFigures, uncached::Uncached},
};
use larder_ssd::{kinds::FtlKind, profile::DriveProfile};

const VARIANTS: [&Variant; 5] = [&EXTENT, &WEU, &WEU_C, &WEU_D, &WEU_DC];
/// Requests under way.
pub const OUTSTANDING: usize = 16;
/// The least disk, as large as the paper's largest file system: a small one would have short seeks.
pub const DISK_BYTES_MIN: u64 = 512 << 30;
/// Chunks that profiles touch side by side.
pub const RUN_CHUNKS: u64 = 8;
const ORIGIN: &str = "raid5-7200";
const DRIVE: &str = "nitro-mlc";
const FTL: &str = "page-trim";
/// WEUs of a cache, about, and their sizes: those of `nitro-table2`, which runs the engine.
const WEUS: u64 = 64;
const WEU_BYTES: std::ops::RangeInclusive<u32> = 512 << 10..=2 << 20;

/// The paper's figures for TPS: of each trace, IOPS improved and response time reduced, in percent.
const PUBLISHED: [(&str, [f64; 5], [f64; 5]); 3] = [
    ("WebVM", [93.0, 113.0, 148.0, 198.0, 264.0], [39.0, 41.0, 49.0, 58.0, 64.0]),
    ("Homes", [90.0, 130.0, 175.0, 233.0, 287.0], [39.0, 42.0, 47.0, 49.0, 54.0]),
    ("Mail", [56.0, 75.0, 115.0, 122.0, 165.0], [41.0, 44.0, 51.0, 57.0, 61.0]),
];

/// The figures of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Reads and writes a second.
    pub iops: f64,
    /// The mean time of a read, in microseconds; none without reads.
    pub read_us: Option<f64>,
    /// Percent of the chunks read that hit; none without a cache.
    pub hit_percent: Option<f64>,
}

/// The tables in the making.
pub struct Table2 {
    tables: [Table; 6],
    bases: Vec<String>,
}

impl Default for Table2 {
    fn default() -> Self {
        let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
        let table = |title: &str, label: &str| Table::new(title, label, "Trace", &names);
        let (iops_label, times_label) = ("IOPS more than without a cache (%)", "Read response time less (%)");
        let tables = [
            table("Warm", iops_label),
            table("Warm", times_label),
            table("Cold", iops_label),
            table("Cold", times_label),
            table("Warm", "Read hit ratio (%)"),
            table("Cold", "Read hit ratio (%)"),
        ];
        Table2 { tables, bases: Vec::new() }
    }
}

impl Table2 {
    /// Adds a trace, warm or cold: without a cache, and with each of the variants, in their order.
    pub fn push(&mut self, title: &str, is_warm: bool, base: &Point, found: &[Point]) {
        let more = |point: &Point| Some(100.0 * (point.iops / base.iops - 1.0));
        let less = |point: &Point| Some(100.0 * (1.0 - point.read_us? / base.read_us?));
        let [warm_iops, warm_times, cold_iops, cold_times, warm_hits, cold_hits] = &mut self.tables;
        let (iops, times, hits) = match is_warm {
            true => (warm_iops, warm_times, warm_hits),
            false => (cold_iops, cold_times, cold_hits),
        };
        iops.push(title, found.iter().map(more));
        times.push(title, found.iter().map(less));
        hits.push(title, found.iter().map(|point| point.hit_percent));
        if is_warm {
            let read_ms = base.read_us.unwrap_or(f64::NAN) / 1000.0;
            self.bases.push(format!("{title} {:.0} IOPS and {read_ms:.1} ms a read", base.iops));
        }
    }

    /// Makes a report of them. `of_all` is true of any traces, and `of_profiles` of generated ones.
    pub fn report(mut self, lab: &Lab<'_>, of_all: &[&str], of_profiles: &[&str]) -> PaperReport {
        let [iops, times, ..] = &mut self.tables;
        for (trace, published_iops, published_times) in PUBLISHED {
            let title = lab.title_of(trace).to_owned();
            for ((variant, more), less) in VARIANTS.iter().zip(published_iops).zip(published_times) {
                iops.publish(&title, variant.name, more);
                times.publish(&title, variant.name, less);
            }
        }
        let comparisons = comparisons(lab, &self.tables);
        let subtitle = "Against five 7,200 rpm disks as RAID 5 without a cache; cache of 2% of the file system";
        let chart = |table: &Table| -> Chart {
            table.bars(format!("Nitro, {}", table.title().to_lowercase()), subtitle, Scale::Linear)
        };
        let charts = self.tables.iter().take(4).map(chart).collect();
        let base = format!("Without a cache, warm: {}.", self.bases.join("; "));
        let of_all: Vec<&str> = [OF_FILE_SYSTEM, &base].into_iter().chain(of_all.iter().copied()).collect();
        PaperReport { words: lab.words(&of_all, of_profiles), tables: self.tables.into(), comparisons, charts }
    }
}

/// Compares the text's claims on all traces together.
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
        line("Extents, COS: IOPS less than WEU (ND, NC) (%)", Span::of(13.0, 22.0), extents),
        line("Cold, COS: IOPS more by up to (%)", Span::at(520.0), high(over(cold_iops, 1))),
        line("Cold, COS: read response time less by (%)", Span::of(2.0, 29.0), over(cold_times, 1)),
    ]
}

/// One volume under one load.
struct Case<'a> {
    /// None: the disks alone.
    setup: Option<Setup>,
    requests: &'a [ClientRequest],
    warmup: u64,
    disk_bytes: u64,
    working_set: u64,
}

/// Runs it by the model.
pub(super) fn run(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let mut table = Table2::default();
    let mut drives = Vec::new();
    for at in 0..lab.workload_count() {
        let title = lab.workload(at)?.title().to_owned();
        let working_set = lab.survey(at, &how(EXTENT_BYTES))?.working_set_chunks;
        let extents = cache_extents(lab, at, 2.0)?;
        let (requests, disk_bytes) = requests(lab, at)?;
        let first = warmup(requests.len() as u64);
        let last = requests.get(first as usize..).unwrap_or_default();
        let mut setups = vec![None];
        for variant in VARIANTS {
            setups.push(Some(setup(variant, extents, working_set)?));
        }
        let loads = [(requests.as_slice(), first), (last, 0)];
        let cases: Vec<Case<'_>> = loads
            .into_iter()
            .flat_map(|(requests, warmup)| {
                setups.iter().map(move |setup| Case { setup: *setup, requests, warmup, disk_bytes, working_set })
            })
            .collect();
        let found = all(&cases, lab.threads())?;
        for (state, found) in found.chunks(setups.len()).enumerate() {
            let points: Vec<Point> = found.iter().map(|(point, _)| *point).collect();
            let Some((base, points)) = points.split_first() else { continue };
            table.push(&title, state == 0, base, points);
            if state == 0 {
                drives.push(shares(&title, found));
            }
        }
    }
    let drives = format!(
        "Warm, with each variant in order: the share of time at work of the drive's planes and the disks' arms, and \
         bytes programmed for each byte written. {}.",
        drives.join("; ")
    );
    let of_all = [
        "Time is that of the model: the drive is Nitro's (§5.4), cut to the cache, with its collection in the way; computing takes no \
         time. Extent (ND, NC) evicts single extents of 8 KiB, each in a slot of its own; a WEU is a 64th of the cache, 512 KiB at \
         least.",
        &drives,
    ];
    let of_profiles =
        ["A profile's reads and writes go by age and recency of addresses. The hit ratios below the times tell what \
                        the recordings' order would change: the more of them, the more the disk is spared."];
    Ok(table.report(lab, &of_all, &of_profiles))
}

fn setup(variant: &Variant, extents: u64, working_set: u64) -> Result<Setup, String> {
    let setup = variant.setup(extents, working_set)?;
    if variant.granularity == Granularity::Extent {
        return Ok(setup);
    }
    let weu = (extents * u64::from(EXTENT_BYTES) / WEUS).next_power_of_two().min(1 << 30) as u32;
    let weu_bytes = Some(weu.clamp(*WEU_BYTES.start(), *WEU_BYTES.end()));
    Ok(Setup { options: Options { weu_bytes, ..setup.options }, ..setup })
}

/// Returns the requests of a trace, and the size of their disk.
///
/// A profile at a scale is of a disk at that scale: its runs are drawn apart again.
fn requests(lab: &Lab<'_>, at: usize) -> Result<(Vec<ClientRequest>, u64), String> {
    let mut chunks = lab.requests(at, &how(EXTENT_BYTES))?.collect::<Result<Vec<_>, _>>()?;
    let end = chunks.iter().map(|chunk| chunk.lba + chunk.chunk_count).max().unwrap_or(0) * u64::from(EXTENT_BYTES);
    let apart = if lab.has_generated() { (DISK_BYTES_MIN / end.max(1)).max(1) } else { 1 };
    for chunk in &mut chunks {
        chunk.lba = chunk.lba / RUN_CHUNKS * RUN_CHUNKS * apart + chunk.lba % RUN_CHUNKS;
    }
    let run_bytes = RUN_CHUNKS * u64::from(EXTENT_BYTES);
    let disk_bytes = DISK_BYTES_MIN.max((end + run_bytes) * apart);
    let clients = Clients::new(chunks.into_iter().map(Ok), EXTENT_BYTES);
    Ok((clients.collect::<Result<_, _>>().map_err(|error| error.to_string())?, disk_bytes))
}

/// The result of a case, and the timed figures of the drive beneath it.
type Found = (Point, Option<TimedFigures>);

fn all(cases: &[Case<'_>], threads: usize) -> Result<Vec<Found>, String> {
    let next = Mutex::new(cases.iter().enumerate());
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, cases.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let taken = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((at, case)) = taken else { return };
                    let one = one(case);
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((at, one));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, one)| one).collect()
}

fn one(case: &Case<'_>) -> Result<Found, String> {
    let refused = |what: &dyn std::fmt::Display| what.to_string();
    let named = origin::profile::OriginProfile::named(ORIGIN).ok_or("there is no such origin")?;
    let origin = OriginModel::new(&named, case.disk_bytes).map_err(|error| refused(&error))?;
    let mut whole = match &case.setup {
        None => Whole::new(Box::new(Uncached::new(EXTENT_BYTES)), None, origin),
        Some(setup) => {
            let cache: Box<dyn ReplayCache> = setup.build(case.working_set)?.cache;
            let profile = DriveProfile::named(DRIVE).ok_or("there is no such drive")?;
            let kind = FtlKind::named(FTL).ok_or("there is no such layer")?;
            let (drive, profile) = fitted(&profile, kind, cache.flash_span_bytes()).map_err(|error| refused(&error))?;
            Whole::new(cache, Some((drive, &profile)), origin)
        }
    }
    .map_err(|error| refused(&error))?;
    let requests = case.requests.iter().cloned().map(Ok);
    let figures = whole.run(requests, ReplayPace::Full(OUTSTANDING), case.warmup).map_err(|error| refused(&error))?;
    if figures.reads.count() + figures.writes.count() == 0 {
        return Err("nothing is left to measure: choose a larger scale".to_owned());
    }
    let point = Point {
        iops: figures.iops(),
        read_us: (figures.reads.count() > 0).then(|| figures.reads.mean_ns() / 1000.0),
        hit_percent: case.setup.map(|_| 100.0 * figures.tally.read_hit_ratio()),
    };
    Ok((point, whole.drive().is_some().then_some(figures)))
}

fn shares(title: &str, found: &[Found]) -> String {
    let share = |figures: &TimedFigures| {
        let amplified = figures.write_amplification.unwrap_or(1.0);
        let drive = 100.0 * figures.drive_utilisation.unwrap_or(0.0);
        format!("{drive:.0}% and {:.0}%, {amplified:.2}", 100.0 * figures.origin_utilisation)
    };
    let all: Vec<String> = found.iter().filter_map(|(_, drive)| drive.as_ref()).map(share).collect();
    format!("{title}: {}", all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_percent_of_what() {
        let mut table = Table2::default();
        let point = |iops, read_us| Point { iops, read_us: Some(read_us), hit_percent: Some(50.0) };
        table.push("WebVM", true, &point(100.0, 2000.0), &[point(300.0, 500.0); 5]);
        let [iops, times, cold, _, hits, _] = &table.tables;
        assert_eq!(iops.ours("WebVM").expect("a line")[0], Some(200.0));
        assert_eq!(times.ours("WebVM").expect("a line")[4], Some(75.0));
        assert_eq!((cold.ours("WebVM"), hits.ours("WebVM").expect("a line")[1]), (None, Some(50.0)));
        assert_eq!(table.bases, ["WebVM 100 IOPS and 2.0 ms a read"]);
    }
}
