//! The simulator and the engine decide alike: the same requests, one after the other, hit and miss alike in both, one by one, and
//! write as many chunks to flash. Requests are drawn, and those of the real traces beside the checkout, where they are there:
//! the first so many chunks of each, or the first `LARDER_REQUESTS`.
//!
//! In write-back the origin gets what is dirty after each request: what a design lets go of while it is dirty the engine still
//! has, and hits, until then, which the simulator, without time, does not know.
//!
//! What it does not do: requests at the same time, whose order is the engine's own.

use larder_core::{
    Fingerprint, Lba,
    arc::Arc as ArcDesign,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{FlashSize, Slotted, spares},
};
use larder_device::{
    IoBuf, WriteFlags, ZeroFlags,
    rng::{Rng, mix64},
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{
    Cache, CreateOptions, Tuning, WriteMode, create,
    designs::{self, EngineDesign},
};
use larder_sim::{
    cache::{Content, ReplayCache, Request, WritePolicy},
    replay::Batches,
    slotted::SlottedCache,
};
use larder_trace::OpenOptions;
use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

const CHUNK: usize = 4096;
const CHUNKS: u64 = 600;
const REQUESTS: usize = 3000;
/// Chunks that are taken of each trace.
const TRACE_REQUESTS: usize = 6000;
const TRACES: [&str; 5] = [
    "apt-clones.trace.zst",
    "devbuild.trace.zst",
    "devbuild-smallmem.trace.zst",
    "postgres-tpcb.trace.zst",
    "vm-boot.trace.zst",
];
/// What a small flash has beside its slots.
const METADATA_BYTES: u64 = 640 << 10;
const MODES: [(WriteMode, WritePolicy); 3] = [
    (WriteMode::Back, WritePolicy::Back),
    (WriteMode::Through, WritePolicy::Through),
    (WriteMode::Around, WritePolicy::Around),
];

fn content_of(number: u64) -> Content {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Content { fingerprint: Fingerprint(bytes), stored_bytes: CHUNK as u32 }
}

/// The bytes of a content. Those that a number begins have zeroes for 0.
fn bytes_of(content: &Content) -> Vec<u8> {
    if content.is_zero() {
        return vec![0; CHUNK];
    }
    let half = |at| u64::from_le_bytes(std::array::from_fn(|i| content.fingerprint.0[at + i]));
    let seed = mix64(half(0)) ^ half(8);
    (0..CHUNK as u64 / 8).flat_map(|word| mix64(seed.wrapping_add(word << 32)).to_le_bytes()).collect()
}

/// Addresses and contents, of which few are frequent, as in a Zipf distribution; writes, reads and trims.
fn drawn(seed: u64) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    let skewed = |rng: &mut Rng, n: u64| (n as f64).powf(rng.below(1 << 20) as f64 / f64::from(1 << 20)) as u64 % n;
    let requests = (0..REQUESTS).map(|_| {
        let lba = Lba(mix64(skewed(&mut rng, CHUNKS)) % CHUNKS);
        match rng.below(100) {
            0..55 => Request::Read(lba, Content { fingerprint: Content::ZEROES, stored_bytes: CHUNK as u32 }),
            55..57 => Request::Trim(lba, 1),
            _ => Request::Write(lba, content_of(skewed(&mut rng, 900))),
        }
    });
    requests.collect()
}

/// The first chunks of a trace. Addresses are numbered as they come, so that the volume is small.
fn of_trace(path: &Path, count: usize) -> Vec<Request> {
    let records = larder_trace::open(path, None, OpenOptions::default()).expect("the trace opens");
    let mut batches = Batches::new(larder_trace::chunks(records, CHUNK as u32).expect("a size"), CHUNK as u32);
    let mut numbers: HashMap<Lba, u64> = HashMap::new();
    let mut number = |lba: Lba| {
        let next = numbers.len() as u64;
        Lba(*numbers.entry(lba).or_insert(next))
    };
    let mut requests = Vec::new();
    while requests.len() < count {
        let batch = batches.next_batch().expect("a sound trace");
        if batch.is_empty() {
            break;
        }
        for request in batch {
            match *request {
                Request::Read(lba, content) => requests.push(Request::Read(number(lba), content)),
                Request::Write(lba, content) => requests.push(Request::Write(number(lba), content)),
                Request::Trim(first, count) => {
                    requests.extend((first.0..first.0 + count).map(|lba| Request::Trim(number(Lba(lba)), 1)));
                }
                Request::Flush => requests.push(Request::Flush),
                // What is there then the trace does not tell.
                Request::Forget(..) => {}
            }
        }
    }
    requests.truncate(count);
    requests
}

/// What is read is what the volume has: what was written, or what the first read of it says.
fn settled(requests: &mut [Request]) -> Vec<Content> {
    let mut before: Vec<Option<Content>> = Vec::new();
    let mut now: HashMap<Lba, Content> = HashMap::new();
    let mut set = |lba: Lba, content: Option<Content>| {
        let size = before.len().max(lba.0 as usize + 1);
        before.resize(size, None);
        if let (true, Some(content)) = (before[lba.0 as usize].is_none(), content) {
            before[lba.0 as usize] = Some(content);
        }
    };
    for request in requests {
        match request {
            Request::Read(lba, content) => match now.get(lba) {
                Some(known) => *content = *known,
                None => {
                    set(*lba, Some(*content));
                    now.insert(*lba, *content);
                }
            },
            Request::Write(lba, content) => {
                set(*lba, None);
                now.insert(*lba, *content);
            }
            Request::Trim(lba, _) => {
                set(*lba, None);
                now.insert(*lba, content_of(0));
            }
            Request::Forget(..) | Request::Flush => {}
        }
    }
    before.into_iter().map(|content| content.unwrap_or_else(|| content_of(0))).collect()
}

/// What happened in one of them: whether each read hit, and the chunks that were written to flash.
#[derive(PartialEq, Debug)]
struct Outcome {
    hits: Vec<bool>,
    chunks_stored: u64,
    duplicates: u64,
}

fn simulated(design: impl Slotted + 'static, policy: WritePolicy, requests: &[Request]) -> Outcome {
    let mut cache = SlottedCache::new(design, policy, CHUNK as u32);
    let mut hits = Vec::new();
    for request in requests {
        match request {
            Request::Read(lba, content) => hits.push(cache.read(*lba, content)),
            Request::Write(lba, content) => drop(cache.write(*lba, content)),
            Request::Trim(lba, count) => cache.trim_run(*lba, *count),
            Request::Forget(..) => {}
            Request::Flush => cache.flush(),
        }
    }
    let traffic = cache.traffic();
    Outcome { hits, chunks_stored: traffic.chunks_stored, duplicates: traffic.chunks_deduplicated }
}

/// The same on simulated devices, over a volume that holds `before`, and the number of data slots that the cache has there.
fn executed(
    design: &EngineDesign,
    mode: WriteMode,
    slots: u64,
    before: &[Content],
    requests: &[Request],
) -> (Outcome, u64) {
    let runtime = SimRuntime::timed(1);
    let flash = SimDevice::new(&runtime, "flash", METADATA_BYTES + slots * CHUNK as u64, 512);
    let origin = SimDevice::new(&runtime, "origin", (before.len() * CHUNK) as u64, 512);
    for (lba, content) in before.iter().enumerate().filter(|(_, content)| !content.is_zero()) {
        origin.poke((lba * CHUNK) as u64, &bytes_of(content));
    }
    let mut options = CreateOptions { mode, chunk_bytes: CHUNK as u32, hash_key: [3; 32], ..CreateOptions::default() };
    design.fit(&mut options);
    let made = runtime.block_on(create(&*flash, (before.len() * CHUNK) as u64, &options)).expect("it is made");
    let slots = u64::from(made.layout.slot_count);
    // Nothing is read ahead, and nothing destaged that nobody asks for.
    let tuning = Tuning {
        prefetch_bytes_max: 0,
        dirty_low_percent: 100,
        dirty_high_percent: 100,
        dirty_max_percent: 100,
        ..Tuning::default()
    };
    let opened = runtime.block_on(Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning));
    let cache = Arc::new(opened.expect("it opens"));
    let at = |lba: &Lba| lba.0 * CHUNK as u64;
    let mut hits = Vec::new();
    for request in requests {
        let failed = match request {
            Request::Read(lba, content) => {
                let before = cache.status().counts.read_hits;
                let read = runtime.block_on(cache.read(at(lba), IoBuf::new(CHUNK)));
                hits.push(cache.status().counts.read_hits > before);
                if let Ok(read) = &read {
                    assert!(read[..] == bytes_of(content)[..], "{request:?} reads something else");
                }
                read.err().map(|error| error.to_string())
            }
            Request::Write(lba, content) => {
                let data = IoBuf::copy_of(&bytes_of(content)).freeze();
                let written = runtime.block_on(cache.write(at(lba), data, WriteFlags::default()));
                written.err().map(|error| error.to_string())
            }
            Request::Trim(lba, count) => {
                let trimmed = cache.zero(at(lba), count * CHUNK as u64, ZeroFlags::default());
                runtime.block_on(trimmed).err().map(|error| error.to_string())
            }
            Request::Forget(..) => None,
            Request::Flush => runtime.block_on(cache.flush()).err().map(|error| error.to_string()),
        };
        assert_eq!(failed, None, "{request:?}");
        // Whatever follows in the background is over before the next one.
        runtime.block_on(cache.settle());
        if mode == WriteMode::Back {
            assert!(runtime.block_on(cache.destage_all()));
        }
        runtime.run_for(Duration::from_millis(50));
    }
    let counts = cache.status().counts;
    runtime.kill();
    let outcome = Outcome {
        hits,
        chunks_stored: counts.flash_segment_bytes_written / CHUNK as u64,
        duplicates: counts.duplicate_chunks,
    };
    (outcome, slots - spares(slots))
}

fn agrees_on<D: Slotted + 'static>(
    name: &str,
    what: &str,
    slots: u64,
    mut requests: Vec<Request>,
    make: impl Fn(FlashSize) -> D,
) {
    let design = designs::named(name).expect("the engine runs it");
    let before = settled(&mut requests);
    for (mode, policy) in MODES {
        let (executed, data_chunks) = executed(design, mode, slots, &before, &requests);
        let simulated = simulated(make(FlashSize::DataChunks(data_chunks)), policy, &requests);
        let differs = executed.hits.iter().zip(&simulated.hits).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}, {what}, {mode:?}: the first read that hits in one alone");
        assert_eq!(executed, simulated, "{name}, {what}, {mode:?}");
        let hits = executed.hits.iter().filter(|hit| **hit).count();
        println!(
            "{name}, {what}, {mode:?}: {hits} of {} reads hit, {} chunks stored in {data_chunks} slots",
            executed.hits.len(),
            executed.chunks_stored
        );
        assert!(executed.chunks_stored > 0, "{name}, {what}: nothing was cached");
    }
}

fn agrees<D: Slotted + 'static>(name: &str, make: impl Fn(FlashSize) -> D) {
    for seed in 1..3 {
        agrees_on(name, &format!("seed {seed}"), 180, drawn(seed), &make);
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces")).find(|path| path.is_dir());
    let Some(traces) = found else {
        println!("skipped: the real traces (no folder shared/traces beside the checkout)");
        return;
    };
    let wanted = std::env::var("LARDER_REQUESTS").map(|count| count.parse().expect("LARDER_REQUESTS is a number"));
    let count = wanted.unwrap_or(TRACE_REQUESTS);
    for trace in TRACES {
        let requests = of_trace(&traces.join(trace), count);
        assert!(!requests.is_empty(), "{trace} is empty");
        // So small that most has to go again.
        agrees_on(name, trace, (count as u64 / 16).max(64), requests, &make);
    }
}

#[test]
fn d_lru_hits_alike() {
    agrees("d-lru", |size| DLru::for_flash(size, CHUNK as u32).expect("it fits"));
}

#[test]
fn d_arc_hits_alike() {
    agrees("d-arc", |size| DArc::for_flash(size, CHUNK as u32).expect("it fits"));
}

#[test]
fn lru_hits_alike() {
    agrees("lru", |size| Lru::for_flash(size, CHUNK as u32).expect("it fits"));
}

#[test]
fn arc_hits_alike() {
    agrees("arc", |size| ArcDesign::for_flash(size, CHUNK as u32).expect("it fits"));
}
