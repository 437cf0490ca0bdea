//! (m) Whole chunks written in write-back, over RAM, by 1, 2, 4 and more threads, in each design.
//!
//! The base is one of these threads. The report also has the same ratio for the computing alone:
//! the fingerprints, LZ4 and CRC32C that these writes need, without a cache. With the feature
//! `lock-times` it also has the time that a write locks the state.
//!
//! Each thread writes new contents, a chunk a request, and then the same to other addresses. Chunks
//! of 4 KiB that do not shrink need least computing. So decisions weigh most, which are made one at
//! a time. 32 KiB with LZ4 is the load of AustereCache's paper (section 5.1). A round runs each
//! number of threads once, in turn with the computing. A time ends with a FLUSH. The median of the
//! rounds' ratios counts. Hardly anything is destaged or evicted meanwhile.
//!
//! It does not read, or write to a full cache.

use crate::{
    caches::{end, no_destaging, options, runtime},
    data::{DataKind, PIECE_BYTES, Source},
    devices::FlatRam,
    measure::{Res, median},
    options::Options,
    report::Row,
    threads::{seconds_of, thread_counts, times},
};
use larder_device::{SharedBuf, WriteFlags, driver::block_on, ram::RamDevice};
use larder_engine::{
    Cache, Compression, CreateOptions, EngineError, create,
    designs::{ENGINE_DESIGNS, EngineDesign},
};
use std::{hint::black_box, sync::Arc, time::Duration};

/// New content of a round, of all threads together.
const ROUND_BYTES: usize = 64 << 20;
const ROUNDS: usize = 8;
const ORIGIN_BYTES: u64 = 1 << 40;
/// The bound of few: one in this many.
const FEW: u64 = 1000;
const KEY: [u8; 32] = [7; 32];
const MIB: f64 = 1_048_576.0;

/// A kind of written data.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    chunk_bytes: usize,
    kind: DataKind,
    /// The compression, if the design can have it.
    compression: Compression,
}

const LOADS: [Load; 2] = [
    Load { name: "4K", chunk_bytes: 4 << 10, kind: DataKind::Noise, compression: Compression::Off },
    Load { name: "32K", chunk_bytes: 32 << 10, kind: DataKind::Text, compression: Compression::Lz4 },
];

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let counts = thread_counts();
    let mut rows = Vec::new();
    for load in LOADS {
        for design in ENGINE_DESIGNS {
            rows.extend(rows_of(bench, &counts, design, load)?);
        }
    }
    Ok(rows)
}

fn rows_of(bench: &Options, counts: &[usize], design: &EngineDesign, load: Load) -> Res<Vec<Row>> {
    let rounds = bench.scaled(ROUNDS);
    let all = (ROUND_BYTES * counts.len() * (rounds + 1)) as u64;
    // Room for all writes and their places, twice, since a content is written to two addresses.
    let flash_bytes = 8 * all;
    let source = Source::new(load.kind, load.chunk_bytes, 5);
    let mut asked = options(load.chunk_bytes, load.compression);
    design.fit(&mut asked);
    let runtime = runtime(0);
    let flash = Arc::new(FlatRam::new(flash_bytes, flash_bytes)?);
    let origin = Arc::new(RamDevice::new("origin", ORIGIN_BYTES, 512));
    block_on(create(&*flash, ORIGIN_BYTES, &asked))?;
    let cache = block_on(Cache::open(flash, origin, runtime.clone(), no_destaging()))?;
    let (mut written, mut computed) = (vec![Vec::new(); counts.len()], vec![Vec::new(); counts.len()]);
    let mut locks: Vec<Vec<Locked>> = counts.iter().map(|_| Vec::new()).collect();
    let mut done = 0;
    // The first round warms up.
    for round in 0..=rounds {
        for (at, &count) in counts.iter().enumerate() {
            let first = done as u64 / load.chunk_bytes as u64;
            let pieces = source.pieces(first, ROUND_BYTES / count / PIECE_BYTES * PIECE_BYTES * count);
            let shares: Vec<&[SharedBuf]> = pieces.chunks(pieces.len() / count).collect();
            let share = |number: usize| shares.get(number).copied().unwrap_or_default();
            let bytes = 2 * pieces.len() * PIECE_BYTES;
            let start = |number: usize| 2 * (done + number * bytes / 2 / count) as u64;
            let locked_before = locked();
            let writing = seconds_of(count, &|number| {
                block_on(write_twice(&cache, share(number), start(number), load.chunk_bytes))
            })?;
            let locked = locked().map(|after| Locked::since(after, locked_before, (bytes / load.chunk_bytes) as f64));
            let computing = seconds_of(count, &|number| {
                compute_twice(share(number), &asked);
                Ok::<_, EngineError>(())
            })?;
            if round > 0 {
                locks[at].extend(locked);
                written[at].push(bytes as f64 / writing);
                computed[at].push(bytes as f64 / computing);
            }
            done += bytes / 2;
        }
    }
    hardly_any_left(&cache)?;
    end(&cache, &runtime)?;
    Ok(told(counts, (design, load), &written, &computed, &locks))
}

/// Returns the rows of a design and a load.
fn told(
    counts: &[usize],
    (design, load): (&EngineDesign, Load),
    written: &[Vec<f64>],
    computed: &[Vec<f64>],
    locks: &[Vec<Locked>],
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, &count) in counts.iter().enumerate() {
        let threads = if count == 1 { "thread" } else { "threads" };
        let what = format!("{}, {} writes, RAM, {count} {threads}", design.name, load.name);
        let id = format!("m.{}.{}.{count}", load.name, design.name);
        let [ours, base] = [written, computed].map(|rates| median(rates[at].clone()) / MIB);
        rows.push(Row::told(&id, format!("{what}: MiB/s (computing alone: {base:.0})"), ours));
        if count > 1 {
            let beside = times(&computed[at], &computed[0]);
            let text = format!("{what}: times those of 1 thread (computing alone: {beside:.2})");
            rows.push(Row::told(&format!("{id}.ratio"), text, times(&written[at], &written[0])));
        }
        if !locks[at].is_empty() {
            let nanoseconds = median(locks[at].iter().map(|locked| locked.nanoseconds).collect());
            let often = median(locks[at].iter().map(|locked| locked.times).collect());
            let each = load.chunk_bytes as f64 / (ours * MIB) * 1e9 * count as f64;
            let text = format!("{what}: ns a write that the state is locked ({often:.1} times), of {each:.0}");
            rows.push(Row::told(&format!("{id}.locked"), text, nanoseconds));
        }
    }
    rows
}

/// Fails if more than a few chunks were destaged. Then hashes fell together, say, and writers
/// waited for more than each other.
fn hardly_any_left(cache: &Cache) -> Res<()> {
    let status = cache.status();
    let (written, destaged) = (status.counts.inserted_chunks, status.counts.destaged_chunks);
    match destaged * FEW > written {
        true => {
            Err(format!("{}: {destaged} of {written} chunks were destaged where hardly any should be", status.design)
                .into())
        }
        false => Ok(()),
    }
}

/// Writes a thread's data, chunk by chunk, and then the same behind it.
async fn write_twice(cache: &Cache, pieces: &[SharedBuf], start: u64, chunk_bytes: usize) -> Result<(), EngineError> {
    for (number, piece) in pieces.iter().chain(pieces).enumerate() {
        let at = start + (number * PIECE_BYTES) as u64;
        for from in (0..piece.len()).step_by(chunk_bytes) {
            cache.write(at + from as u64, piece.slice(from..from + chunk_bytes), WriteFlags::default()).await?;
        }
    }
    cache.flush().await
}

/// Computes for the same writes: fingerprints, LZ4, and the CRC32C of the stored bytes.
/// Fingerprints and LZ4 are left out for a design without them. The second time a content is known,
/// if there are fingerprints, and not stored.
fn compute_twice(pieces: &[SharedBuf], options: &CreateOptions) {
    let (dedups, compresses) = (options.dedup, options.compression != Compression::Off);
    let chunk_bytes = options.chunk_bytes as usize;
    let mut scratch = vec![0; 2 * chunk_bytes];
    for is_known in [false, dedups] {
        for chunk in pieces.iter().flat_map(|piece| piece.chunks(chunk_bytes)) {
            if dedups {
                black_box(blake3::keyed_hash(&KEY, chunk));
            }
            if is_known {
                continue;
            }
            let stored = match compresses {
                // This size also suffices for a chunk that does not shrink.
                true => lz4::block::compress_to_buffer(chunk, None, false, &mut scratch).unwrap_or(chunk_bytes),
                false => chunk_bytes,
            };
            black_box(crc_fast::crc32_iscsi(chunk.get(..stored).unwrap_or(chunk)));
        }
    }
}

/// The time that each write locks the state, and the number of locks.
struct Locked {
    nanoseconds: f64,
    times: f64,
}

impl Locked {
    fn since(after: (Duration, u64), before: Option<(Duration, u64)>, writes: f64) -> Locked {
        let (time, times) = before.unwrap_or_default();
        let nanoseconds = after.0.saturating_sub(time).as_nanos() as f64;
        Locked { nanoseconds: nanoseconds / writes, times: (after.1 - times) as f64 / writes }
    }
}

/// Returns the time that the state was locked so far, and the number of locks. They need the
/// feature `lock-times`.
fn locked() -> Option<(Duration, u64)> {
    #[cfg(feature = "lock-times")]
    return Some(larder_engine::lock_times::locked());
    #[cfg(not(feature = "lock-times"))]
    None
}
