//! A design that is asked as the engine asks it, without records, log entries and checksums.
//!
//! A request asks in the engine's order. First comes the lookup. A miss or a write then looks up
//! its content, and maps it as a duplicate or stores it, if the design admits it. If slots run out,
//! victims are chosen and evicted, and their survivors stored again. One step of cleaning follows
//! each eviction. If a design has metadata slots on flash, they are in RAM here.
//!
//! It does not compress, or time anything but the pieces of a checkpoint.

use crate::measure::Res;
use larder_core::{
    Decider, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    austere::bucketed::memory::MemoryRegion,
    design::{Question, Survivor, Wanted},
};
use larder_engine::{CreateOptions, designs::EngineDesign};
use larder_format::StoreKind;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Bytes of a chunk.
pub const CHUNK_BYTES: u32 = 4096;
/// A WEU of 2 MiB.
const WEU_CHUNKS: u32 = 512;
/// The most chunks that the evictor lets go in one step, if the design lets chunks go by itself.
const DROPPED_MAX: usize = 64;
/// Slots of one chunk that are evicted together.
const SLOT_BATCH: usize = 256;
/// Timed checkpoints.
const CHECKPOINTS: usize = 5;

/// A request of a chunk.
#[derive(Clone, Copy)]
pub struct Request {
    /// The address.
    pub lba: Lba,
    /// True if it writes.
    pub is_write: bool,
    /// The content there afterwards.
    pub fingerprint: Fingerprint,
}

/// The flash of a cache, and the volume before it.
#[derive(Clone, Copy)]
pub struct MeasuredFlash {
    /// Whole chunks on the flash.
    pub chunks: u64,
    /// Chunks of the volume.
    pub addresses: u64,
}

impl MeasuredFlash {
    fn bytes(&self) -> u64 {
        self.chunks * u64::from(CHUNK_BYTES)
    }

    /// Returns the options to create a cache of the design.
    fn options(&self, design: &EngineDesign) -> CreateOptions {
        let slot_bytes = design.weu_wanted(self.bytes()).unwrap_or(WEU_CHUNKS * CHUNK_BYTES);
        let mut options = CreateOptions { chunk_bytes: CHUNK_BYTES, slot_bytes, ..CreateOptions::default() };
        design.fit(&mut options);
        options
    }

    fn config(&self, design: &EngineDesign) -> Res<DesignConfig> {
        let mappings = design.mappings_wanted(self.bytes(), CHUNK_BYTES)?;
        Ok(DesignConfig {
            slot_count: (self.bytes() / u64::from(self.options(design).slot_bytes)) as u32,
            mappings_max: mappings.unwrap_or(4 * self.chunks),
            fp_entries_max: 2 * self.chunks,
        })
    }
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

/// A design, and the slot that it fills.
pub struct Driven {
    design: Decider,
    /// Records of victims that are to be stored again.
    survivors: VecDeque<Survivor>,
    /// The design's metadata slots, if it has any.
    region: MemoryRegion,
    /// Chunks of a slot.
    slot_chunks: u32,
    open: Option<(SlotId, u32, u32)>,
    /// Reads that hit.
    pub hits: u64,
}

/// Returns the metadata slots of a design on flash, which are no RAM of it.
pub fn region(design: &EngineDesign, flash: &MeasuredFlash) -> Res<MemoryRegion> {
    Ok(MemoryRegion::new(match design.kind() {
        StoreKind::Buckets => flash.config(design)?.slot_count as usize,
        StoreKind::Weus | StoreKind::Slots => 0,
    }))
}

impl Driven {
    /// Makes an empty cache.
    pub fn new(design: &EngineDesign, flash: &MeasuredFlash, region: MemoryRegion) -> Res<Driven> {
        let config = flash.config(design)?;
        let slot_chunks = (flash.chunks / u64::from(config.slot_count)) as u32;
        let layout = design.layout(&flash.options(design), flash.bytes(), flash.addresses);
        let design = design.make(config, &layout)?;
        Ok(Driven { design, survivors: VecDeque::new(), region, slot_chunks, open: None, hits: 0 })
    }

    /// Counts the mapped chunks.
    pub fn mapped_chunks(&self) -> u64 {
        self.design.stats().mapped_chunks
    }

    /// Makes a request.
    pub fn request(&mut self, request: &Request) {
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
        self.store_survivors(request.lba);
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
            None => {
                let Request { lba, fingerprint, .. } = *request;
                let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: CHUNK_BYTES };
                if !self.design.admits(&wanted) {
                    return;
                }
                let Some(place) = self.place(&wanted) else { return };
                NewMapping::Unique { place, fingerprint: wanted.fingerprint }
            }
        };
        self.design.map(request.lba, new, None);
        self.seal_if_full();
    }

    /// Stores the records again that were worth more than their slots, but that of `changed`.
    fn store_survivors(&mut self, changed: Lba) {
        while let Some(Survivor { lba, place, fingerprint }) = self.survivors.pop_front() {
            if lba == changed || self.design.peek(lba) != Lookup::Miss {
                continue;
            }
            let new = match self.design.find_duplicate(&fingerprint) {
                Some(place) => NewMapping::Duplicate { place },
                None => {
                    let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: place.stored_len };
                    let Some(place) = self.place(&wanted) else { return self.survivors.clear() };
                    NewMapping::Unique { place, fingerprint: Some(fingerprint) }
                }
            };
            self.design.map(lba, new, None);
            self.seal_if_full();
        }
    }

    /// Returns the place of the next chunk.
    fn place(&mut self, wanted: &Wanted) -> Option<Place> {
        if self.open.is_none() {
            while self.design.free_slots() < 2 {
                if !self.make_room() {
                    break;
                }
            }
            let mut opened = self.design.open_slot_for(StreamClass::Clean, wanted);
            while opened.is_none() && self.make_room() {
                opened = self.design.open_slot_for(StreamClass::Clean, wanted);
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
    pub fn checkpoints(&mut self) -> Vec<Duration> {
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
            self.survivors.extend(self.design.survivors(victim.slot));
            if self.design.evict(victim.slot).is_some() {
                self.design.release_slot(victim.slot);
            }
        }
        self.design.sweep();
        evicted > 0
    }
}
