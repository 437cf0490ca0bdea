//! (k) The cost of each design's decisions in `larder-core`, without any I/O.
//!
//! It has nanoseconds a request, bytes allocated for each mapped chunk, and the time that a
//! checkpoint keeps requests waiting. A checkpoint asks the design for its data piece by piece.
//!
//! The load is write-through, three reads for each write. Zipf's law (exponent 0.8) draws from four
//! times as many addresses as the cache has chunks. Two addresses have each content, and its
//! fingerprint is known. A request asks the design in the engine's order. First comes the lookup. A
//! miss or a write then looks up its content, and maps it as a duplicate or stores it. If slots run
//! out, victims are chosen and evicted. One step of cleaning follows each eviction. The requests
//! are drawn before, and a first pass fills the cache. If a design has metadata slots on flash,
//! they are in RAM here, which is not counted.
//!
//! It does not make records, log entries or checksums; (a) to (g) time the whole.

use crate::{alloc::Live, measure::Res, options::Options, report::Row};
use larder_core::{
    Decider, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    austere::bucketed::memory::MemoryRegion,
    design::{Question, Wanted},
};
use larder_device::rng::{Rng, mix64};
use larder_engine::{
    CreateOptions,
    designs::{ENGINE_DESIGNS, EngineDesign},
};
use larder_format::StoreKind;
use larder_trace::zipf::Zipf;
use std::time::{Duration, Instant};

const CHUNK_BYTES: u32 = 4096;
/// Whole chunks on the flash.
const CHUNKS: u64 = 1 << 17;
const ADDRESSES: u64 = 4 * CHUNKS;
/// A WEU of 2 MiB.
const WEU_CHUNKS: u32 = 512;
const REQUESTS: usize = 4 << 20;
/// The most chunks that the evictor lets go in one step, if the design lets chunks go by itself.
const DROPPED_MAX: usize = 64;
/// Slots of one chunk that are evicted together.
const SLOT_BATCH: usize = 256;
/// Timed checkpoints.
const CHECKPOINTS: usize = 5;

#[derive(Clone, Copy)]
struct Request {
    lba: Lba,
    is_write: bool,
    fingerprint: Fingerprint,
}

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let requests = requests(bench.scaled(REQUESTS));
    let mut rows = Vec::new();
    for design in ENGINE_DESIGNS {
        // The metadata slots on flash are no RAM of the design.
        let region = MemoryRegion::new(match design.kind() {
            StoreKind::Buckets => config(design)?.slot_count as usize,
            StoreKind::Weus | StoreKind::Slots => 0,
        });
        let live = Live::begin();
        let mut cache = Driven::new(design, region)?;
        requests.iter().for_each(|request| cache.request(request));
        let (bytes, mapped) = (live.bytes() as f64, cache.design.stats().mapped_chunks as f64);
        drop(live);
        let mut nanoseconds = Vec::new();
        for _ in 0..3 {
            cache.hits = 0;
            let began = Instant::now();
            requests.iter().for_each(|request| cache.request(request));
            nanoseconds.push(began.elapsed().as_nanos() as f64 / requests.len() as f64);
        }
        nanoseconds.sort_by(f64::total_cmp);
        let reads = requests.iter().filter(|request| !request.is_write).count();
        let hit_percent = cache.hits as f64 / reads as f64 * 100.0;
        let name = design.name;
        rows.push(Row::told(
            &format!("k.{name}.time"),
            format!("decisions of {name}: ns a request, {hit_percent:.1}% of the reads hit"),
            nanoseconds[1],
        ));
        rows.push(Row::told(
            &format!("k.{name}.ram"),
            format!("RAM of {name} under load, {mapped} chunks mapped: bytes a mapped chunk"),
            bytes / mapped,
        ));
        let pieces = cache.checkpoints();
        rows.push(Row::told(
            &format!("k.{name}.piece"),
            format!("the longest piece of a checkpoint of {name}, of {} in all: microseconds", pieces.len()),
            pieces.iter().max().map_or(0.0, |longest| longest.as_nanos() as f64 / 1000.0),
        ));
        rows.push(Row::told(
            &format!("k.{name}.pieces"),
            format!("all pieces of a checkpoint of {name}: ms"),
            pieces.iter().sum::<Duration>().as_nanos() as f64 / 1e6,
        ));
    }
    Ok(rows)
}

/// The time of each piece that a checkpoint asks of a design.
#[derive(Default)]
struct Pieces(Vec<Duration>);

impl Pieces {
    fn time<A>(&mut self, ask: impl FnOnce() -> A) -> A {
        let began = Instant::now();
        let answer = ask();
        self.0.push(began.elapsed());
        answer
    }
}

fn requests(count: usize) -> Vec<Request> {
    let mut rng = Rng::new(11);
    let zipf = Zipf::new(ADDRESSES, 0.8);
    let mut drawn = larder_trace::rng::TraceRng::new(12);
    (0..count)
        .map(|_| {
            let lba = Lba(mix64(zipf.sample(&mut drawn)) % ADDRESSES);
            let mut fingerprint = [0; 16];
            fingerprint[..8].copy_from_slice(&mix64(lba.0 / 2).to_le_bytes());
            fingerprint[8..].copy_from_slice(&mix64(lba.0 / 2 + (1 << 40)).to_le_bytes());
            Request { lba, is_write: rng.chance(1, 4), fingerprint: Fingerprint(fingerprint) }
        })
        .collect()
}

/// Returns the options to create a cache of the design.
fn options(design: &EngineDesign) -> CreateOptions {
    let slot_bytes = WEU_CHUNKS * CHUNK_BYTES;
    let mut options = CreateOptions { chunk_bytes: CHUNK_BYTES, slot_bytes, ..CreateOptions::default() };
    design.fit(&mut options);
    options
}

fn config(design: &EngineDesign) -> Res<DesignConfig> {
    let data_bytes = CHUNKS * u64::from(CHUNK_BYTES);
    let mappings = design.mappings_wanted(data_bytes, CHUNK_BYTES)?;
    Ok(DesignConfig {
        slot_count: (data_bytes / u64::from(options(design).slot_bytes)) as u32,
        mappings_max: mappings.unwrap_or(4 * CHUNKS),
        fp_entries_max: 2 * CHUNKS,
    })
}

/// A design, and the slot that it fills.
struct Driven {
    design: Decider,
    /// The design's metadata slots, if it has any.
    region: MemoryRegion,
    /// Chunks of a slot.
    slot_chunks: u32,
    open: Option<(SlotId, u32, u32)>,
    hits: u64,
}

impl Driven {
    fn new(design: &EngineDesign, region: MemoryRegion) -> Res<Driven> {
        let config = config(design)?;
        let slot_chunks = (CHUNKS / u64::from(config.slot_count)) as u32;
        let options = options(design);
        let layout = design.layout(&options, CHUNKS * u64::from(CHUNK_BYTES), ADDRESSES);
        Ok(Driven { design: design.make(config, &layout)?, region, slot_chunks, open: None, hits: 0 })
    }

    fn request(&mut self, request: &Request) {
        if request.is_write {
            self.design.suspend(request.lba);
        } else {
            self.region.inform(&mut self.design, Question::Address(request.lba));
            if self.design.lookup(request.lba) != Lookup::Miss {
                self.hits += 1;
                return;
            }
        }
        self.insert(request);
        // Write-through that does not wait for the origin's next flush: as little as possible is
        // held for it.
        self.design.settle(request.lba, true);
        self.region.write(&mut self.design);
    }

    fn insert(&mut self, request: &Request) {
        let remembered = self.design.remembered(request.lba);
        if !self.design.has_room(1) {
            self.make_room();
        }
        if !self.design.has_room(1) {
            return;
        }
        let content = remembered.as_ref().unwrap_or(&request.fingerprint);
        self.region.inform(&mut self.design, Question::Content(content));
        let new = match self.design.find_duplicate(content) {
            Some(place) => NewMapping::Duplicate { place },
            None => match self.place(request) {
                Some(place) => NewMapping::Unique { place, fingerprint: Some(request.fingerprint) },
                None => return,
            },
        };
        self.design.map(request.lba, new, None);
        self.seal_if_full();
    }

    /// Returns the place of the next chunk.
    fn place(&mut self, request: &Request) -> Option<Place> {
        if self.open.is_none() {
            while self.design.free_slots() < 2 {
                if !self.make_room() {
                    break;
                }
            }
            let Request { lba, fingerprint, .. } = *request;
            let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: CHUNK_BYTES };
            let mut opened = self.design.open_slot_for(StreamClass::Clean, &wanted);
            while opened.is_none() && self.make_room() {
                opened = self.design.open_slot_for(StreamClass::Clean, &wanted);
            }
            self.open = opened.map(|(slot, generation)| (slot, generation, 0));
        }
        let (slot, generation, used) = self.open.as_mut()?;
        let offset = *used * CHUNK_BYTES;
        *used += 1;
        Some(Place { slot: *slot, generation: *generation, offset, stored_len: CHUNK_BYTES, crc: 0, encoding: 0 })
    }

    fn seal_if_full(&mut self) {
        if let Some((slot, _, used)) = self.open
            && used == self.slot_chunks
        {
            self.design.seal_slot(slot);
            self.open = None;
        }
    }

    /// Returns the time of each piece, the least of several checkpoints. Other programs of the
    /// machine interrupt some piece of each checkpoint.
    fn checkpoints(&mut self) -> Vec<Duration> {
        let checkpoints = (0..CHECKPOINTS).map(|_| self.checkpoint().0);
        let least =
            |least: Vec<Duration>, next: Vec<Duration>| least.into_iter().zip(next).map(|(a, b)| a.min(b)).collect();
        checkpoints.reduce(least).unwrap_or_default()
    }

    /// Asks for the data of a checkpoint, in the engine's order.
    fn checkpoint(&mut self) -> Pieces {
        let (design, mut pieces) = (&mut self.design, Pieces::default());
        design.begin_export();
        while pieces.time(|| design.next_slots()).is_some() {}
        for piece in 0..design.export_pieces() {
            pieces.time(|| design.export_mappings(piece));
        }
        pieces.time(|| design.export_runs());
        while pieces.time(|| design.next_fingerprints()).is_some() {}
        for page in 0..design.page_count() {
            pieces.time(|| design.export_page(page));
        }
        if let Some(mut draft) = pieces.time(|| design.begin_history()) {
            while pieces.time(|| design.export_history(&mut draft, &|_| false)) {}
        }
        pieces
    }

    /// Evicts slots, as many as the engine evicts with one commit. False if none can go.
    fn make_room(&mut self) -> bool {
        self.design.drop_clean_zeroes(false, DROPPED_MAX);
        let batch = if self.slot_chunks == 1 && self.design.has_room(1) { SLOT_BATCH } else { 1 };
        let mut evicted = 0;
        while evicted < batch
            && let Some(victim) = self.design.choose_victim(&mut |_| false)
        {
            evicted += 1;
            if self.design.evict(victim.slot).is_some() {
                self.design.release_slot(victim.slot);
            }
        }
        self.design.sweep();
        evicted > 0
    }
}
