//! (c) Random reads that miss, against the origin alone, a disk of 7,200 turns a minute.
//!
//! On virtual time computing costs nothing: the figure shows the cache's requests to its origin,
//! and their times. In real time the cache's computing and hand-overs are in it, too. But a request
//! that comes a little later may wait a turn longer, which adds half a percent of chance to a
//! round. So the time that the cache adds to a read is also measured on an origin that answers at
//! once. The report has it as a share of a read of the disk. Both sides read the same places in the
//! same order; every round has new places and a new, empty cache.

use crate::{
    caches::{end, options, runtime},
    data::{DataKind, Source},
    devices::Made,
    measure::{Res, Sample, Side, compare},
    options::Options,
    report::{Aim, Row},
};
use larder_device::{
    BlockDevice, IoBuf, IoFuture, IoResult, Runtime,
    driver::block_on,
    ram::RamDevice,
    rng::Rng,
    sim::SimRuntime,
    throttled::{Profile, Throttled},
};
use larder_engine::{Cache, Compression, Tuning, create};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

const ORIGIN_BYTES: u64 = 64 << 30;
const FLASH_BYTES: u64 = 1 << 30;
const CHUNK_BYTES: usize = 8192;
/// Reads of a round on virtual time, and in real time, where each takes 13 ms.
const READS_VIRTUAL: usize = 4000;
const READS_REAL: usize = 120;
const ROUNDS_VIRTUAL: usize = 3;
/// Reads of a round from an origin that answers at once.
const READS_AT_ONCE: usize = 20_000;
/// The rate of small random reads in the disk's profile, one at a time.
const DISK_READS_PER_SECOND: f64 = 78.5;
const PERCENT_AIM: f64 = 1.0;

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, bytes) in [("4", 4096), ("8", 8192)] {
        for depth in [1, 8] {
            let reads = bench.scaled(READS_VIRTUAL);
            let result = compare(ROUNDS_VIRTUAL, |round, side| {
                let places = Arc::new(places(reads, round as u64));
                virtually(&places, bytes, depth, side, round as u64)
            })?;
            let what = format!(
                "{name} KiB misses, hdd-7200, depth {depth}, virtual time: {:.1} a second against {:.1}: % more time",
                result.ours, result.base
            );
            let more = (1.0 / result.ratio - 1.0) * 100.0;
            rows.push(Row::aimed(&format!("c{name}.virtual.{depth}"), what, more, Aim::AtMost(PERCENT_AIM)));
        }
    }
    for (name, bytes) in [("4", 4096), ("8", 8192)] {
        let reads = bench.scaled(READS_AT_ONCE);
        let result = compare(bench.rounds(), |round, side| really(&places(reads, round as u64), bytes, side, false))?;
        let (ours, base) = (1e6 / result.ours, 1e6 / result.base);
        let what = format!(
            "{name} KiB misses, computing: {ours:.2} us a read against {base:.2} of the same origin without its disk's \
             time: % of a disk's read"
        );
        let more = (ours - base) / (1e6 / DISK_READS_PER_SECOND) * 100.0;
        rows.push(Row::aimed(&format!("c{name}.cpu"), what, more, Aim::AtMost(PERCENT_AIM)));
    }
    for (name, bytes) in [("4", 4096), ("8", 8192)] {
        let reads = bench.scaled(READS_REAL);
        let result = compare(bench.rounds(), |round, side| really(&places(reads, round as u64), bytes, side, true))?;
        let what = format!(
            "{name} KiB misses, hdd-7200, depth 1, real time: {:.1} a second against {:.1}: % more time",
            result.ours, result.base
        );
        let more = (1.0 / result.ratio - 1.0) * 100.0;
        rows.push(Row::aimed(&format!("c{name}.real"), what, more, Aim::AtMost(PERCENT_AIM)));
    }
    Ok(rows)
}

/// Returns offsets of chunks, each once.
fn places(reads: usize, seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let mut seen = HashSet::new();
    let mut places = Vec::with_capacity(reads);
    while places.len() < reads {
        let chunk = rng.below(ORIGIN_BYTES / CHUNK_BYTES as u64);
        if seen.insert(chunk) {
            places.push(chunk * CHUNK_BYTES as u64);
        }
    }
    places
}

/// Makes the origin, with the time of a disk or without.
fn origin(runtime: &Arc<impl Runtime + 'static>, disk: bool) -> Arc<dyn BlockDevice> {
    let content = Source::new(DataKind::Text, CHUNK_BYTES, 5).piece(0).to_vec();
    let made = Made::new(ORIGIN_BYTES, content);
    if disk { Arc::new(Throttled::new(made, Profile::Hdd7200, runtime.clone())) } else { Arc::new(made) }
}

async fn open_cache(runtime: &Arc<impl Runtime + 'static>, origin: Arc<dyn BlockDevice>) -> Res<Cache> {
    let flash = RamDevice::new("flash", FLASH_BYTES, 512);
    let flash = Arc::new(Throttled::new(flash, Profile::SataSsd, runtime.clone()));
    create(&*flash, ORIGIN_BYTES, &options(CHUNK_BYTES, Compression::Lz4)).await?;
    Ok(Cache::open(flash, origin, runtime.clone(), Tuning::default()).await?)
}

fn virtually(places: &Arc<Vec<u64>>, bytes: usize, depth: usize, side: Side, seed: u64) -> Res<Sample> {
    let sim = SimRuntime::timed(seed);
    let origin = origin(&sim, true);
    let wall = sim.block_on(async {
        match side {
            Side::Base => Ok(read_all(&sim, origin, places, bytes, depth).await?),
            Side::Ours => {
                let cache = Arc::new(open_cache(&sim, origin).await?);
                let wall = read_all(&sim, cache.clone(), places, bytes, depth).await?;
                all_missed(&cache, places.len())?;
                Ok::<Duration, Box<dyn std::error::Error>>(wall)
            }
        }
    })?;
    sim.kill();
    Ok(Sample { units: places.len() as f64, wall, cpu: wall })
}

/// Reads every place, `depth` at a time. Returns the time on the simulation's clock.
async fn read_all(
    sim: &Arc<SimRuntime>,
    device: Arc<dyn BlockDevice>,
    places: &Arc<Vec<u64>>,
    bytes: usize,
    depth: usize,
) -> IoResult<Duration> {
    let began = sim.now();
    let mut ends = Vec::new();
    for lane in 0..depth {
        let (completer, end) = IoFuture::pending();
        let (device, places) = (device.clone(), places.clone());
        sim.spawn(Box::pin(async move {
            let mut result = Ok(IoBuf::new(bytes));
            for &place in places.iter().skip(lane).step_by(depth) {
                let Ok(buf) = result else { break };
                result = device.read(place, buf).await;
            }
            completer.complete(result.map(drop));
        }));
        ends.push(end);
    }
    for end in ends {
        end.await?;
    }
    Ok(sim.now() - began)
}

fn really(places: &[u64], bytes: usize, side: Side, disk: bool) -> Res<Sample> {
    let runtime = runtime(1);
    let origin = origin(&runtime, disk);
    let cache = match side {
        Side::Base => None,
        Side::Ours => Some(Arc::new(block_on(open_cache(&runtime, origin.clone()))?)),
    };
    let device: Arc<dyn BlockDevice> = match &cache {
        None => origin,
        Some(cache) => cache.clone(),
    };
    let began = Instant::now();
    block_on(async {
        let mut buf = IoBuf::new(bytes);
        for &place in places {
            buf = device.read(place, buf).await?;
        }
        IoResult::Ok(())
    })?;
    let wall = began.elapsed();
    if let Some(cache) = cache {
        all_missed(&cache, places.len())?;
        end(&cache, &runtime)?;
    }
    Ok(Sample { units: places.len() as f64, wall, cpu: wall })
}

fn all_missed(cache: &Cache, reads: usize) -> Res<()> {
    let counts = cache.status().counts;
    if counts.read_misses != reads as u64 {
        return Err(format!("{} of {reads} reads missed", counts.read_misses).into());
    }
    Ok(())
}
