//! The shared parts of the benches of replays: traces in memory, and repeated replays.

#![allow(dead_code, reason = "each bench takes what it needs")]

use std::path::{Path, PathBuf};

use divan::{Bencher, counter::ItemsCount};
use larder_core::{Fingerprint, Lba, types::mix};
use larder_sim::{
    cache::{Content, ReplayCache},
    replay::own_content,
};
use larder_trace::{FormatId, Op, ReaderOptions, Record, TraceResult};

/// Bytes of a chunk of the synthetic traces.
pub const CHUNK: u32 = 32 << 10;
/// Bytes of a chunk of w106.
pub const BLOCK: u32 = 4096;
const REQUESTS: usize = 1 << 19;

/// A request: true if it reads, its address, and the content there afterwards.
pub type CacheRequest = (bool, Lba, Content);

/// Returns the path of a trace beside the checkout, or prints a line and returns `None`.
pub fn trace(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = format!("shared/traces/public/{name}");
    let found = here.ancestors().skip(2).take(2).map(|root| root.join(&name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: no folder shared/traces beside the checkout");
    }
    found
}

/// Returns the references of w106, each a read of content of its own.
pub fn w106() -> Option<Vec<CacheRequest>> {
    let path = trace("cloudphysics/w106.trace.xz")?;
    let records = larder_trace::open(&path, Some(FormatId::BlockIds), ReaderOptions::default());
    let chunks = larder_trace::chunks(records.expect("opens"), BLOCK).expect("a size of chunks");
    let request = |lba| (true, lba, own_content(lba, BLOCK));
    Some(chunks.map(|chunk| request(Lba(chunk.expect("a record").lba))).collect())
}

/// Returns the trace of the generator of AustereCache's authors.
pub fn published() -> Option<Vec<CacheRequest>> {
    let path = trace("austere-synthetic/syn-rw7to3-dup50.txt.zst")?;
    let request = |record: TraceResult<Record>| {
        let record = record.expect("a record");
        let content = record.content.expect("content");
        let fingerprint = Fingerprint(content.fingerprint.to_u128().to_be_bytes());
        let content = Content { fingerprint, stored_bytes: content.stored_bytes.expect("a size") };
        (record.op == Op::Read, Lba(record.offset_bytes / u64::from(CHUNK)), content)
    };
    Some(larder_trace::open(&path, None, ReaderOptions::default()).expect("opens").map(request).collect())
}

/// Makes all requests, and returns the number of hits.
pub fn replay(cache: &mut impl ReplayCache, requests: &[CacheRequest]) -> u64 {
    let mut hits = 0;
    for (is_read, lba, content) in requests {
        hits += u64::from(if *is_read { cache.read(*lba, content) } else { cache.write(*lba, content) });
    }
    hits
}

/// Replays the requests over and over, so that the cache is warm.
pub fn bench(bencher: Bencher<'_, '_>, requests: &[CacheRequest], mut cache: impl ReplayCache) {
    bencher.counter(ItemsCount::new(requests.len())).bench_local(|| replay(&mut cache, requests));
}

/// Makes requests like the paper's generator (§5.1).
///
/// Addresses follow a Zipf distribution of constant 1.0 over `chunks`. There are seven writes to
/// three reads, and half of the writes have a content of another address.
pub fn requests(chunks: u64) -> Vec<CacheRequest> {
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
