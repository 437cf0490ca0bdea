//! (d) Unique and (e) duplicate writes in write-back, against the serial cost of their computing.
//!
//! All is on one core: this thread, the runtime's driver thread and everything else of the process
//! share it, and there are no workers. Flash is memory that is already there. Each round of (d)
//! writes new data to new addresses, and ends with a FLUSH. The base hashes and compresses the same
//! bytes into a buffer. In (e) the content is stored already, and the base only hashes it. Nothing
//! is destaged meanwhile.

use crate::{
    caches::{end, no_destaging, options, runtime},
    data::{DataKind, PIECE_BYTES, Source, lz4_ratio},
    devices::FlatRam,
    measure::{Comparison, OneCore, Res, Side, compare, time},
    options::Options,
    report::{Aim, Row},
};
use larder_device::{SharedBuf, WriteFlags, driver::block_on, ram::RamDevice, threads::ThreadRuntime};
use larder_engine::{Cache, Compression, EngineError, create};
use std::{hint::black_box, sync::Arc};

const CHUNK_BYTES: usize = 8192;
/// Bytes written in a round; more than any cache of the processor.
const ROUND_BYTES: usize = 64 << 20;
const ORIGIN_BYTES: u64 = 16 << 30;
/// A size that needs no destaging. The cache uses slots from the first on, so that only these take
/// memory.
const FLASH_BYTES: u64 = 8 << 30;
const UNIQUE_AIM: f64 = 0.85;
const DUPLICATE_AIM: f64 = 0.6;
const KEY: [u8; 32] = [7; 32];
const MIB: f64 = 1_048_576.0;

/// Opens a cache that fills at most `present_bytes` of its flash.
fn open_cache(runtime: &Arc<ThreadRuntime>, present_bytes: u64) -> Res<Cache> {
    let flash = Arc::new(FlatRam::new(FLASH_BYTES, present_bytes)?);
    let origin = Arc::new(RamDevice::new("origin", ORIGIN_BYTES, 512));
    block_on(create(&*flash, ORIGIN_BYTES, &options(CHUNK_BYTES, Compression::Lz4)))?;
    Ok(block_on(Cache::open(flash, origin, runtime.clone(), no_destaging()))?)
}

/// Measures (d).
pub fn unique(bench: &Options) -> Res<Vec<Row>> {
    let _one = OneCore::pin()?;
    let mut rows = Vec::new();
    for (id, kind, request, aim) in [
        ("d.lz4", DataKind::Text, CHUNK_BYTES, true),
        ("d.lz4.128K", DataKind::Text, 128 << 10, false),
        ("d.noise", DataKind::Noise, CHUNK_BYTES, false),
    ] {
        let source = Source::new(kind, CHUNK_BYTES, 3);
        let ratio = lz4_ratio(&source);
        let result = unique_of(bench, &source, request, ratio)?;
        let what = format!(
            "unique writes of {} KiB, 8 KiB chunks, LZ4 {ratio:.2}:1, one core: {:.0} MiB/s against {:.0} of hash + LZ4 \
             (by CPU time {:.3}): ratio",
            request >> 10,
            result.ours / MIB,
            result.base / MIB,
            result.cpu_ratio
        );
        rows.push(match aim {
            true => Row::aimed(id, what, result.ratio, Aim::AtLeast(UNIQUE_AIM)),
            false => Row::told(id, what, result.ratio),
        });
    }
    Ok(rows)
}

fn unique_of(bench: &Options, source: &Source, request: usize, lz4_ratio: f64) -> Res<Comparison> {
    let bytes = bench.scaled(ROUND_BYTES);
    let all = (bytes * (bench.rounds() + 1)) as f64;
    // A tenth more than the data, for tables. Metadata lies before the slots, and is at most a
    // tenth of the flash.
    let present_bytes = (all / lz4_ratio.max(1.0) * 1.1) as u64 + FLASH_BYTES / 10;
    let runtime = runtime(0);
    let cache = open_cache(&runtime, present_bytes)?;
    let mut fresh = (usize::MAX, Vec::new());
    let result = compare(bench.rounds(), |round, side| {
        let first = (round * bytes / CHUNK_BYTES) as u64;
        if fresh.0 != round {
            fresh = (round, source.pieces(first, bytes));
        }
        let pieces = &fresh.1;
        time(|| {
            match side {
                Side::Ours => block_on(write_all(&cache, pieces, (round * bytes) as u64, request, true))?,
                Side::Base => hash_all(pieces, true),
            }
            Ok(bytes as f64)
        })
    })?;
    let counts = cache.status().counts;
    if counts.duplicate_chunks > 0 || counts.write_waits > 0 || counts.destaged_chunks > 0 {
        return Err(format!(
            "{} duplicates, {} waits and {} destaged chunks where there should be none",
            counts.duplicate_chunks, counts.write_waits, counts.destaged_chunks
        )
        .into());
    }
    end(&cache, &runtime)?;
    Ok(result)
}

/// Measures (e).
pub fn duplicate(bench: &Options) -> Res<Vec<Row>> {
    let _one = OneCore::pin()?;
    let source = Source::new(DataKind::Text, CHUNK_BYTES, 4);
    let bytes = bench.scaled(2 * ROUND_BYTES);
    let mut rows = Vec::new();
    for (id, request, aim) in [("e", CHUNK_BYTES, true), ("e.128K", 128 << 10, false)] {
        let runtime = runtime(0);
        let cache = open_cache(&runtime, 1 << 30)?;
        let pieces = source.pieces(0, bytes);
        block_on(write_all(&cache, &pieces, 0, request, true))?;
        let stored = cache.status().counts.stored_records;
        let result = compare(bench.rounds(), |round, side| {
            time(|| {
                match side {
                    // Two regions in turn, so that a round also replaces mappings, as a rewrite
                    // does.
                    Side::Ours => {
                        let at = (1 + round % 2) * bytes;
                        block_on(write_all(&cache, &pieces, at as u64, request, true))?;
                    }
                    Side::Base => hash_all(&pieces, false),
                }
                Ok(bytes as f64)
            })
        })?;
        let counts = cache.status().counts;
        if counts.stored_records > stored || counts.write_waits > 0 {
            return Err(format!(
                "{} chunks stored again and {} waits where there should be none",
                counts.stored_records - stored,
                counts.write_waits
            )
            .into());
        }
        end(&cache, &runtime)?;
        let what = format!(
            "duplicate writes of {} KiB, 8 KiB chunks, one core: {:.0} MiB/s against {:.0} of the hash (by CPU time \
             {:.3}): ratio",
            request >> 10,
            result.ours / MIB,
            result.base / MIB,
            result.cpu_ratio
        );
        rows.push(match aim {
            true => Row::aimed(id, what, result.ratio, Aim::AtLeast(DUPLICATE_AIM)),
            false => Row::told(id, what, result.ratio),
        });
    }
    Ok(rows)
}

async fn write_all(
    cache: &Cache,
    pieces: &[SharedBuf],
    start: u64,
    request: usize,
    flush: bool,
) -> Result<(), EngineError> {
    for (i, piece) in pieces.iter().enumerate() {
        let at = start + (i * PIECE_BYTES) as u64;
        for from in (0..piece.len()).step_by(request) {
            cache.write(at + from as u64, piece.slice(from..from + request), WriteFlags::default()).await?;
        }
    }
    if flush { cache.flush().await } else { Ok(()) }
}

fn hash_all(pieces: &[SharedBuf], compress: bool) {
    let mut scratch = vec![0; CHUNK_BYTES * 2];
    for piece in pieces {
        for chunk in piece.chunks(CHUNK_BYTES) {
            black_box(blake3::keyed_hash(&KEY, chunk));
            if compress {
                // This size also suffices for a chunk that does not shrink.
                let _ = black_box(lz4::block::compress_to_buffer(chunk, None, false, &mut scratch));
            }
        }
    }
}
