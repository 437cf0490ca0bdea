//! The designs with slots of one chunk: the same requests, one by one, and the same counts after
//! each. The counts are reads that hit, chunks stored, chunks found stored already, bytes of chunks
//! written to flash, and bytes of CacheDedup's metadata pages.
//!
//! The engine has a log in place of those pages. The design still decides the entries that a
//! request changes, and so their content. So both count them from the engine's decisions by the
//! simulator's rule (CacheDedup, FAST 2016, section 3.3; see [`larder_sim::slotted`]).
//!
//! In write-back the origin gets all dirty data after each request. Until then the engine still
//! has, and hits, a dirty chunk that the design dropped. The simulator, without time, does not know
//! that.
//!
//! It leaves out requests at the same time, whose order is the engine's own.

use super::requests::{CHUNK, bytes_of, caches_some, drawn, of_traces, settled};
use larder_core::{
    Lba,
    arc::Arc as ArcDesign,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{FlashSize, METADATA_PAGE_BYTES, Slotted, spares},
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
    cache::{CacheRequest, Content, ReplayCache, WritePolicy},
    slotted::SlottedCache,
};
use std::{sync::Arc, time::Duration};

/// Metadata of a small flash, beside its slots.
const METADATA_BYTES: u64 = 640 << 10;
const MODES: [(WriteMode, WritePolicy); 3] = [
    (WriteMode::Back, WritePolicy::Back),
    (WriteMode::Through, WritePolicy::Through),
    (WriteMode::Around, WritePolicy::Around),
];

/// Counts of all work so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Counts {
    read_hits: u64,
    chunks_stored: u64,
    duplicates: u64,
    data_bytes_written: u64,
    metadata_bytes_written: u64,
}

/// Pages of metadata entries.
///
/// A page is written when it is full, when a dirty write changed an entry, and when a flush finds
/// it begun.
struct Pages {
    entry_bytes: u64,
    begun_bytes: u64,
    written_bytes: u64,
}

impl Pages {
    fn change(&mut self, entries: u64) {
        for _ in 0..entries {
            if self.begun_bytes + self.entry_bytes > METADATA_PAGE_BYTES {
                self.write();
            }
            self.begun_bytes += self.entry_bytes;
        }
    }

    fn write(&mut self) {
        if self.begun_bytes > 0 {
            (self.begun_bytes, self.written_bytes) = (0, self.written_bytes + METADATA_PAGE_BYTES);
        }
    }
}

/// The simulator.
struct Simulated<D> {
    cache: SlottedCache<D>,
    read_hits: u64,
}

impl<D: Slotted> Simulated<D> {
    fn make(&mut self, request: &CacheRequest) {
        match request {
            CacheRequest::Read(lba, content) => self.read_hits += u64::from(self.cache.read(*lba, content)),
            CacheRequest::Write(lba, content) => {
                self.cache.write(*lba, content);
                // As the engine does after each request.
                self.cache.clean(*lba);
            }
            CacheRequest::Trim(lba, count) => self.cache.trim_run(*lba, *count),
            CacheRequest::Forget(..) => {}
            CacheRequest::Flush => self.cache.flush(),
        }
    }

    fn counts(&self) -> Counts {
        let traffic = self.cache.traffic();
        Counts {
            read_hits: self.read_hits,
            chunks_stored: traffic.chunks_stored,
            duplicates: traffic.chunks_deduplicated,
            data_bytes_written: traffic.flash_data_bytes_written,
            metadata_bytes_written: traffic.flash_metadata_bytes_written,
        }
    }
}

/// The engine on simulated devices.
struct Engine {
    runtime: Arc<SimRuntime>,
    cache: Arc<Cache>,
    mode: WriteMode,
    /// Data slots of the cache.
    data_chunks: u64,
    pages: Pages,
    /// Entries that went to the pages.
    entries: u64,
}

impl Engine {
    /// Makes an engine over a volume that holds `before`.
    fn new(design: &EngineDesign, mode: WriteMode, slots: u64, entry_bytes: u64, before: &[Content]) -> Engine {
        let runtime = SimRuntime::timed(1);
        let volume_bytes = (before.len() * CHUNK) as u64;
        let flash = SimDevice::new(&runtime, "flash", METADATA_BYTES + slots * CHUNK as u64, 512);
        let origin = SimDevice::new(&runtime, "origin", volume_bytes, 512);
        for (lba, content) in before.iter().enumerate().filter(|(_, content)| !content.is_zero()) {
            origin.poke((lba * CHUNK) as u64, &bytes_of(content));
        }
        let mut options =
            CreateOptions { mode, chunk_bytes: CHUNK as u32, hash_key: [3; 32], ..CreateOptions::default() };
        design.fit(&mut options);
        let made = runtime.block_on(create(&*flash, volume_bytes, &options)).expect("it is made");
        let slots = u64::from(made.layout.slot_count);
        // No read-ahead, and no destaging without a request for it.
        let tuning = Tuning {
            prefetch_bytes_max: 0,
            dirty_low_percent: 100,
            dirty_high_percent: 100,
            dirty_max_percent: 100,
            ..Tuning::default()
        };
        let cache = runtime.block_on(Cache::open(flash, origin, runtime.clone(), tuning)).expect("it opens");
        let pages = Pages { entry_bytes, begun_bytes: 0, written_bytes: 0 };
        Engine { runtime, cache: Arc::new(cache), mode, data_chunks: slots - spares(slots), pages, entries: 0 }
    }

    /// Makes a request, and waits until all its background work is over.
    fn make(&mut self, request: &CacheRequest) {
        let Engine { runtime, cache, .. } = &*self;
        let at = |lba: &Lba| lba.0 * CHUNK as u64;
        let failed = match request {
            CacheRequest::Read(lba, content) => {
                let read = runtime.block_on(cache.read(at(lba), IoBuf::new(CHUNK)));
                if let Ok(read) = &read {
                    assert!(read[..] == bytes_of(content)[..], "{request:?} reads something else");
                }
                read.err().map(|error| error.to_string())
            }
            CacheRequest::Write(lba, content) => {
                let data = IoBuf::copy_of(&bytes_of(content)).freeze();
                let written = runtime.block_on(cache.write(at(lba), data, WriteFlags::default()));
                written.err().map(|error| error.to_string())
            }
            CacheRequest::Trim(lba, count) => {
                let trimmed = cache.zero(at(lba), count * CHUNK as u64, ZeroFlags::default());
                runtime.block_on(trimmed).err().map(|error| error.to_string())
            }
            CacheRequest::Forget(..) => None,
            CacheRequest::Flush => runtime.block_on(cache.flush()).err().map(|error| error.to_string()),
        };
        assert_eq!(failed, None, "{request:?}");
        runtime.block_on(cache.wait_for_insertions());
        if self.mode == WriteMode::Back {
            assert!(runtime.block_on(cache.destage_all()));
        }
        runtime.run_for(Duration::from_millis(50));
        let changed = cache.status().metadata_entries_changed - self.entries;
        self.entries += changed;
        self.pages.change(changed);
        let is_dirty = self.mode == WriteMode::Back && matches!(request, CacheRequest::Write(..)) && changed > 0;
        if is_dirty || matches!(request, CacheRequest::Flush) {
            self.pages.write();
        }
    }

    fn counts(&self) -> Counts {
        let counts = self.cache.status().counts;
        Counts {
            read_hits: counts.read_hits,
            chunks_stored: counts.stored_records,
            duplicates: counts.duplicate_chunks,
            data_bytes_written: counts.flash_segment_bytes_written,
            metadata_bytes_written: self.pages.written_bytes,
        }
    }
}

fn agrees_on<D: Slotted + 'static>(
    name: &str,
    what: &str,
    slots: u64,
    mut requests: Vec<CacheRequest>,
    make: impl Fn(FlashSize) -> D,
) {
    let design = designs::named(name).expect("the engine runs it");
    let before = settled(&mut requests);
    for (mode, policy) in MODES {
        let entry_bytes = make(FlashSize::DataChunks(slots)).sizes().entry_bytes.into();
        let mut engine = Engine::new(design, mode, slots, entry_bytes, &before);
        let cache = SlottedCache::new(make(FlashSize::DataChunks(engine.data_chunks)), policy, CHUNK as u32);
        let mut simulated = Simulated { cache, read_hits: 0 };
        let mut counts = Counts::default();
        for (number, request) in requests.iter().enumerate() {
            engine.make(request);
            simulated.make(request);
            counts = engine.counts();
            assert_eq!(counts, simulated.counts(), "{name}, {what}, {mode:?}: request {number}, {request:?}");
        }
        engine.runtime.kill();
        println!("{name}, {what}, {mode:?}: {} requests, {counts:?}, {} slots", requests.len(), engine.data_chunks);
        assert_eq!(counts.chunks_stored > 0, caches_some(mode, &requests), "{name}, {what}: something was cached");
    }
}

fn agrees<D: Slotted + 'static>(name: &str, make: impl Fn(FlashSize) -> D) {
    for seed in 1..3 {
        agrees_on(name, &format!("seed {seed}"), 180, drawn(seed), &make);
    }
    for (trace, requests) in of_traces(CHUNK) {
        // So small that most chunks must go again.
        agrees_on(name, &trace, (requests.len() as u64 / 16).max(64), requests, &make);
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
