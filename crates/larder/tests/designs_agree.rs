//! The simulator and the engine decide alike: the same requests, one after the other, hit and miss alike in both, one by one, and
//! write as many chunks to flash.
//!
//! In write-back the engine still has what a design let go of while it is dirty, and hits it until the origin has it. Where that
//! happens the two part, and the rest of the run is not compared.
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
    cache::{Content, ReplayCache, WritePolicy},
    slotted::SlottedCache,
};
use std::{sync::Arc, time::Duration};

const CHUNK: usize = 4096;
const CHUNKS: u64 = 600;
const REQUESTS: usize = 3000;
const MODES: [(WriteMode, WritePolicy); 3] = [
    (WriteMode::Back, WritePolicy::Back),
    (WriteMode::Through, WritePolicy::Through),
    (WriteMode::Around, WritePolicy::Around),
];

/// What content number `number` is in both.
fn bytes_of(number: u64) -> Vec<u8> {
    if number == 0 {
        return vec![0; CHUNK];
    }
    (0..CHUNK as u64 / 8).flat_map(|word| mix64(number << 20 | word).to_le_bytes()).collect()
}

fn content_of(number: u64) -> Content {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Content { fingerprint: Fingerprint(bytes), stored_bytes: CHUNK as u32 }
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Read(u64),
    Write(u64, u64),
    Trim(u64),
}

/// Addresses and contents, of which few are frequent, as in a Zipf distribution; writes and reads in turn. In write-back
/// nothing is trimmed: the engine knows what is zeroes until the origin does, and the papers' designs don't.
fn requests(seed: u64, mode: WriteMode) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    let skewed = |rng: &mut Rng, n: u64| (n as f64).powf(rng.below(1 << 20) as f64 / f64::from(1 << 20)) as u64 % n;
    (0..REQUESTS)
        .map(|_| {
            let lba = mix64(skewed(&mut rng, CHUNKS)) % CHUNKS;
            match rng.below(100) {
                0..55 => Request::Read(lba),
                55..57 if mode != WriteMode::Back => Request::Trim(lba),
                _ => Request::Write(lba, skewed(&mut rng, 900)),
            }
        })
        .collect()
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
    let mut volume = vec![0; CHUNKS as usize];
    let mut hits = Vec::new();
    for request in requests {
        match *request {
            Request::Read(lba) => hits.push(cache.read(Lba(lba), &content_of(volume[lba as usize]))),
            Request::Write(lba, number) => {
                volume[lba as usize] = number;
                cache.write(Lba(lba), &content_of(number));
            }
            Request::Trim(lba) => {
                volume[lba as usize] = 0;
                cache.trim(Lba(lba));
            }
        }
    }
    let traffic = cache.traffic();
    Outcome { hits, chunks_stored: traffic.chunks_stored, duplicates: traffic.chunks_deduplicated }
}

/// The same on simulated devices, and the number of data slots that the cache has there.
fn executed(design: &EngineDesign, mode: WriteMode, requests: &[Request]) -> (Outcome, u64) {
    let runtime = SimRuntime::timed(1);
    let flash = SimDevice::new(&runtime, "flash", 1400 << 10, 512);
    let origin = SimDevice::new(&runtime, "origin", CHUNKS * CHUNK as u64, 512);
    let mut options = CreateOptions { mode, chunk_bytes: CHUNK as u32, hash_key: [3; 32], ..CreateOptions::default() };
    design.fit(&mut options);
    let made = runtime.block_on(create(&*flash, CHUNKS * CHUNK as u64, &options)).expect("it is made");
    let slots = u64::from(made.layout.slot_count);
    // Nothing is read ahead, and nothing destaged that a decision does not ask for.
    let tuning = Tuning {
        prefetch_bytes_max: 0,
        dirty_low_percent: 100,
        dirty_high_percent: 100,
        dirty_max_percent: 100,
        ..Tuning::default()
    };
    let opened = runtime.block_on(Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning));
    let cache = Arc::new(opened.expect("it opens"));
    let mut hits = Vec::new();
    for request in requests {
        match *request {
            Request::Read(lba) => {
                let before = cache.status().counts.read_hits;
                let read = runtime.block_on(cache.read(lba * CHUNK as u64, IoBuf::new(CHUNK)));
                read.unwrap_or_else(|error| panic!("{request:?}: {error}"));
                hits.push(cache.status().counts.read_hits > before);
            }
            Request::Write(lba, number) => {
                let data = IoBuf::copy_of(&bytes_of(number)).freeze();
                let written = runtime.block_on(cache.write(lba * CHUNK as u64, data, WriteFlags::default()));
                written.unwrap_or_else(|error| panic!("{request:?}: {error}"));
            }
            Request::Trim(lba) => {
                let trimmed = runtime.block_on(cache.zero(lba * CHUNK as u64, CHUNK as u64, ZeroFlags::default()));
                trimmed.unwrap_or_else(|error| panic!("{request:?}: {error}"));
            }
        }
        // Whatever follows in the background is over before the next one.
        runtime.block_on(cache.settle());
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

fn agrees<D: Slotted + 'static>(name: &str, make: impl Fn(FlashSize) -> D) {
    let design = designs::named(name).expect("the engine runs it");
    for (mode, policy) in MODES {
        for seed in 1..3 {
            let requests = requests(seed, mode);
            let (executed, data_chunks) = executed(design, mode, &requests);
            let simulated = simulated(make(FlashSize::DataChunks(data_chunks)), policy, &requests);
            let differs = executed.hits.iter().zip(&simulated.hits).position(|(a, b)| a != b);
            if mode == WriteMode::Back && differs.is_some_and(|at| at > 300 && executed.hits[at]) {
                continue;
            }
            assert_eq!(differs, None, "{name}, {mode:?}, seed {seed}: the first read that hits in one alone");
            assert_eq!(executed, simulated, "{name}, {mode:?}, seed {seed}");
            assert!(
                executed.hits.iter().any(|hit| *hit) && executed.chunks_stored > data_chunks,
                "{name}: nothing left"
            );
        }
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
