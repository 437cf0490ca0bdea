//! (o) The cost of each design's decisions on recordings, without any I/O.
//!
//! It has nanoseconds of processor time a request, and bytes allocated for each mapped chunk. Both
//! are means over the recordings in `shared/traces` beside the checkout. The flash is a tenth of
//! the working set, in chunks of 4 KiB; writes go through. [`driven`](crate::driven) asks the
//! design. A pass begins with an empty cache. Metadata slots on flash are not counted.
//!
//! It leaves out trims and flushes, and compresses nothing.

use crate::{
    alloc::Live,
    driven::{CHUNK_BYTES, Driven, MeasuredFlash, Request, region},
    measure::{OneCore, Res, median, thread_cpu_time},
    options::Options,
    report::{Aim, Row},
};
use larder_core::{Fingerprint, Lba};
use larder_device::rng::mix64;
use larder_engine::designs::{ENGINE_DESIGNS, EngineDesign};
use larder_trace::{Op, ReaderOptions, chunks};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// The design with an aim, in nanoseconds a request.
const AIMED: (&str, f64) = ("larder", 400.0);
/// Chunks of the working set for each one of the flash.
const FLASH_SHARE: u64 = 10;
/// Timed passes.
const PASSES: usize = 3;

/// A recording in memory.
struct Recording {
    requests: Vec<Request>,
    flash: MeasuredFlash,
}

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let paths = paths();
    if paths.is_empty() {
        return Ok(vec![Row::without_value("o", "skipped: no recording in shared/traces beside the checkout")]);
    }
    let recordings: Vec<Recording> = paths.iter().map(|path| recording(path)).collect::<Res<_>>()?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let mut rows = Vec::new();
    for design in ENGINE_DESIGNS {
        let (mut nanoseconds, mut hits, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for recording in &recordings {
            let (ratio, for_each) = counted(design, recording)?;
            hits.push(100.0 * ratio);
            bytes.push(for_each);
            let passes = if bench.quick { 1 } else { PASSES };
            let times: Vec<f64> = (0..passes).map(|_| timed(design, recording)).collect::<Res<_>>()?;
            nanoseconds.push(median(times));
        }
        let (name, count) = (design.name, recordings.len());
        let what = format!(
            "decisions of {name}, mean of {count} recordings: ns a request, {:.1}% of the reads hit",
            mean(&hits)
        );
        let (id, time) = (format!("o.{name}.time"), mean(&nanoseconds));
        rows.push(match name == AIMED.0 {
            true => Row::aimed(&id, what, time, Aim::AtMost(AIMED.1)),
            false => Row::told(&id, what, time),
        });
        let what = format!("RAM of {name}, mean of {count} recordings: bytes a mapped chunk");
        rows.push(Row::told(&format!("o.{name}.ram"), what, mean(&bytes)));
    }
    Ok(rows)
}

/// Returns the recordings beside the checkout, by name.
fn paths() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces"));
    let Some(entries) = folders.find_map(|folder| folder.read_dir().ok()) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".trace.zst"));
    paths.sort();
    paths
}

/// Reads a recording into memory.
fn recording(path: &Path) -> Res<Recording> {
    let records = larder_trace::open(path, None, ReaderOptions::default())?;
    let (mut requests, mut touched, mut end) = (Vec::new(), HashSet::new(), 0);
    for request in chunks(records, CHUNK_BYTES)? {
        let request = request?;
        let Some(content) = request.content.filter(|_| matches!(request.op, Op::Read | Op::Write)) else { continue };
        // Indices expect hashes, and a recording's fingerprints have half of the bits.
        let [high, low] = content.fingerprint.0.map(mix64);
        let fingerprint = Fingerprint((u128::from(high ^ low.rotate_left(32)) << 64 | u128::from(low)).to_be_bytes());
        touched.insert(request.lba);
        end = end.max(request.lba + 1);
        requests.push(Request { lba: Lba(request.lba), is_write: request.op == Op::Write, fingerprint });
    }
    let flash = MeasuredFlash { chunks: touched.len() as u64 / FLASH_SHARE, addresses: end };
    Ok(Recording { requests, flash })
}

/// Returns the share of reads that hit, and the bytes allocated for each mapped chunk.
fn counted(design: &EngineDesign, recording: &Recording) -> Res<(f64, f64)> {
    let region = region(design, &recording.flash)?;
    let live = Live::begin();
    let mut cache = Driven::new(design, &recording.flash, region)?;
    recording.requests.iter().for_each(|request| cache.request(request));
    let bytes = live.bytes() as f64 / cache.mapped_chunks() as f64;
    let reads = recording.requests.iter().filter(|request| !request.is_write).count();
    Ok((cache.hits as f64 / reads as f64, bytes))
}

/// Returns the nanoseconds a request of one pass, on one core.
fn timed(design: &EngineDesign, recording: &Recording) -> Res<f64> {
    let _core = OneCore::pin()?;
    let mut cache = Driven::new(design, &recording.flash, region(design, &recording.flash)?)?;
    let began = thread_cpu_time();
    recording.requests.iter().for_each(|request| cache.request(request));
    Ok((thread_cpu_time() - began).as_nanos() as f64 / recording.requests.len() as f64)
}
