//! (n) Writes of 48 clients to one chunk, over RAM, against the same to a chunk for each of them.
//!
//! The figure is processor time a write. Overlapping writes take effect one after the other, in the
//! order of their requests. So one client at a time writes the one chunk, and hands over to the
//! next. The figure shows that the end of a write wakes only the next write, and not all waiters.
//! Each client has a thread, and some writes under way. Both sides run in turns; the median of the
//! rounds' ratios counts.
//!
//! It does not read, destage, or measure the same through NBD.

use crate::{
    Options,
    caches::{end, no_destaging, options, runtime},
    data::{Kind, PIECE_BYTES, Source},
    devices::FlatRam,
    measure::{Res, Side, compare, lanes, time},
    report::{Aim, Row},
    threads::seconds_of,
};
use larder_device::{IoResult, SharedBuf, WriteFlags, driver::block_on, ram::RamDevice};
use larder_engine::{Cache, Compression, WriteMode, create};
use std::sync::Arc;

const CLIENTS: usize = 48;
const DEPTH: usize = 4;
const CHUNK_BYTES: usize = 8 << 10;
/// Writes of each lane of each client in a round.
const WRITES: usize = 16;
const ROUNDS: usize = 9;
const ORIGIN_BYTES: u64 = 1 << 30;
const FLASH_BYTES: u64 = 2 << 30;
/// The limit for a write to the same chunk, in processor times of a disjoint write.
const AIM: f64 = 3.0;

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut rows = Vec::new();
    for (id, mode) in [("back", WriteMode::Back), ("through", WriteMode::Through)] {
        rows.extend(rows_of(bench, id, mode)?);
    }
    Ok(rows)
}

fn rows_of(bench: &Options, id: &str, mode: WriteMode) -> Res<Vec<Row>> {
    let source = Source::new(Kind::Noise, CHUNK_BYTES, 7);
    let mut asked = options(CHUNK_BYTES, Compression::Off);
    asked.mode = mode;
    let runtime = runtime(0);
    let flash = Arc::new(FlatRam::new(FLASH_BYTES, FLASH_BYTES)?);
    let origin = Arc::new(RamDevice::new("origin", ORIGIN_BYTES, 512));
    block_on(create(&*flash, ORIGIN_BYTES, &asked))?;
    let cache = Arc::new(block_on(Cache::open(flash, origin, runtime.clone(), no_destaging()))?);
    let chunks_a_round = CLIENTS * DEPTH * WRITES;
    let mut next = 0;
    let compared = compare(bench.scaled(ROUNDS), |_, side| {
        // The content is new each time, so that no write is a duplicate.
        let bytes = (chunks_a_round * CHUNK_BYTES).next_multiple_of(PIECE_BYTES);
        let pieces = source.pieces(next, bytes);
        next += (bytes / CHUNK_BYTES) as u64;
        let chunks: Vec<SharedBuf> = pieces
            .iter()
            .flat_map(|piece| (0..piece.len()).step_by(CHUNK_BYTES).map(|at| piece.slice(at..at + CHUNK_BYTES)))
            .collect();
        time(|| {
            seconds_of(CLIENTS, &|client| {
                let share = chunks.get(client * DEPTH * WRITES..).unwrap_or_default();
                block_on(write(&cache, share, client, side))
            })?;
            Ok(chunks_a_round as f64)
        })
    })?;
    end(&cache, &runtime)?;
    let microseconds = 1e6 / compared.ours_cpu;
    let what = format!("write-{id}, RAM, {CLIENTS} clients write one chunk, {DEPTH} writes each at once");
    Ok(vec![
        Row::told(&format!("n.{id}"), format!("{what}: µs of CPU a write"), microseconds),
        Row::aimed(
            &format!("n.{id}.ratio"),
            format!("{what}: times the CPU of a write to chunks apart"),
            1.0 / compared.cpu_ratio,
            Aim::AtMost(AIM),
        ),
    ])
}

/// Writes a client's share: all to the first chunk, or each lane to a chunk of its own.
async fn write(cache: &Arc<Cache>, share: &[SharedBuf], client: usize, side: Side) -> IoResult<()> {
    let written = lanes(DEPTH, |lane| {
        let chunks: Vec<SharedBuf> = share.iter().skip(lane as usize * WRITES).take(WRITES).cloned().collect();
        let apart = (client * DEPTH) as u64 + lane;
        let at = if side == Side::Ours { 0 } else { apart * CHUNK_BYTES as u64 };
        let cache = cache.clone();
        async move {
            for chunk in chunks {
                cache.write(at, chunk, WriteFlags::default()).await?;
            }
            Ok(1)
        }
    });
    written.await.map(|_| ())
}
