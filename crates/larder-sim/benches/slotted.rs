//! Replay speed of the designs with equal slots: requests a second on one core.
//!
//! The trace is w106 (5.29 million references) over 50,000 chunks, in memory. Each address has
//! content of its own, and a hit is a read.
//!
//! It does not judge. Run with `cargo bench -p larder-sim`; it wants the traces beside the
//! checkout.

use std::{path::Path, sync::OnceLock};

use divan::{Bencher, counter::ItemsCount};
use larder_core::{
    Fingerprint, Lba,
    arc::Arc,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{FlashSize, Slotted},
};
use larder_sim::{
    cache::{Content, ReplayCache, WritePolicy},
    slotted::SlottedCache,
    tally::Tally,
};

const CHUNK_BYTES: u32 = 4096;
const CHUNKS: u64 = 50_000;

static TRACE: OnceLock<Vec<u32>> = OnceLock::new();

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files =
        here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces/public/cloudphysics/w106.trace.xz"));
    let Some(path) = files.find(|path| path.is_file()) else {
        println!("skipped: slotted (no folder shared/traces beside the checkout)");
        return;
    };
    let records =
        larder_trace::open(&path, Some(larder_trace::FormatId::BlockIds), larder_trace::ReaderOptions::default())
            .expect("opens");
    let chunks = larder_trace::chunks(records, CHUNK_BYTES).expect("a size of chunks");
    let trace = TRACE.get_or_init(|| chunks.map(|chunk| chunk.expect("a record").lba as u32).collect());
    tell("lru", new_lru, trace);
    tell("arc", new_arc, trace);
    tell("d-lru", new_d_lru, trace);
    tell("d-arc", new_d_arc, trace);
    divan::main();
}

fn replay<D: Slotted>(design: D, trace: &[u32]) -> (Tally, SlottedCache<D>) {
    let mut cache = SlottedCache::new(design, WritePolicy::Through, CHUNK_BYTES);
    let mut tally = Tally::default();
    for &lba in trace {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&lba.to_le_bytes());
        let content = Content { fingerprint: Fingerprint(bytes), stored_bytes: CHUNK_BYTES };
        tally.read(cache.read(Lba(u64::from(lba)), &content));
    }
    (tally, cache)
}

fn bench<D: Slotted>(bencher: Bencher<'_, '_>, design: fn() -> D) {
    let trace = TRACE.get().map_or(&[][..], Vec::as_slice);
    bencher.counter(ItemsCount::new(trace.len())).bench(|| replay(design(), trace).0);
}

/// Prints the final figures of a replay, which show that the bench measures the intended replay.
fn tell<D: Slotted>(name: &str, design: fn() -> D, trace: &[u32]) {
    let (tally, cache) = replay(design(), trace);
    let ram_bytes = cache.figures().index_ram_bytes;
    println!("{name}: miss ratio {:.4}, index RAM {ram_bytes} bytes", tally.total_miss_ratio());
}

fn new_lru() -> Lru {
    Lru::new(CHUNKS).expect("a size")
}

fn new_arc() -> Arc {
    Arc::new(CHUNKS).expect("a size")
}

fn new_d_lru() -> DLru {
    DLru::for_flash(FlashSize::DataChunks(CHUNKS), CHUNK_BYTES).expect("a size")
}

fn new_d_arc() -> DArc {
    DArc::for_flash(FlashSize::DataChunks(CHUNKS), CHUNK_BYTES).expect("a size")
}

#[divan::bench(sample_count = 9, sample_size = 1)]
fn lru(bencher: Bencher<'_, '_>) {
    bench(bencher, new_lru);
}

#[divan::bench(sample_count = 9, sample_size = 1)]
fn arc(bencher: Bencher<'_, '_>) {
    bench(bencher, new_arc);
}

#[divan::bench(sample_count = 9, sample_size = 1)]
fn d_lru(bencher: Bencher<'_, '_>) {
    bench(bencher, new_d_lru);
}

#[divan::bench(sample_count = 9, sample_size = 1)]
fn d_arc(bencher: Bencher<'_, '_>) {
    bench(bencher, new_d_arc);
}
