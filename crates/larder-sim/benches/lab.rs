//! Replay speed of each design of the laboratory on one core, as `larder-lab sim run` replays.
//!
//! One replay is w106 over 50,000 chunks: 5.29 million references, each address with content of its
//! own. The other is the trace of AustereCache's authors over 1,024 chunks. The requests are in
//! memory. The figure is requests a second, and includes the making and the measuring of the cache.
//!
//! Before that, the bench counts the bytes that such a replay allocates beside the design's own,
//! for each unique block. It also runs the second trace with a clock: cache, simulated drive and
//! origin on one clock, 16 requests outstanding.
//!
//! It does not judge, or measure the reading of a trace; tests/replay_ram.rs has figures for that.
//! Run with `cargo bench -p larder-sim --bench lab`; it wants the traces beside the checkout.

#[path = "../../larder-ssd/tests/common/live.rs"]
mod live;

use std::{collections::HashSet, path::Path, sync::OnceLock};

use divan::{Bencher, counter::ItemsCount};
use larder_sim::{
    cache::{CacheRequest, WritePolicy},
    lab::LabListener,
    measure::{Measures, Meter},
    origin::{OriginModel, profile::OriginProfile},
    replay::{BATCH_REQUESTS, Batches},
    setup::{Built, FlashAmount, Options, REPLAY_DESIGNS, ReplayDesign, Setup, drive::DriveSetup},
    whole::{ClientRequest, ReplayPace, Whole, figures::TimedFigures},
};
use larder_ssd::{kinds::FtlKind, profile::DriveProfile};
use larder_trace::{FormatId, Op, ReaderOptions};

#[global_allocator]
static ALLOCATOR: live::Counting = live::Counting;

static W106: OnceLock<Vec<CacheRequest>> = OnceLock::new();
static SYNTHETIC: OnceLock<Vec<CacheRequest>> = OnceLock::new();

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces/public"));
    let Some(traces) = folders.find(|path| path.is_dir()) else {
        println!("skipped: lab (no folder shared/traces beside the checkout)");
        return;
    };
    W106.get_or_init(|| read(&traces.join("cloudphysics/w106.trace.xz"), Some(FormatId::BlockIds), 4096));
    SYNTHETIC.get_or_init(|| read(&traces.join("austere-synthetic/syn-rw7to3-dup50.txt.zst"), None, 32 << 10));
    // A run that only lists or tries out the benches measures nothing.
    if std::env::args().any(|word| word == "--bench") {
        ram("w106", 4096, 50_000, W106.get());
        ram("synthetic", 32 << 10, 1024, SYNTHETIC.get());
    }
    divan::main();
}

/// Prints the peak of the bytes that replays allocate beside the design's final index.
///
/// One figure is for the flash of the bench, one for a flash for the whole trace.
fn ram(trace: &str, chunk_bytes: u32, chunks: u64, requests: Option<&Vec<CacheRequest>>) {
    let requests = requests.map_or(&[][..], Vec::as_slice);
    let (mut addresses, mut contents) = (HashSet::new(), HashSet::new());
    for request in requests {
        if let CacheRequest::Read(lba, content) | CacheRequest::Write(lba, content) = request {
            addresses.insert(lba.0);
            contents.insert(content.fingerprint.0);
        }
    }
    // A block is a content at an address. It is unique if its content is.
    let (addresses, blocks) = (addresses.len() as u64, contents.len() as u64);
    println!(
        "{trace}, {blocks} unique blocks at {addresses} addresses: bytes a unique block beside the index (aim: at most 48)"
    );
    for name in names() {
        let beside = |chunks| {
            let (bytes, measures) = live::peak(|| replay(&setup(name, chunk_bytes, chunks), requests));
            bytes.saturating_sub(measures.figures.index_ram_bytes) as f64 / blocks.max(1) as f64
        };
        println!("  {name:<8} {:5.1} over {chunks} chunks, {:5.1} over {addresses}", beside(chunks), beside(addresses));
    }
}

fn setup(name: &str, chunk_bytes: u32, chunks: u64) -> Setup {
    Setup {
        design: ReplayDesign::named(name).expect("a design"),
        chunk_bytes,
        flash: FlashAmount::DataChunks(chunks),
        policy: WritePolicy::Through,
        options: Options::default(),
    }
    .by_its_paper()
}

fn read(path: &Path, format: Option<FormatId>, chunk_bytes: u32) -> Vec<CacheRequest> {
    let records = larder_trace::open(path, format, ReaderOptions::default()).expect("opens");
    let mut batches = Batches::new(larder_trace::chunks(records, chunk_bytes).expect("a size"), chunk_bytes);
    let mut all = Vec::new();
    loop {
        match batches.next_batch().expect("a sound trace") {
            [] => return all,
            batch => all.extend(batch),
        }
    }
}

fn replay(setup: &Setup, requests: &[CacheRequest]) -> Measures {
    let mut meter = Meter::new(setup.build(0).expect("a cache"), setup.chunk_bytes, 0);
    requests.chunks(BATCH_REQUESTS).for_each(|batch| meter.take(batch));
    meter.finish()
}

fn bench(bencher: Bencher<'_, '_>, name: &str, chunk_bytes: u32, chunks: u64, requests: Option<&Vec<CacheRequest>>) {
    let setup = setup(name, chunk_bytes, chunks);
    let requests = requests.map_or(&[][..], Vec::as_slice);
    bencher.counter(ItemsCount::new(requests.len())).bench(|| replay(&setup, requests));
}

fn names() -> impl Iterator<Item = &'static str> {
    REPLAY_DESIGNS.iter().map(|design| design.name)
}

#[divan::bench(args = names(), sample_count = 5, sample_size = 1)]
fn w106(bencher: Bencher<'_, '_>, name: &str) {
    bench(bencher, name, 4096, 50_000, W106.get());
}

#[divan::bench(args = names(), sample_count = 5, sample_size = 1)]
fn synthetic(bencher: Bencher<'_, '_>, name: &str) {
    bench(bencher, name, 32 << 10, 1024, SYNTHETIC.get());
}

/// More than the disk of either trace.
const ORIGIN_BYTES: u64 = 1 << 40;

fn timed(setup: &Setup, ftl: &FtlKind, requests: &[CacheRequest]) -> TimedFigures {
    let Built { cache, drive, .. } = setup.build(0).expect("a cache");
    let origin =
        OriginModel::new(&OriginProfile::named("nvme-ssd").expect("it is one"), ORIGIN_BYTES).expect("it is sound");
    let mut whole = Whole::beside(cache, drive.expect("it was asked for"), ftl, origin).expect("it fits");
    let clients = requests.iter().map(|request| {
        let op = match request {
            CacheRequest::Read(..) => Op::Read,
            CacheRequest::Write(..) => Op::Write,
            CacheRequest::Trim(..) | CacheRequest::Forget(..) => Op::Trim,
            CacheRequest::Flush => Op::Flush,
        };
        Ok(ClientRequest { at: None, op, chunks: vec![*request] })
    });
    whole.run(clients, ReplayPace::Full(16), 0).expect("no time is asked of the trace")
}

/// Times one design of each kind. The others differ in their decisions, which the benches above
/// time.
#[divan::bench(args = ["nitro", "d-lru", "austere"], sample_count = 3, sample_size = 1)]
fn synthetic_with_a_clock(bencher: Bencher<'_, '_>, name: &str) {
    let ftl = FtlKind::named("page-trim").expect("it is one");
    let drive = DriveSetup::new(DriveProfile::named("nitro-mlc").expect("it is one"), ftl);
    let mut setup = setup(name, 32 << 10, 1024);
    setup.options.drive = Some(drive);
    let requests = SYNTHETIC.get().map_or(&[][..], Vec::as_slice);
    bencher.counter(ItemsCount::new(requests.len())).bench(|| timed(&setup, ftl, requests));
}
