//! (k) The cost of each design's decisions in `larder-core`, without any I/O.
//!
//! It has nanoseconds a request, bytes allocated for each mapped chunk, and the time that a
//! checkpoint keeps requests waiting. A checkpoint asks the design for its data piece by piece.
//!
//! The load is write-through, three reads for each write. Zipf's law (exponent 0.8) draws from four
//! times as many addresses as the cache has chunks. Two addresses have each content, and its
//! fingerprint is known. [`driven`](crate::driven) asks the design. The requests are drawn before,
//! and a first pass fills the cache. Metadata slots on flash are not counted.
//!
//! It does not make records, log entries or checksums; (a) to (g) time the whole.

use crate::{
    alloc::Live,
    driven::{Driven, MeasuredFlash, Request, region},
    measure::Res,
    options::Options,
    report::Row,
};
use larder_core::{Fingerprint, Lba};
use larder_device::rng::{Rng, mix64};
use larder_engine::designs::ENGINE_DESIGNS;
use larder_trace::zipf::Zipf;
use std::time::{Duration, Instant};

/// Whole chunks on the flash.
const CHUNKS: u64 = 1 << 17;
const ADDRESSES: u64 = 4 * CHUNKS;
const FLASH: MeasuredFlash = MeasuredFlash { chunks: CHUNKS, addresses: ADDRESSES };
const REQUESTS: usize = 4 << 20;

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let requests = requests(bench.scaled(REQUESTS));
    let mut rows = Vec::new();
    for design in ENGINE_DESIGNS {
        let region = region(design, &FLASH)?;
        let live = Live::begin();
        let mut cache = Driven::new(design, &FLASH, region)?;
        requests.iter().for_each(|request| cache.request(request));
        let (bytes, mapped) = (live.bytes() as f64, cache.mapped_chunks() as f64);
        drop(live);
        let mut nanoseconds = Vec::new();
        for _ in 0..3 {
            cache.hits = 0;
            let began = Instant::now();
            requests.iter().for_each(|request| cache.request(request));
            nanoseconds.push(began.elapsed().as_nanos() as f64 / requests.len() as f64);
        }
        nanoseconds.sort_by(f64::total_cmp);
        let reads = requests.iter().filter(|request| !request.is_write).count();
        let hit_percent = cache.hits as f64 / reads as f64 * 100.0;
        let name = design.name;
        rows.push(Row::told(
            &format!("k.{name}.time"),
            format!("decisions of {name}: ns a request, {hit_percent:.1}% of the reads hit"),
            nanoseconds[1],
        ));
        rows.push(Row::told(
            &format!("k.{name}.ram"),
            format!("RAM of {name} under load, {mapped} chunks mapped: bytes a mapped chunk"),
            bytes / mapped,
        ));
        let pieces = cache.checkpoints();
        rows.push(Row::told(
            &format!("k.{name}.piece"),
            format!("the longest piece of a checkpoint of {name}, of {} in all: microseconds", pieces.len()),
            pieces.iter().max().map_or(0.0, |longest| longest.as_nanos() as f64 / 1000.0),
        ));
        rows.push(Row::told(
            &format!("k.{name}.pieces"),
            format!("all pieces of a checkpoint of {name}: ms"),
            pieces.iter().sum::<Duration>().as_nanos() as f64 / 1e6,
        ));
    }
    Ok(rows)
}

fn requests(count: usize) -> Vec<Request> {
    let mut rng = Rng::new(11);
    let zipf = Zipf::new(ADDRESSES, 0.8);
    let mut drawn = larder_trace::rng::TraceRng::new(12);
    (0..count)
        .map(|_| {
            let lba = Lba(mix64(zipf.sample(&mut drawn)) % ADDRESSES);
            let mut fingerprint = [0; 16];
            fingerprint[..8].copy_from_slice(&mix64(lba.0 / 2).to_le_bytes());
            fingerprint[8..].copy_from_slice(&mix64(lba.0 / 2 + (1 << 40)).to_le_bytes());
            Request { lba, is_write: rng.chance(1, 4), fingerprint: Fingerprint(fingerprint) }
        })
        .collect()
}
