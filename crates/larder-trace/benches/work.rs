//! How fast records are chunked, re-chunked, counted, generated and written: records a second, on one core.
//!
//! What it does not do: judge. Run with `cargo bench -p larder-trace --bench work`.

use std::io::sink;

use divan::{Bencher, counter::ItemsCount};
use larder_trace::{
    Compressibility, ContentWriter, InfoCollector, RechunkOptions, Rechunker, Record, TraceResult, chunks, convert,
    generate::{PROFILES, ProfileTrace, ZipfConfig, ZipfTrace},
};

const RECORDS: u64 = 500_000;

fn main() {
    divan::main();
}

/// Blocks of 4 KiB over a working set of 512 MiB.
fn config() -> ZipfConfig {
    ZipfConfig { chunk_bytes: 4096, working_set_bytes: 512 << 20, requests: RECORDS, ..ZipfConfig::default() }
}

fn trace() -> Vec<Record> {
    ZipfTrace::new(config()).expect("sound").collect::<TraceResult<_>>().expect("records")
}

#[divan::bench]
fn chunk(bencher: Bencher<'_, '_>) {
    let trace = trace();
    let count = || chunks(trace.iter().copied().map(Ok), 4096).expect("sound").count();
    bencher.counter(ItemsCount::new(RECORDS)).bench(count);
}

#[divan::bench(args = [8, 32, 128])]
fn rechunk_both_passes(bencher: Bencher<'_, '_>, kib: u32) {
    let trace = trace();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| {
        let mut rechunker = Rechunker::new(RechunkOptions::new(kib << 10)).expect("sound");
        rechunker.learn(trace.iter().copied().map(Ok)).expect("pass 1");
        rechunker.replay(trace.iter().copied().map(Ok)).count()
    });
}

#[divan::bench]
fn info(bencher: Bencher<'_, '_>) {
    let trace = trace();
    bencher
        .counter(ItemsCount::new(RECORDS))
        .bench(|| InfoCollector::collect(None, trace.iter().copied().map(Ok)).expect("statistics").blocks);
}

#[divan::bench]
fn generate_zipf(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| ZipfTrace::new(config()).expect("sound").count());
}

#[divan::bench]
fn generate_profile(bencher: Bencher<'_, '_>) {
    let make = || ProfileTrace::new(PROFILES[0], 0.035, Compressibility::default(), 1).expect("sound");
    bencher.counter(ItemsCount::new(make().requests())).bench(|| make().count());
}

#[divan::bench]
fn write_content(bencher: Bencher<'_, '_>) {
    let trace = trace();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| {
        convert(trace.iter().copied().map(Ok), ContentWriter::new(sink()).expect("a writer")).expect("written").records
    });
}
