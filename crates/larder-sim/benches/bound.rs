//! Speed of the offline bound: requests a second, on one core.
//!
//! It does not judge. Run with `cargo bench -p larder-sim --bench bound`.

use divan::{Bencher, counter::ItemsCount};
use larder_core::Fingerprint;
use larder_sim::{
    bound::{BoundCollector, BoundTrace, Zeroes},
    cache::Content,
};
use larder_trace::{
    Op, Record, TraceResult,
    generate::{ZipfConfig, ZipfTrace},
};

const REQUESTS: u64 = 1_000_000;

fn main() {
    divan::main();
}

/// Makes requests for chunks of 4 KiB over a working set of 512 MiB.
fn records() -> Vec<Record> {
    let config =
        ZipfConfig { chunk_bytes: 4096, working_set_bytes: 512 << 20, requests: REQUESTS, ..ZipfConfig::default() };
    ZipfTrace::new(config).expect("sound").collect::<TraceResult<_>>().expect("records")
}

fn collect(records: &[Record]) -> BoundTrace {
    let mut collector = BoundCollector::new(Zeroes::Free);
    for record in records {
        let known = record.content.expect("the generator makes content");
        let fingerprint = Fingerprint(known.fingerprint.to_u128().to_be_bytes());
        let content = Content { fingerprint, stored_bytes: known.stored_bytes.unwrap_or(4096) };
        let taken = match record.op {
            Op::Read => collector.read(&content, known.is_zero),
            _ => collector.write(&content, known.is_zero),
        };
        taken.expect("fits");
    }
    collector.finish().addresses
}

#[divan::bench(sample_count = 10)]
fn collect_and_finish(bencher: Bencher<'_, '_>) {
    let records = records();
    bencher.counter(ItemsCount::new(REQUESTS)).bench(|| collect(&records));
}

#[divan::bench(args = [1, 10, 50], sample_count = 10)]
fn in_chunks(bencher: Bencher<'_, '_>, percent: u64) {
    let trace = collect(&records());
    bencher
        .counter(ItemsCount::new(REQUESTS))
        .bench(|| trace.read_hit_ratio_in_chunks((512 << 20) / 4096 * percent / 100));
}

#[divan::bench(args = [1, 2, 4], sample_count = 5)]
fn with_sizes(bencher: Bencher<'_, '_>, percent: u64) {
    let trace = collect(&records());
    bencher.counter(ItemsCount::new(REQUESTS)).bench(|| trace.with_sizes(&[(512 << 20) * percent / 100]));
}
