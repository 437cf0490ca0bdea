//! Replay speed of AustereCache: requests a second on one core.
//!
//! Indices, metadata slots and counting are included. It does not judge, or time the reading of a
//! trace. Run with `cargo bench -p larder-sim --bench austere`.

mod common;

use common::{BLOCK, CHUNK, CacheRequest, bench, published, requests, w106};
use divan::Bencher;
use larder_core::austere::AustereConfig;
use larder_sim::{austere::AustereCache, cache::WritePolicy};

fn main() {
    divan::main();
}

fn replay(bencher: Bencher<'_, '_>, requests: &[CacheRequest], config: AustereConfig, policy: WritePolicy) {
    bench(bencher, requests, AustereCache::new(config, policy).expect("a cache"));
}

/// Replays over a flash of half the working set.
fn synthetic(bencher: Bencher<'_, '_>, chunks: u64, has_compression: bool, policy: WritePolicy) {
    let config = AustereConfig::new(chunks / 2 * u64::from(CHUNK), CHUNK, has_compression);
    replay(bencher, &requests(chunks), config, policy);
}

/// Replays the trace of the authors' generator over a flash of a quarter of its working set.
///
/// The trace lies beside the checkout.
#[divan::bench(args = [true, false], sample_count = 20)]
fn published_trace(bencher: Bencher<'_, '_>, has_compression: bool) {
    let Some(requests) = published() else { return };
    let config = AustereConfig::new(1024 * u64::from(CHUNK), CHUNK, has_compression);
    replay(bencher, &requests, config, WritePolicy::Through);
}

/// Working sets of 128 MiB, as in the paper, and of 8 GiB.
const CHUNKS: [u64; 2] = [4096, 262_144];

#[divan::bench(args = CHUNKS, sample_count = 10)]
fn write_through_compressed(bencher: Bencher<'_, '_>, chunks: u64) {
    synthetic(bencher, chunks, true, WritePolicy::Through);
}

#[divan::bench(args = CHUNKS, sample_count = 10)]
fn write_through(bencher: Bencher<'_, '_>, chunks: u64) {
    synthetic(bencher, chunks, false, WritePolicy::Through);
}

#[divan::bench(args = CHUNKS, sample_count = 10)]
fn write_back_compressed(bencher: Bencher<'_, '_>, chunks: u64) {
    synthetic(bencher, chunks, true, WritePolicy::Back);
}

/// Replays reads of 4 KiB over 50,000 chunks, without compression.
#[divan::bench(sample_count = 9, sample_size = 1)]
fn w106_reads(bencher: Bencher<'_, '_>) {
    let Some(requests) = w106() else { return };
    let config = AustereConfig::new(50_000 * u64::from(BLOCK), BLOCK, false);
    replay(bencher, &requests, config, WritePolicy::Through);
}
