//! (h) RAM for each mapped chunk: the bytes really allocated, and the figure of the status.
//!
//! A cache of about a million mapped 4 KiB chunks is filled under a counting allocator. Flash and
//! origin forget their data, and a first cache fills the pools of buffers. The count covers all
//! that the open cache holds: indices, slots, versions, queues, open WEUs. Dirty chunks come from
//! write-back, clean ones from write-through.

use crate::{
    alloc::Live,
    caches::{end, no_destaging, options_to_fill, runtime},
    data::{DataKind, PIECE_BYTES, Source},
    devices::Sink,
    measure::Res,
    options::Options,
    report::Row,
};
use larder_device::{IoBuf, WriteFlags, driver::block_on};
use larder_engine::{Cache, Compression, WriteMode, create};
use std::sync::Arc;

const CHUNK_BYTES: usize = 4096;
const CHUNKS: usize = 1 << 20;
/// Flash with room for them all.
const FLASH_BYTES: u64 = 6 << 30;
const ORIGIN_BYTES: u64 = 16 << 30;
/// More than the metadata area of the flash.
const KEPT_BYTES: u64 = 1 << 30;

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let chunks = bench.scaled(CHUNKS);
    filled(CHUNKS / 64, 1, WriteMode::Back)?;
    filled(CHUNKS / 64, 1, WriteMode::Through)?;
    let mut rows = Vec::new();
    for (id, what, copies, mode) in [
        ("h.unique", "unique, clean", 1, WriteMode::Through),
        ("h.dup", "50% duplicates, clean", 2, WriteMode::Through),
        ("h.unique.dirty", "unique, dirty", 1, WriteMode::Back),
        ("h.dup.dirty", "50% duplicates, dirty", 2, WriteMode::Back),
    ] {
        let (mapped, allocated, told) = filled(chunks, copies, mode)?;
        let text = format!("RAM a mapped chunk, {what}, {mapped} of them: bytes allocated (status says {told:.1})");
        rows.push(Row::told(id, text, allocated));
    }
    Ok(rows)
}

/// Returns the mapped chunks, and for each of them the bytes allocated and the bytes of the status.
fn filled(chunks: usize, copies: u64, mode: WriteMode) -> Res<(u64, f64, f64)> {
    let source = Source::new(DataKind::Noise, CHUNK_BYTES, 9);
    let flash = Arc::new(Sink::new(FLASH_BYTES, KEPT_BYTES));
    let origin = Arc::new(Sink::new(ORIGIN_BYTES, 0));
    let runtime = runtime(0);
    block_on(create(
        &*flash,
        ORIGIN_BYTES,
        &larder_engine::CreateOptions { mode, ..options_to_fill(CHUNK_BYTES, Compression::Off) },
    ))?;
    // The log's own memory is in the device: touch it before counting starts.
    touch(&flash)?;
    let live = Live::begin();
    let cache = block_on(Cache::open(flash, origin, runtime.clone(), no_destaging()))?;
    for at in (0..chunks * CHUNK_BYTES).step_by(PIECE_BYTES) {
        // Every piece is written `copies` times, at as many places.
        let number = at / PIECE_BYTES / copies as usize * (PIECE_BYTES / CHUNK_BYTES);
        cache_write(&cache, at as u64, source.piece(number as u64))?;
        // A later write may share a version with a chunk that waits to be inserted, and outdate it.
        if mode == WriteMode::Through {
            block_on(cache.wait_for_insertions());
        }
    }
    block_on(async {
        cache.wait_for_insertions().await;
        cache.flush().await?;
        cache.checkpoint().await
    })?;
    let status = cache.status();
    let mapped = status.logical_bytes_cached / CHUNK_BYTES as u64;
    let result = (mapped, live.bytes() as f64 / mapped as f64, status.index_ram_bytes as f64 / mapped as f64);
    drop(live);
    if (mapped as usize) < chunks * 99 / 100 {
        let (dropped, stale) = (status.counts.insertions_dropped, status.counts.insertions_stale);
        return Err(format!("{mapped} of {chunks} chunks are mapped; {dropped} were dropped, {stale} stale").into());
    }
    end(&cache, &runtime)?;
    Ok(result)
}

fn cache_write(cache: &Cache, at: u64, piece: IoBuf) -> Res<()> {
    Ok(block_on(cache.write(at, piece.freeze(), WriteFlags::default()))?)
}

/// Writes the bytes that the device keeps, as they are.
fn touch(flash: &Sink) -> Res<()> {
    use larder_device::BlockDevice;
    let mut buf = IoBuf::new(PIECE_BYTES);
    for at in (0..KEPT_BYTES).step_by(PIECE_BYTES) {
        buf = block_on(flash.read(at, buf))?;
        let data = IoBuf::copy_of(&buf).freeze();
        block_on(flash.write(at, data, WriteFlags::default()))?;
    }
    Ok(())
}
