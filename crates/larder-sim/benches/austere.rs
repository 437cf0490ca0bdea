//! How fast AustereCache replays: requests a second on one core, indices, metadata slots and counting included.
//!
//! What it does not do: judge, or time the reading of a trace. Run with `cargo bench -p larder-sim --bench austere`.

use std::path::Path;

use divan::{Bencher, counter::ItemsCount};
use larder_core::{Fingerprint, Lba, austere::AustereConfig};
use larder_sim::{
    austere::AustereCache,
    cache::{Content, ReplayCache, WritePolicy},
};
use larder_trace::{Op, OpenOptions, Record, TraceResult};

const CHUNK: u32 = 32 << 10;
const REQUESTS: usize = 1 << 19;

fn main() {
    divan::main();
}

/// A number that looks random.
fn mix(n: u64) -> u64 {
    let z = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9);
    (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 7
}

/// As the paper's generator (§5.1): `chunks` addresses by a Zipf distribution of constant 1.0, seven writes to three reads, half
/// of the writes of a content that another address has.
fn requests(chunks: u64) -> Vec<Request> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=chunks)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut volume: Vec<u64> = (0..chunks).map(|chunk| mix(chunk + (1 << 40))).collect();
    (0..REQUESTS as u64)
        .map(|n| {
            let at = (mix(n * 4) % (1 << 52)) as f64 / (1u64 << 52) as f64 * sum;
            let rank = cumulative.partition_point(|&below| below < at).min(chunks as usize - 1);
            let is_read = mix(n * 4 + 1) % 10 < 3;
            if !is_read {
                let is_duplicate = mix(n * 4 + 2).is_multiple_of(2);
                let other = volume[(mix(n * 4 + 3) % chunks) as usize];
                volume[rank] = if is_duplicate { other } else { mix(n + (1 << 41)) };
            }
            let content = volume[rank];
            // A third to all of the chunk.
            let stored_bytes = CHUNK / 3 + (mix(content) % u64::from(CHUNK / 3 * 2)) as u32;
            let fingerprint = Fingerprint((u128::from(content) << 64 | u128::from(mix(content))).to_le_bytes());
            (is_read, Lba(mix(rank as u64) % (1 << 30)), Content { fingerprint, stored_bytes })
        })
        .collect()
}

/// A request: whether it reads, where, and what is there then.
type Request = (bool, Lba, Content);

/// Over and over, so that the cache is warm.
fn replay(bencher: Bencher<'_, '_>, requests: &[Request], config: AustereConfig, policy: WritePolicy) {
    let mut cache = AustereCache::new(config, policy).expect("a cache");
    bencher.counter(ItemsCount::new(requests.len())).bench_local(|| {
        let mut hits = 0;
        for (is_read, lba, content) in requests {
            hits += u64::from(if *is_read { cache.read(*lba, content) } else { cache.write(*lba, content) });
        }
        hits
    });
}

/// A flash of half the working set.
fn synthetic(bencher: Bencher<'_, '_>, chunks: u64, has_compression: bool, policy: WritePolicy) {
    let config = AustereConfig::new(chunks / 2 * u64::from(CHUNK), CHUNK, has_compression);
    replay(bencher, &requests(chunks), config, policy);
}

/// The trace of the authors' generator beside the checkout, over a flash of a quarter of its working set.
#[divan::bench(args = [true, false])]
fn published_trace(bencher: Bencher<'_, '_>, has_compression: bool) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = "shared/traces/public/austere-synthetic/syn-rw7to3-dup50.txt.zst";
    let Some(path) = here.ancestors().skip(2).take(2).map(|root| root.join(name)).find(|path| path.is_file()) else {
        return println!("skipped: no folder shared/traces beside the checkout");
    };
    let request = |record: TraceResult<Record>| {
        let record = record.expect("a record");
        let content = record.content.expect("content");
        let fingerprint = Fingerprint(content.fingerprint.to_u128().to_be_bytes());
        let content = Content { fingerprint, stored_bytes: content.stored_bytes.expect("a size") };
        (record.op == Op::Read, Lba(record.offset_bytes / u64::from(CHUNK)), content)
    };
    let trace = larder_trace::open(&path, None, OpenOptions::default()).expect("opens");
    let requests: Vec<Request> = trace.map(request).collect();
    let config = AustereConfig::new(1024 * u64::from(CHUNK), CHUNK, has_compression);
    replay(bencher, &requests, config, WritePolicy::Through);
}

/// Working sets of 128 MiB, as in the paper, and of 8 GiB.
const CHUNKS: [u64; 2] = [4096, 262_144];

#[divan::bench(args = CHUNKS)]
fn write_through_compressed(bencher: Bencher<'_, '_>, chunks: u64) {
    synthetic(bencher, chunks, true, WritePolicy::Through);
}

#[divan::bench(args = CHUNKS)]
fn write_through(bencher: Bencher<'_, '_>, chunks: u64) {
    synthetic(bencher, chunks, false, WritePolicy::Through);
}

#[divan::bench(args = CHUNKS)]
fn write_back_compressed(bencher: Bencher<'_, '_>, chunks: u64) {
    synthetic(bencher, chunks, true, WritePolicy::Back);
}
