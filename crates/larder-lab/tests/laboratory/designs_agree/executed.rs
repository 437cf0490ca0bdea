//! The executor of `larder-lab sim` against the engine: the same requests, over as many bytes.
//! Requests go one at a time. Nothing goes from one to the other but the forms of contents:
//! fingerprint and stored length.
//!
//! Both divide the flash alike: the slots begin and end at the same bytes. With slots of one chunk,
//! in write-through and write-around, they hit, store, find duplicates and evict the same number of
//! chunks, and write as many bytes of them. These are the differences, with their bounds:
//! - *The log* ([`LOG_PERCENT`] of all bytes). The simulator has no clock. It logs a clean mapping
//!   at once, and the engine after a flush of the origin. So the engine forgets many a mapping
//!   without an entry.
//! - *Buckets* ([`BUCKETS_PERCENT`]). For the same reason the addresses of a content come to its
//!   list later in the engine, and a full list loses another one.
//! - *Write-back* ([`BACK_PERCENT`]). Both destage from 40% dirty on, and the engine in other
//!   turns. So they differ in trimmed chunks that still read as zeroes, and in dirty chunks that
//!   their design has dropped.
//! - *WEUs* ([`WEUS_PERCENT`]). The engine keeps [`WEUS_KEPT`] of few WEUs free, and its commits
//!   close segments early. So it evicts as many more as it keeps, and as its segments are longer
//!   by.
//!
//! It leaves out requests at the same time, requests of parts of chunks, commits by the clock, and
//! faults.

use super::requests::{CHUNK, content_of, packed_bytes_of, settled};
use larder_core::{
    Fingerprint, Lba,
    decisions::{Event, NewContent, Stored},
};
use larder_device::{
    IoBuf, WriteFlags, ZeroFlags,
    rng::{Rng, mix64},
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{Cache, CreateOptions, Tuning, WriteMode, create, decision_log::DecisionLog, designs};
use larder_format::{Layout, StoreKind};
use larder_sim::{
    cache::{CacheRequest, Content, WritePolicy},
    setup::{FlashAmount, Options, ReplayDesign, Setup},
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};

const MODES: [(WriteMode, WritePolicy); 3] = [
    (WriteMode::Back, WritePolicy::Back),
    (WriteMode::Through, WritePolicy::Through),
    (WriteMode::Around, WritePolicy::Around),
];
/// Chunks of the volume: more than there are mappings, so that the volume does not bind.
const VOLUME_CHUNKS: u64 = 24_000;
const CONTENTS: u64 = 6000;
const REQUESTS: usize = 5000;
const SECTOR_BYTES: u32 = 4096;
const WEU_BYTES: u32 = 512 << 10;
/// WEUs of each flash that has WEUs, whatever a design's checkpoints take besides.
const WEUS: u64 = 12;
/// Bounds of the differences, in percent of the engine's figure; see the module.
const LOG_PERCENT: u64 = 20;
const BUCKETS_PERCENT: u64 = 1;
const BACK_PERCENT: u64 = 2;
const WEUS_PERCENT: u64 = 2;
/// WEUs that the engine keeps free.
const WEUS_KEPT: u64 = 2;

type Inserted = (Fingerprint, Option<Stored>);

/// Counts of all work.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Counts {
    read_hits: u64,
    stored: u64,
    duplicates: u64,
    /// Chunks, or WEUs.
    evicted: u64,
    /// Bytes of slots, with those of segments in WEUs.
    data_bytes: u64,
    flash_bytes: u64,
}

impl Counts {
    fn decided(&self) -> [u64; 3] {
        [self.read_hits, self.stored, self.duplicates]
    }
}

/// Returns whether two figures differ by so many percent of the first at most.
fn is_near(engine: u64, simulator: u64, percent: u64) -> bool {
    engine.abs_diff(simulator) * 100 <= engine * percent
}

struct Engine {
    runtime: Arc<SimRuntime>,
    cache: Arc<Cache>,
    chunk: usize,
    layout: Layout,
    inserted: Arc<Mutex<Vec<Inserted>>>,
}

impl Engine {
    fn new(design: &str, mode: WriteMode, flash_bytes: u64, chunk: usize, before: &[Content]) -> Engine {
        let runtime = SimRuntime::timed(1);
        let volume_bytes = VOLUME_CHUNKS * chunk as u64;
        let flash = SimDevice::new(&runtime, "flash", flash_bytes, SECTOR_BYTES);
        let origin = SimDevice::new(&runtime, "origin", volume_bytes, 512);
        for (lba, content) in before.iter().enumerate().filter(|(_, content)| !content.is_zero()) {
            origin.poke((lba * chunk) as u64, &packed_bytes_of(content, chunk));
        }
        let mut options = CreateOptions {
            mode,
            chunk_bytes: chunk as u32,
            slot_bytes: WEU_BYTES,
            hash_key: [3; 32],
            ..CreateOptions::default()
        };
        designs::named(design).expect("the engine runs it").fit(&mut options);
        let made = runtime.block_on(create(&*flash, volume_bytes, &options)).expect("it is made");
        let inserted = Arc::<Mutex<Vec<_>>>::default();
        let sink = inserted.clone();
        let decisions = DecisionLog::to(move |event, _| {
            if let Event::Insert { content: NewContent::Chunk { fingerprint: Some(known), stored }, .. } = event {
                sink.lock().push((*known, *stored));
            }
        });
        let tuning = Tuning {
            prefetch_bytes_max: 0,
            dirty_low_percent: 40,
            dirty_high_percent: 40,
            commit_interval_ms: 1 << 40,
            decisions,
            ..Tuning::default()
        };
        let cache = runtime.block_on(Cache::open(flash, origin, runtime.clone(), tuning)).expect("it opens");
        Engine { runtime, cache: Arc::new(cache), chunk, layout: made.layout, inserted }
    }

    fn make(&self, request: &CacheRequest) {
        let Engine { runtime, cache, chunk, .. } = self;
        let at = |lba: &Lba| lba.0 * *chunk as u64;
        let failed = match request {
            CacheRequest::Read(lba, content) => {
                let read = runtime.block_on(cache.read(at(lba), IoBuf::new(*chunk)));
                if let Ok(read) = &read {
                    assert!(read[..] == packed_bytes_of(content, *chunk)[..], "{request:?} reads something else");
                }
                read.err().map(|error| error.to_string())
            }
            CacheRequest::Write(lba, content) => {
                let data = IoBuf::copy_of(&packed_bytes_of(content, *chunk)).freeze();
                runtime.block_on(cache.write(at(lba), data, WriteFlags::default())).err().map(|error| error.to_string())
            }
            CacheRequest::Trim(lba, count) => {
                let trimmed = cache.zero(at(lba), count * *chunk as u64, ZeroFlags::default());
                runtime.block_on(trimmed).err().map(|error| error.to_string())
            }
            CacheRequest::Forget(..) => None,
            CacheRequest::Flush => runtime.block_on(cache.flush()).err().map(|error| error.to_string()),
        };
        assert_eq!(failed, None, "{request:?}");
        runtime.block_on(cache.wait_for_insertions());
        runtime.run_for(Duration::from_millis(50));
    }

    fn counts(&self) -> Counts {
        let status = self.cache.status();
        let counts = status.counts;
        Counts {
            read_hits: counts.read_hits,
            stored: counts.stored_records,
            duplicates: counts.duplicate_chunks,
            evicted: counts.evicted_slots,
            data_bytes: counts.flash_segment_bytes_written,
            flash_bytes: status.flash_bytes_written,
        }
    }
}

/// Returns a content that compresses to about some length.
fn content(number: u64, chunk: usize) -> Content {
    let stored = (300 + mix64(number) % (chunk as u64 * 5 / 4)).min(chunk as u64);
    Content { stored_bytes: stored as u32, ..content_of(number) }
}

/// Draws reads, writes, flushes and trims, few of them frequent.
fn drawn(seed: u64, chunk: usize) -> Vec<CacheRequest> {
    let mut rng = Rng::new(seed);
    let skewed = |rng: &mut Rng, n: u64| (n as f64).powf(rng.below(1 << 20) as f64 / f64::from(1 << 20)) as u64 % n;
    let requests = (0..REQUESTS).map(|_| {
        let lba = Lba(mix64(skewed(&mut rng, VOLUME_CHUNKS)) % VOLUME_CHUNKS);
        match rng.below(100) {
            0..55 => CacheRequest::Read(lba, content(CONTENTS + lba.0, chunk)),
            55..57 => CacheRequest::Trim(lba, 1),
            57..59 => CacheRequest::Flush,
            _ => CacheRequest::Write(lba, content(1 + skewed(&mut rng, CONTENTS), chunk)),
        }
    });
    requests.collect()
}

fn compare(design: &'static str, seed: u64, mode: WriteMode, policy: WritePolicy) {
    let kind = designs::named(design).expect("the engine runs it").kind();
    let chunk = if kind == StoreKind::Buckets { 4 * CHUNK } else { CHUNK };
    let setup = |flash_bytes| Setup {
        design: ReplayDesign::named(design).expect("the simulator has it"),
        chunk_bytes: chunk as u32,
        flash: FlashAmount::Bytes(flash_bytes),
        policy,
        options: Options { weu_bytes: (kind == StoreKind::Weus).then_some(WEU_BYTES), ..Options::default() },
    };
    let has_weus = |flash_bytes: &u64| {
        let data = setup(*flash_bytes).build(0).expect("it is made").cache.flash_data_range();
        (data.end - data.start) / u64::from(WEU_BYTES) == WEUS
    };
    let flash_bytes = match kind {
        StoreKind::Weus => (WEUS..2 * WEUS).map(|weus| weus * u64::from(WEU_BYTES)).find(has_weus).expect("a size"),
        StoreKind::Slots => 3 << 20,
        StoreKind::Buckets => 12 << 20,
    };
    let mut requests = drawn(seed, chunk);
    let mut before = settled(&mut requests);
    before.truncate(VOLUME_CHUNKS as usize);
    let engine = Engine::new(design, mode, flash_bytes, chunk, &before);
    let mut cache = setup(flash_bytes).build(0).expect("it is made").cache;
    let what = format!("{design}, seed {seed}, {mode:?}");
    assert_eq!(cache.flash_data_range(), engine.layout.slots_offset..engine.layout.end(), "{what}: the division");
    let mut told: HashMap<Fingerprint, Content> = HashMap::new();
    let mut read_hits = 0;
    for request in &requests {
        engine.make(request);
        let mut learned = *request;
        if let CacheRequest::Read(_, content) | CacheRequest::Write(_, content) = &mut learned {
            for (fingerprint, stored) in std::mem::take(&mut *engine.inserted.lock()) {
                let bytes =
                    stored.map(|stored| stored.bytes).or(told.get(&content.fingerprint).map(|it| it.stored_bytes));
                let stored_bytes = bytes.unwrap_or(content.stored_bytes);
                told.insert(content.fingerprint, Content { fingerprint, stored_bytes });
            }
            *content = told.get(&content.fingerprint).copied().unwrap_or(*content);
        }
        match &learned {
            CacheRequest::Read(lba, content) => read_hits += u64::from(cache.read(*lba, content)),
            CacheRequest::Write(lba, content) => _ = cache.write(*lba, content),
            CacheRequest::Trim(lba, count) => cache.trim_run(*lba, *count),
            CacheRequest::Forget(..) => {}
            CacheRequest::Flush => cache.flush(),
        }
    }
    let traffic = cache.traffic();
    let is_in_weus = kind == StoreKind::Weus;
    let simulated = Counts {
        read_hits,
        stored: traffic.chunks_stored,
        duplicates: traffic.chunks_deduplicated,
        evicted: if is_in_weus { traffic.weu_erasures } else { traffic.chunks_evicted },
        data_bytes: traffic.flash_data_bytes_written,
        flash_bytes: traffic.flash_data_bytes_written + traffic.flash_metadata_bytes_written,
    };
    let counted = engine.counts();
    engine.runtime.kill();
    println!("{what}\n  engine    {counted:?}\n  simulator {simulated:?}");
    assert!(counted.read_hits > 100, "{what}: a test that hits nothing");
    assert!(counted.evicted > 0 || mode == WriteMode::Around, "{what}: a test that evicts nothing");
    let percent = match (kind, mode) {
        (StoreKind::Weus, _) => WEUS_PERCENT,
        (_, WriteMode::Back) => BACK_PERCENT,
        (StoreKind::Slots, _) => 0,
        (StoreKind::Buckets, _) => BUCKETS_PERCENT,
    };
    let mut pairs = counted.decided().into_iter().zip(simulated.decided());
    assert!(pairs.all(|(engine, simulator)| is_near(engine, simulator, percent)), "{what}: the decisions");
    if is_in_weus {
        // There the simulator counts the parts around records with the log.
        let more = counted.data_bytes.saturating_sub(simulated.data_bytes).div_ceil(WEU_BYTES.into());
        let more = simulated.evicted..=simulated.evicted + WEUS_KEPT + more;
        assert!(more.contains(&counted.evicted), "{what}: the evicted WEUs");
    } else {
        assert!(is_near(counted.evicted, simulated.evicted, percent), "{what}: the evicted chunks");
        assert!(is_near(counted.data_bytes, simulated.data_bytes, percent), "{what}: bytes of chunks");
    }
    assert!(is_near(counted.flash_bytes, simulated.flash_bytes, LOG_PERCENT), "{what}: all bytes of flash");
}

#[test]
fn the_simulator_executes_each_design_as_the_engine() {
    for design in designs::ENGINE_DESIGNS {
        for (mode, policy) in MODES {
            compare(design.name, 1, mode, policy);
        }
    }
}
