//! Makes, fills and reopens the measured caches.
//!
//! Invariants: a filled cache was closed and opened again, so that all of its data is on flash and
//! none in an open WEU.
//!
//! It does not choose sizes.

use crate::{
    data::{PIECE_BYTES, Source},
    measure::Res,
};
use larder_device::{
    BlockDevice, IoBuf, Runtime, WriteFlags, driver::block_on, threads::ThreadRuntime, threads::ThreadRuntimeOptions,
};
use larder_engine::{Cache, Compression, CreateOptions, Tuning, create};
use larder_format::DesignId;
use std::sync::Arc;

/// The distance of consecutive reads in chunks. It has no common divisor with a power of two.
const STRIDE: u64 = 7919;

/// Makes a real runtime with `workers` workers.
pub fn runtime(workers: usize) -> Arc<ThreadRuntime> {
    ThreadRuntime::new(ThreadRuntimeOptions { workers, name: "bench".into() })
}

/// Returns the options of a write-back cache.
pub fn options(chunk_bytes: usize, compression: Compression) -> CreateOptions {
    CreateOptions {
        chunk_bytes: chunk_bytes as u32,
        compression,
        flash_uuid: *b"larder-bench-run",
        hash_key: [7; 32],
        ..CreateOptions::default()
    }
}

/// Returns the options of a cache whose design stores each chunk, read again or not.
pub fn options_to_fill(chunk_bytes: usize, compression: Compression) -> CreateOptions {
    CreateOptions { design: DesignId::Nitro, ..options(chunk_bytes, compression) }
}

/// Returns tuning that leaves dirty data in the cache, so that no destaging disturbs a measurement.
pub fn no_destaging() -> Tuning {
    Tuning { dirty_low_percent: 97, dirty_high_percent: 98, dirty_max_percent: 99, ..Tuning::default() }
}

/// Writes `bytes` of `source` from offset 0 on, in requests of 1 MiB.
pub fn fill(cache: &Cache, source: &Source, chunk_bytes: usize, bytes: u64) -> Res<()> {
    block_on(async {
        for at in (0..bytes).step_by(PIECE_BYTES) {
            let piece = source.piece(at / chunk_bytes as u64).freeze();
            cache.write(at, piece, WriteFlags::default()).await?;
        }
        cache.flush().await
    })?;
    Ok(())
}

/// Makes a cache that holds `bytes` of `source`, all on flash.
pub fn filled(
    flash: Arc<dyn BlockDevice>,
    origin: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &CreateOptions,
    (source, bytes): (&Source, u64),
) -> Res<Cache> {
    let chunk_bytes = options.chunk_bytes as usize;
    block_on(create(&*flash, origin.info().size_bytes, options))?;
    let cache = block_on(Cache::open(flash.clone(), origin.clone(), runtime.clone(), no_destaging()))?;
    fill(&cache, source, chunk_bytes, bytes)?;
    cache.close_blocking()?;
    drop(cache);
    let cache = block_on(Cache::open(flash, origin, runtime, no_destaging()))?;
    let chunks = bytes / chunk_bytes as u64;
    // The order is no sequence that a prefetch would follow.
    for number in (0..chunks).map(|look| look * STRIDE % chunks) {
        let chunk = block_on(cache.read(number * chunk_bytes as u64, IoBuf::new(chunk_bytes)))?;
        if chunk.get(..8) != Some(&source.stamp(number)[..]) {
            return Err(format!("chunk {number} does not hold what was written").into());
        }
    }
    Ok(cache)
}

/// Closes a cache and ends its runtime, so that nothing of it lives on.
pub fn end(cache: &Cache, runtime: &ThreadRuntime) -> Res<()> {
    cache.close_blocking()?;
    runtime.shutdown();
    Ok(())
}

/// Fails if a cache that should only have hit asked its origin, or found damage.
pub fn only_hits(cache: &Cache) -> Res<()> {
    only_hits_since(cache, [0; 4])
}

/// Fails like [`only_hits`], counted from these values of [`not_hits`].
pub fn only_hits_since(cache: &Cache, before: [u64; 4]) -> Res<()> {
    let now = not_hits(cache);
    let [misses, damaged, errors, origin] = std::array::from_fn(|at| now[at] - before[at]);
    if misses + damaged + errors + origin > 0 {
        return Err(format!(
            "{misses} misses, {damaged} damaged records, {errors} flash errors and {origin} reads of the origin where there should be none"
        )
        .into());
    }
    Ok(())
}

/// Returns misses, damaged records, flash errors and reads of the origin.
pub fn not_hits(cache: &Cache) -> [u64; 4] {
    let counts = cache.status().counts;
    [counts.read_misses, counts.corrupt_records, counts.flash_read_errors, counts.origin_reads]
}
