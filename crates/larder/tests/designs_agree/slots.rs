//! The designs with slots of one chunk: the same requests, one after the other, hit and miss alike in both, one by one, and
//! write as many chunks to flash.
//!
//! In write-back the origin gets what is dirty after each request: what a design lets go of while it is dirty the engine still
//! has, and hits, until then, which the simulator, without time, does not know.
//!
//! What it does not do: requests at the same time, whose order is the engine's own.

use crate::requests::{CHUNK, TRACES, bytes_of, drawn, of_trace, settled, traces};
use larder_core::{
    Lba,
    arc::Arc as ArcDesign,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{FlashSize, Slotted, spares},
};
use larder_device::{
    IoBuf, WriteFlags, ZeroFlags,
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{
    Cache, CreateOptions, Tuning, WriteMode, create,
    designs::{self, EngineDesign},
};
use larder_sim::{
    cache::{Content, ReplayCache, Request, WritePolicy},
    slotted::SlottedCache,
};
use std::{sync::Arc, time::Duration};

/// What a small flash has beside its slots.
const METADATA_BYTES: u64 = 640 << 10;
const MODES: [(WriteMode, WritePolicy); 3] = [
    (WriteMode::Back, WritePolicy::Back),
    (WriteMode::Through, WritePolicy::Through),
    (WriteMode::Around, WritePolicy::Around),
];

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
    let Some((traces, count)) = traces() else { return };
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
