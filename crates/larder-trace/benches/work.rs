//! The speed of chunking, re-chunking, counting, generating and writing: records a second, on one
//! core.
//!
//! It does not judge. Run with `cargo bench -p larder-trace --bench work`.

use std::io::sink;

use divan::{Bencher, counter::ItemsCount};
use larder_trace::{
    Compressibility, ContentWriter, InfoCollector, Op, RechunkOptions, Rechunker, Record, TraceResult, chunks, convert,
    generate::{PROFILES, ProfileTrace, ZipfConfig, ZipfTrace},
    rng::TraceRng,
};

const RECORDS: u64 = 500_000;

fn main() {
    divan::main();
}

/// Returns blocks of 4 KiB over a working set of 512 MiB.
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

/// Returns requests of 16 consecutive blocks, strewn over 512 MiB, of which nearly all is touched.
fn trace_of_runs() -> Vec<Record> {
    let mut rng = TraceRng::new(1);
    let blocks = trace().into_iter().filter_map(|record| record.content);
    let mut first = 0;
    let record = |(n, content)| {
        if n % 16 == 0 {
            first = rng.below((512 << 20) / 4096 - 16);
        }
        let op = if n / 16 % 3 == 0 { Op::Write } else { Op::Read };
        Record { content: Some(content), ..Record::new(n / 16, op, (first + n % 16) * 4096, 4096) }
    };
    (0u64..).zip(blocks).map(record).collect()
}

fn both_passes(trace: &[Record], kib: u32) -> usize {
    let mut rechunker = Rechunker::new(RechunkOptions::new(kib << 10)).expect("sound");
    rechunker.learn(trace.iter().copied().map(Ok)).expect("pass 1");
    rechunker.replay(trace.iter().copied().map(Ok)).count()
}

#[divan::bench(args = [8, 32, 128])]
fn rechunk_both_passes(bencher: Bencher<'_, '_>, kib: u32) {
    let trace = trace();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| both_passes(&trace, kib));
}

#[divan::bench(args = [8, 32, 128])]
fn rechunk_runs(bencher: Bencher<'_, '_>, kib: u32) {
    let trace = trace_of_runs();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| both_passes(&trace, kib));
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
