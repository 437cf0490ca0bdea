//! Replay speed of the caches over WEUs, nitro and cd-arc: requests a second on one core.
//!
//! Indices, WEUs and counting are included. It does not judge, or time the reading of a trace. Run
//! with `cargo bench -p larder-sim --bench weu`.

mod common;

use common::{BLOCK, CHUNK, CacheRequest, bench, published, requests, w106};
use divan::Bencher;
use larder_core::{Design, DesignConfig, cd_arc::CdArc, nitro::Nitro, slotted::FlashSize};
use larder_sim::{
    cache::WritePolicy,
    executor::{
        Executor,
        sizing::{Granularity, WeuSizing},
    },
};

/// The designs, by name.
const OVER_WEUS: [&str; 2] = ["nitro", "cd-arc"];

fn main() {
    divan::main();
}

fn design(name: &str, config: DesignConfig) -> Box<dyn Design> {
    match name {
        "nitro" => Box::new(Nitro::new(config)),
        _ => Box::new(CdArc::new(config)),
    }
}

fn replay(bencher: Bencher<'_, '_>, name: &str, requests: &[CacheRequest], sizing: WeuSizing) {
    let options = sizing.options().expect("a size");
    bench(bencher, requests, Executor::new(|config| design(name, config), options).expect("a cache"));
}

/// Replays reads of 4 KiB over 50,000 chunks.
#[divan::bench(args = OVER_WEUS, sample_count = 9, sample_size = 1)]
fn w106_reads(bencher: Bencher<'_, '_>, name: &str) {
    let Some(requests) = w106() else { return };
    replay(bencher, name, &requests, WeuSizing::new(FlashSize::DataChunks(50_000), BLOCK, WritePolicy::Through));
}

/// Replays the same reads in extents of a chunk each.
#[divan::bench(sample_count = 9, sample_size = 1)]
fn w106_reads_in_extents(bencher: Bencher<'_, '_>) {
    let Some(requests) = w106() else { return };
    let weus = WeuSizing::new(FlashSize::DataChunks(50_000), BLOCK, WritePolicy::Through);
    replay(bencher, "nitro", &requests, WeuSizing { granularity: Granularity::Extent, compress: false, ..weus });
}

/// Replays the trace of AustereCache's authors over a flash of a quarter of its working set.
#[divan::bench(args = OVER_WEUS, sample_count = 20)]
fn published_trace(bencher: Bencher<'_, '_>, name: &str) {
    let Some(requests) = published() else { return };
    replay(bencher, name, &requests, WeuSizing::new(FlashSize::DataChunks(1024), CHUNK, WritePolicy::Through));
}

/// Replays over a working set of 8 GiB and a flash of half of it.
fn synthetic(bencher: Bencher<'_, '_>, name: &str, policy: WritePolicy) {
    const CHUNKS: u64 = 262_144;
    replay(bencher, name, &requests(CHUNKS), WeuSizing::new(FlashSize::DataChunks(CHUNKS / 2), CHUNK, policy));
}

#[divan::bench(args = OVER_WEUS, sample_count = 10)]
fn write_through(bencher: Bencher<'_, '_>, name: &str) {
    synthetic(bencher, name, WritePolicy::Through);
}

#[divan::bench(args = OVER_WEUS, sample_count = 10)]
fn write_back(bencher: Bencher<'_, '_>, name: &str) {
    synthetic(bencher, name, WritePolicy::Back);
}

/// Replays the same with far fewer addresses than chunks of room: all evicted chunks are dirty.
#[divan::bench(args = OVER_WEUS, sample_count = 10)]
fn write_back_with_few_addresses(bencher: Bencher<'_, '_>, name: &str) {
    const CHUNKS: u64 = 262_144;
    let sizing = WeuSizing::new(FlashSize::DataChunks(CHUNKS / 2), CHUNK, WritePolicy::Back);
    replay(bencher, name, &requests(CHUNKS), WeuSizing { lba_entries: Some(CHUNKS / 8), ..sizing });
}
