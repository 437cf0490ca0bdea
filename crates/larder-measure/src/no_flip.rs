//! (j) The cost of the rule that a stale copy never undoes a write.
//!
//! The measurement overwrites cached chunks in write-through and write-around, and compares the
//! same writes to chunks that are not cached.
//!
//! Before such a write goes to the origin, the cache forgets the chunk's mapping durably. That
//! takes an entry in the metadata log, in a frame that all writers share which wait at that moment.
//! The measurement counts the log's bytes on flash, the commits, and the time of a write. Time is
//! virtual, so that the figures are the same in every run. Flash is like a SATA SSD, the origin
//! like a disk of 7,200 turns with its write cache. In write-through both sides also store the
//! written data. This is no part of the cost; the difference is. Beside them run the same writes to
//! the origin without a cache.
//!
//! It does not judge; there is no aim.

use crate::{
    caches::options,
    data::{DataKind, PIECE_BYTES, Source},
    measure::Res,
    options::Options,
    report::Row,
};
use larder_device::{
    BlockDevice, IoFuture, IoResult, Runtime, WriteFlags,
    ram::RamDevice,
    rng::Rng,
    sim::SimRuntime,
    throttled::{Profile, Throttled},
};
use larder_engine::{Cache, Compression, CreateOptions, Tuning, WriteMode, create};
use std::{sync::Arc, time::Duration};

const CHUNK_BYTES: usize = 8192;
/// Bytes that are cached, and as many that are not.
const SET_BYTES: u64 = 256 << 20;
const UNCACHED_AT: u64 = 1 << 30;
const ORIGIN_BYTES: u64 = 4 << 30;
const FLASH_BYTES: u64 = 1 << 30;
const WRITES: usize = 4096;
/// Chunks of the neighbourhood of local writes.
const LOCAL_CHUNKS: usize = 8192;

/// The places of the written chunks.
#[derive(Clone, Copy, PartialEq)]
enum Places {
    Random,
    /// Consecutive chunks of a neighbourhood.
    Local,
}

/// The cost of a write.
struct Cost {
    log_bytes: f64,
    commits: f64,
    micros: f64,
}

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut rows = Vec::new();
    for (mode, name) in [(WriteMode::Around, "around"), (WriteMode::Through, "through")] {
        for (places, lie) in [(Places::Random, "random"), (Places::Local, "local")] {
            for clients in [1, 16] {
                let writes = bench.scaled(WRITES);
                let (cached, uncached) = compared(writes, mode, places, clients)?;
                let bare = bare_micros(writes, places, clients)?;
                let id = format!("j.{name}.{lie}.{clients}");
                let what = format!("write-{name}, {lie} overwrites of cached 8 KiB chunks, {clients} at a time:");
                let text = format!(
                    "{what} log bytes on flash a write, less those of uncached chunks ({:.0}); commits a write {:.3}",
                    uncached.log_bytes, cached.commits
                );
                rows.push(Row::told(&format!("{id}.bytes"), text, cached.log_bytes - uncached.log_bytes));
                let text = format!(
                    "{what} {:.0} us a write against {:.0} of uncached chunks: times as long",
                    cached.micros, uncached.micros
                );
                rows.push(Row::told(&format!("{id}.time"), text, cached.micros / uncached.micros));
                let text = format!(
                    "{what} {:.0} us a write against {bare:.0} of the origin without a cache: times as long",
                    cached.micros
                );
                rows.push(Row::told(&format!("{id}.bare"), text, cached.micros / bare));
            }
        }
    }
    Ok(rows)
}

/// Returns the cost of overwriting cached chunks, and of writing others; each on devices of its
/// own.
fn compared(writes: usize, mode: WriteMode, places: Places, clients: usize) -> Res<(Cost, Cost)> {
    Ok((measured(writes, mode, places, clients, 0)?, measured(writes, mode, places, clients, UNCACHED_AT)?))
}

fn measured(writes: usize, mode: WriteMode, places: Places, clients: usize, from: u64) -> Res<Cost> {
    let sim = SimRuntime::timed(31);
    let flash = Throttled::new(RamDevice::new("flash", FLASH_BYTES, 512), Profile::SataSsd, sim.clone());
    let origin = Throttled::new(RamDevice::new("origin", ORIGIN_BYTES, 512), Profile::Hdd7200, sim.clone());
    let (flash, origin) = (Arc::new(flash), Arc::new(origin));
    let source = Source::new(DataKind::Noise, CHUNK_BYTES, 32);
    let cost = sim.block_on(async {
        let made = CreateOptions { mode: WriteMode::Through, ..options(CHUNK_BYTES, Compression::Off) };
        create(&*flash, ORIGIN_BYTES, &made).await?;
        let cache = Arc::new(Cache::open(flash, origin, sim.clone(), Tuning::default()).await?);
        for at in (0..SET_BYTES).step_by(PIECE_BYTES) {
            cache.write(at, source.piece(at / CHUNK_BYTES as u64).freeze(), WriteFlags::default()).await?;
            cache.wait_for_insertions().await;
        }
        cache.set_mode(mode).await?;
        cache.flush().await?;
        cache.checkpoint().await?;
        let places: Vec<u64> = chunks(places, writes).into_iter().map(|chunk| from + chunk).collect();
        let before = cache.status().counts;
        let took = write_all(&sim, cache.clone(), places, &source, clients).await?;
        cache.wait_for_insertions().await;
        // Mappings of the written data become durable in their own time.
        sim.delay(Duration::from_secs(3)).await?;
        let after = cache.status().counts;
        let each = |now: u64, then: u64| (now - then) as f64 / writes as f64;
        Ok::<Cost, Box<dyn std::error::Error>>(Cost {
            log_bytes: each(after.flash_log_bytes_written, before.flash_log_bytes_written),
            commits: each(after.commits, before.commits),
            micros: micros_a_write(took, clients, writes),
        })
    })?;
    sim.kill();
    Ok(cost)
}

/// Returns the time of a write to the origin alone.
fn bare_micros(writes: usize, places: Places, clients: usize) -> Res<f64> {
    let sim = SimRuntime::timed(31);
    let origin = Throttled::new(RamDevice::new("origin", ORIGIN_BYTES, 512), Profile::Hdd7200, sim.clone());
    let source = Source::new(DataKind::Noise, CHUNK_BYTES, 32);
    let took = sim.block_on(write_all(&sim, Arc::new(origin), chunks(places, writes), &source, clients))?;
    sim.kill();
    Ok(micros_a_write(took, clients, writes))
}

/// Returns the time for one client: the others write meanwhile.
fn micros_a_write(took: Duration, clients: usize, writes: usize) -> f64 {
    took.as_secs_f64() * 1e6 * clients as f64 / writes as f64
}

/// Returns offsets of chunks, each once.
fn chunks(places: Places, writes: usize) -> Vec<u64> {
    let mut rng = Rng::new(33);
    let all = match places {
        Places::Random => SET_BYTES as usize / CHUNK_BYTES,
        Places::Local => LOCAL_CHUNKS,
    };
    let mut chunks: Vec<u64> = (0..all as u64).map(|chunk| chunk * CHUNK_BYTES as u64).collect();
    if places == Places::Random {
        rng.shuffle(&mut chunks);
    }
    chunks.truncate(writes);
    chunks
}

/// Writes a chunk of `source` to each place, `clients` at a time. Returns the time.
async fn write_all(
    sim: &Arc<SimRuntime>,
    device: Arc<dyn BlockDevice>,
    places: Vec<u64>,
    source: &Source,
    clients: usize,
) -> IoResult<Duration> {
    let content = Arc::new(source.pieces(1 << 40, places.len() * CHUNK_BYTES));
    let places = Arc::new(places);
    let began = sim.now();
    let mut ends = Vec::new();
    for client in 0..clients {
        let (completer, end) = IoFuture::pending();
        let (device, places, content) = (device.clone(), places.clone(), content.clone());
        sim.spawn(Box::pin(async move {
            let mut result = Ok(());
            for (number, &place) in places.iter().enumerate().skip(client).step_by(clients) {
                let from = number * CHUNK_BYTES % PIECE_BYTES;
                let Some(piece) = content.get(number * CHUNK_BYTES / PIECE_BYTES) else { break };
                result = device.write(place, piece.slice(from..from + CHUNK_BYTES), WriteFlags::default()).await;
                if result.is_err() {
                    break;
                }
            }
            completer.complete(result);
        }));
        ends.push(end);
    }
    for end in ends {
        end.await?;
    }
    Ok(sim.now() - began)
}
