//! (i) Recovery, against large reads of the same bytes from the same device.
//!
//! As many reads are in flight on both sides. One cache is filled with clean chunks, duplicates
//! among them, dirty chunks and trimmed runs. Its clean end is recovered again and again, since
//! recovery writes nothing. Then it is opened, more is written with a FLUSH now and then, and it is
//! dropped without an end, as in a crash. That end is recovered again and again, too. The other
//! side reads the same bytes: those of the checkpoint and of the log behind it, or after a crash
//! all of the log.
//!
//! The devices are memory with the timing of an SSD, in real time, and a file. Only the metadata of
//! the flash is kept: recovery reads nothing else.
//!
//! It does not count the two flushes and the superblock of the opening, which take as long for any
//! cache.

use crate::{
    caches::{no_destaging, options, runtime},
    data::{DataKind, PIECE_BYTES, Source},
    devices::{FlatRam, Sink},
    measure::{Res, Side, compare, lanes, time},
    options::Options,
    report::{Aim, Row},
};
use larder_device::{
    BlockDevice, IoBuf, IoResult, WriteFlags, ZeroFlags,
    driver::block_on,
    file::{FileDevice, OpenOptions},
    rng::Rng,
    threads::ThreadRuntime,
    throttled::{Profile, Throttled},
};
use larder_engine::{
    Cache, Compression, CreateOptions, Tuning, WriteMode, create,
    recover::{Recovered, recover_by},
    superblock,
    walk::Reader,
};
use std::{hint::black_box, path::Path, sync::Arc};

const CHUNK_BYTES: usize = 4096;
/// Chunks that are filled before the clean end, a quarter of them duplicates.
const CHUNKS: usize = 1 << 20;
/// One in this many chunks is then overwritten at random, and stays dirty. `LOGGED_SHARE` is the
/// same for the log after the clean end.
const DIRTY_SHARE: usize = 16;
const LOGGED_SHARE: usize = 4;
const WRITES_A_FLUSH: usize = 64;
const FLASH_BYTES: u64 = 8 << 30;
const ORIGIN_BYTES: u64 = 8 << 30;
/// Trimmed runs, of this many chunks each.
const TRIMS: usize = 64;
const TRIMMED_CHUNKS: usize = 32;
/// The most metadata of such a flash.
const KEPT_BYTES: u64 = 1 << 30;
/// Bytes of a read of the other side; `DEPTH` reads are in flight.
const READ_BYTES: usize = larder_engine::walk::READ_BYTES as usize;
const DEPTH: usize = larder_engine::walk::READS_IN_FLIGHT;
const MIB: f64 = (1 << 20) as f64;
const AIM: f64 = 1.2;

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let chunks = bench.scaled(CHUNKS);
    let flash = Arc::new(Metadata::over(FlatRam::new(KEPT_BYTES, 0)?, FLASH_BYTES));
    let origin = Arc::new(Sink::new(ORIGIN_BYTES, 0));
    let options = CreateOptions { mode: WriteMode::Through, ..options(CHUNK_BYTES, Compression::Off) };
    block_on(create(&*flash, ORIGIN_BYTES, &options))?;
    let source = Source::new(DataKind::Noise, CHUNK_BYTES, 21);
    let workers = runtime(2);
    let cache = block_on(Cache::open(flash.clone(), origin.clone(), workers.clone(), no_destaging()))?;
    fill(&cache, &source, chunks)?;
    cache.close_blocking()?;
    drop(cache);
    let mut rows = one_end(bench, &flash, &workers, "clean")?;
    let cache = block_on(Cache::open(flash.clone(), origin, workers.clone(), no_destaging()))?;
    write_on(&cache, &source, chunks)?;
    drop(cache);
    rows.extend(one_end(bench, &flash, &workers, "crash")?);
    workers.shutdown();
    Ok(rows)
}

fn fill(cache: &Cache, source: &Source, chunks: usize) -> Res<()> {
    let piece_chunks = PIECE_BYTES / CHUNK_BYTES;
    for number in 0..chunks / piece_chunks {
        // Every fourth piece has the content of the one before.
        let content = if number % 4 == 3 { number - 1 } else { number } * piece_chunks;
        let piece = source.piece(content as u64).freeze();
        block_on(cache.write((number * PIECE_BYTES) as u64, piece, WriteFlags::default()))?;
        // A later write may share a version with a chunk that waits to be inserted, and outdate it.
        block_on(cache.wait_for_insertions());
    }
    block_on(cache.set_mode(WriteMode::Back))?;
    write_at_random(cache, source, (chunks, chunks / DIRTY_SHARE), 1)?;
    for number in 0..TRIMS {
        let at = (chunks + 2 * number * TRIMMED_CHUNKS) * CHUNK_BYTES;
        block_on(cache.zero(at as u64, (TRIMMED_CHUNKS * CHUNK_BYTES) as u64, ZeroFlags::default()))?;
    }
    Ok(())
}

/// Writes the data that a crash leaves in the log.
fn write_on(cache: &Cache, source: &Source, chunks: usize) -> Res<()> {
    let before = cache.status().counts.checkpoints;
    write_at_random(cache, source, (chunks, chunks / LOGGED_SHARE), 2)?;
    match cache.status().counts.checkpoints - before {
        0 => Ok(()),
        _ => Err("a checkpoint was written where the log should have grown".into()),
    }
}

fn write_at_random(cache: &Cache, source: &Source, (chunks, count): (usize, usize), seed: u64) -> Res<()> {
    let mut rng = Rng::new(seed);
    let piece_chunks = PIECE_BYTES / CHUNK_BYTES;
    let first = chunks * (1 + seed as usize);
    block_on(async {
        for number in 0..count / piece_chunks {
            let piece = source.piece((first + number * piece_chunks) as u64).freeze();
            for from in (0..PIECE_BYTES).step_by(CHUNK_BYTES) {
                let at = rng.below(chunks as u64) * CHUNK_BYTES as u64;
                cache.write(at, piece.slice(from..from + CHUNK_BYTES), WriteFlags::default()).await?;
                if (from / CHUNK_BYTES) % WRITES_A_FLUSH == WRITES_A_FLUSH - 1 {
                    cache.flush().await?;
                }
            }
        }
        cache.flush().await
    })?;
    Ok(())
}

fn one_end(bench: &Options, metadata: &Arc<Metadata>, workers: &Arc<ThreadRuntime>, name: &str) -> Res<Vec<Row>> {
    let mut rows = Vec::new();
    for (id, what, profile) in [
        ("ram", "memory", None),
        ("sata", "a SATA SSD's timing", Some(Profile::SataSsd)),
        ("nvme", "an NVMe SSD's timing", Some(Profile::Nvme)),
    ] {
        let device: Arc<dyn BlockDevice> = match profile {
            Some(profile) => Arc::new(Throttled::new(metadata.clone(), profile, workers.clone())),
            None => metadata.clone(),
        };
        rows.push(one_device(bench, device, workers, (name, id, what))?);
    }
    let path = bench.dir.join("recovery");
    let result = on_a_file(bench, metadata, &path, workers, name);
    // The file is gone already, or disturbs nothing.
    let _ = std::fs::remove_file(&path);
    rows.push(result?);
    Ok(rows)
}

fn on_a_file(
    bench: &Options,
    metadata: &Arc<Metadata>,
    path: &Path,
    workers: &Arc<ThreadRuntime>,
    name: &str,
) -> Res<Row> {
    let open = OpenOptions { direct: true, create_bytes: Some(FLASH_BYTES), ..OpenOptions::default() };
    let file = FileDevice::open(path, open)?;
    block_on(async {
        for at in (0..metadata.kept_bytes()).step_by(READ_BYTES) {
            let piece = metadata.read(at, IoBuf::new(READ_BYTES)).await?;
            if piece.iter().any(|&byte| byte != 0) {
                file.write(at, piece.freeze(), WriteFlags::default()).await?;
            }
        }
        file.flush().await
    })?;
    let what = if file.is_direct() { "a file, O_DIRECT" } else { "a file, buffered" };
    one_device(bench, Arc::new(file), workers, (name, "file", what))
}

fn one_device(
    bench: &Options,
    device: Arc<dyn BlockDevice>,
    workers: &Arc<ThreadRuntime>,
    (end, id, what): (&str, &str, &str),
) -> Res<Row> {
    let (superblock, _) = block_on(superblock::read(&*device))?;
    let pointer = superblock.checkpoint.ok_or("there is no checkpoint")?;
    let checkpoint_at = superblock.layout.checkpoint_offset.get(usize::from(pointer.area)).copied().unwrap_or_default();
    let reader = Reader { flash: &*device, workers: Some(&**workers), progress: None };
    let recover_once = || block_on(recover_by(reader, None, &Tuning::default()));
    let first = recover_once()?;
    let (found, mappings) = (first.report, first.state.design().stats().mapped_chunks);
    drop(first);
    // After a crash all of the log is read: a frame anywhere in it may show that others were lost.
    let layout = &superblock.layout;
    let (log_at, log_bytes) = match found.clean_shutdown {
        true => (layout.log_offset + superblock.log_start.offset_in_log, found.log_bytes),
        false => (layout.log_offset, layout.log_bytes),
    };
    let bytes = (found.checkpoint_bytes + log_bytes) as f64;
    let ranges = [(checkpoint_at, pointer.bytes), (log_at, log_bytes)];
    let result = compare(bench.rounds(), |_, side| {
        // The drop is outside of the time, since a cache that opens keeps it.
        let mut kept: Option<Recovered> = None;
        time(|| match side {
            Side::Ours => {
                kept = Some(recover_once()?);
                Ok(bytes)
            }
            Side::Base => {
                for (start, bytes) in ranges {
                    block_on(lanes(DEPTH, |lane| read_lane(device.clone(), start, bytes, lane)))?;
                }
                Ok(bytes)
            }
        })
    })?;
    let text = format!(
        "recovery after a {end} end, {what}: {mappings} mappings, {:.1} MiB of checkpoint, {:.1} of log. {:.1} of it are \
         replayed; {:.2} million mappings a second, {:.0} MiB/s against {:.0} of reading: times as long",
        found.checkpoint_bytes as f64 / MIB,
        log_bytes as f64 / MIB,
        found.log_bytes as f64 / MIB,
        mappings as f64 * result.ours / bytes / 1e6,
        result.ours / MIB,
        result.base / MIB,
    );
    // Memory alone has no time of its own to hide the work behind.
    if id == "ram" {
        return Ok(Row::told(&format!("i.{end}.{id}"), text, 1.0 / result.ratio));
    }
    Ok(Row::aimed(&format!("i.{end}.{id}"), text, 1.0 / result.ratio, Aim::AtMost(AIM)))
}

async fn read_lane(device: Arc<dyn BlockDevice>, start: u64, bytes: u64, lane: u64) -> IoResult<u64> {
    let mut sum = 0;
    for at in (0..bytes).step_by(READ_BYTES).skip(lane as usize).step_by(DEPTH) {
        // The log's last frame may end between sectors of the device.
        let len = (READ_BYTES as u64).min(bytes - at);
        let buf = device.read(start + at, IoBuf::new(len as usize)).await?;
        black_box(&buf);
        sum += len;
    }
    Ok(sum)
}

/// A flash whose metadata is kept, in flat memory.
type Metadata = Sink<FlatRam>;
