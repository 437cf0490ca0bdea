//! AustereCache's accounting: the decisions of [`larder_core::austere`] over replayed metadata
//! slots. The slots are in `region.rs`.
//!
//! It counts the device traffic of the paper's system (§3.1, §3.2). Each look at a metadata slot
//! reads 512 bytes, each change of one writes 512, and a chunk is written and read in whole
//! subchunks. A duplicate whose address is in the list already writes no bytes. Nor do evicting and
//! invalidating.
//!
//! Device requests ([`devices`](crate::devices)): the metadata region lies first on the flash, 512
//! bytes for each slot, then the data region. Runs that leave the flash are trimmed, unless they
//! are overwritten at once. A client waits for all of a dirty write. On a miss it waits for the
//! reads of metadata slots that showed the miss, and for the origin.
//!
//! Invariants: a dirty mapping is destaged before its data leaves the flash. A hit has the content
//! of the address; [`AustereCache::wrong_hits`] counts the others, which are an error of the cache
//! or of the trace.
//!
//! It destages only to make room, or if it is [told to](AustereCache::clean): chunks that are dirty
//! at the end of a trace stay so.

mod region;

use std::ops::Range;

use larder_core::{
    Fingerprint, Lba,
    austere::{Austere, AustereConfig, AustereError, fp_index::SlotRun},
    region::{ListChange, METADATA_SLOT_BYTES, RunMetadata},
};

use crate::{
    cache::{CacheFigures, Content, ReplayCache, WritePolicy},
    devices::{Device, DeviceAction, Gathering, RawChunk, Requests, Waits},
    dirty::DirtyChunks,
    traffic::Traffic,
};
use region::Region;

const SLOT_BYTES: u64 = METADATA_SLOT_BYTES as u64;

/// An AustereCache.
pub struct AustereCache {
    core: Austere,
    policy: WritePolicy,
    region: Region,
    /// The slot that was read last.
    slot: RunMetadata,
    traffic: Traffic,
    wrong_hits: u64,
    siblings_replaced: u64,
    destaged: Vec<(Lba, Fingerprint)>,
    gathering: Gathering,
    /// The places of dirty data, if the drive asks for them.
    dirty: DirtyChunks,
}

impl AustereCache {
    /// Makes an empty cache; `policy` decides if mappings may be dirty, and overrides `config`.
    pub fn new(config: AustereConfig, policy: WritePolicy) -> Result<AustereCache, AustereError> {
        let core = Austere::new(AustereConfig { is_write_back: policy == WritePolicy::Back, ..config })?;
        let region = Region::new(core.contents());
        let (slot, traffic, destaged) = (RunMetadata::EMPTY, Traffic::default(), Vec::new());
        let gathering = Gathering::default();
        Ok(AustereCache {
            core,
            policy,
            region,
            slot,
            traffic,
            wrong_hits: 0,
            siblings_replaced: 0,
            destaged,
            gathering,
            dirty: DirtyChunks::default(),
        })
    }

    /// Returns the decisions.
    pub fn core(&self) -> &Austere {
        &self.core
    }

    /// Counts the read hits with another content than the volume's.
    pub fn wrong_hits(&self) -> u64 {
        self.wrong_hits
    }

    /// Counts the replacements of an address by another one of its LBA-hash in the list of a
    /// content.
    ///
    /// An engine over a real flash has to write that in two steps if a crash may lose the newer
    /// address.
    pub fn siblings_replaced(&self) -> u64 {
        self.siblings_replaced
    }

    /// Returns the chunks that the last request destaged, in order.
    pub fn destaged(&self) -> &[(Lba, Fingerprint)] {
        &self.destaged
    }

    /// Returns the dirty addresses, each with its content, in no useful order.
    pub fn dirty(&self) -> impl Iterator<Item = (Lba, Fingerprint)> + '_ {
        self.core.runs().flat_map(move |run| {
            let mut slot = RunMetadata::EMPTY;
            self.region.read(self.core.key_of(run), &mut slot);
            let is_dirty = |lba: &Lba| self.core.config().is_write_back && self.core.is_dirty(*lba, run);
            let dirty: Vec<_> = slot.lbas().filter(is_dirty).map(|lba| (lba, *slot.fingerprint())).collect();
            dirty
        })
    }

    /// Destages `lba`, if it is dirty, though its place is not needed.
    pub fn clean(&mut self, lba: Lba) {
        self.destaged.clear();
        if let Some(mapping) = self.core.dirty_mapping(lba) {
            self.load(mapping.run);
            if self.core.owner(&mapping, &self.slot) == Some(lba) {
                self.destage(lba, mapping.run);
            }
        }
    }

    /// Maps `lba` to a content, and stores it if it is new (§3.1, write path and deduplication
    /// path).
    fn insert(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        let fingerprint = &content.fingerprint;
        // 1. Duplicate, collision, or neither.
        let mut duplicate = self.core.find_content(fingerprint);
        if let Some(run) = duplicate {
            self.read_slot(run);
            if self.slot.fingerprint() != fingerprint {
                self.evict(run, Some(lba));
                duplicate = None;
            }
        }
        // 2. A dirty mapping that gives way.
        if let Some(displaced) = self.core.displaced(lba, fingerprint) {
            self.read_slot(displaced.run);
            if let Some(owner) = self.core.owner(&displaced, &self.slot).filter(|&owner| owner != lba) {
                self.destage(owner, displaced.run);
            }
        }
        // 3. The mapping, then its data: no read comes in between.
        match duplicate {
            Some(run) => self.share(lba, fingerprint, run, is_dirty),
            None => self.store(lba, content, is_dirty),
        }
    }

    /// Adds an address to a stored content.
    fn share(&mut self, lba: Lba, fingerprint: &Fingerprint, run: SlotRun, is_dirty: bool) {
        self.load(run);
        let change = self.core.list_change(lba, &self.slot);
        if let ListChange::Replaces(old) | ListChange::Overflows(old) = change
            && self.core.is_dirty(old, run)
        {
            self.destage(old, run);
        }
        self.core.map(lba, fingerprint, is_dirty);
        self.tell(lba, run, is_dirty);
        self.traffic.chunks_deduplicated += 1;
        if change != ListChange::Present {
            self.siblings_replaced += u64::from(matches!(change, ListChange::Replaces(_)));
            self.slot.apply(lba, change);
            self.region.write(&self.slot);
            self.count_metadata_written(run);
        }
    }

    /// Stores a new content.
    fn store(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        let count = self.core.slots_for(content.stored_bytes);
        self.core.map(lba, &content.fingerprint, is_dirty);
        for victim in self.core.victims(&content.fingerprint, count) {
            if victim.may_be_dirty {
                self.count_metadata_read(victim.run);
            }
            self.evict(victim.run, None);
        }
        self.tell_clean(lba);
        let Some(run) = self.core.store(&content.fingerprint, count) else { return };
        self.tell(lba, run, is_dirty);
        self.slot.reset(content.fingerprint, content.stored_bytes, lba);
        self.region.write(&self.slot);
        self.traffic.chunks_stored += 1;
        self.traffic.flash_data_bytes_written += self.run_bytes(run);
        if self.gathering.is_on() {
            self.gather_chunk(content, run);
        }
        self.count_metadata_written(run);
    }

    /// Frees a run, whose metadata slot was read if mappings may be dirty.
    ///
    /// The chunk of `overwritten` gets new content right now.
    fn evict(&mut self, run: SlotRun, overwritten: Option<Lba>) {
        if self.policy == WritePolicy::Back {
            self.load(run);
            for lba in self.slot.clone().lbas() {
                match self.core.is_dirty(lba, run) {
                    true if overwritten == Some(lba) => {
                        self.core.clean(lba);
                        self.tell_clean(lba);
                    }
                    true => self.destage(lba, run),
                    false => {}
                }
            }
        }
        if self.gathering.is_on() {
            self.gathering.add(Device::Flash, DeviceAction::Trim, self.data_start(run), self.run_bytes(run));
        }
        self.region.remove(self.core.key_of(run));
        self.core.evict(run);
        self.traffic.chunks_evicted += 1;
    }

    /// Destages `lba`, which maps to `run`, whose metadata slot was loaded.
    fn destage(&mut self, lba: Lba, run: SlotRun) {
        self.count_data_read(run);
        self.traffic.origin_chunks_written += 1;
        self.gather_origin(DeviceAction::Write, lba);
        self.destaged.push((lba, *self.slot.fingerprint()));
        self.core.clean(lba);
        self.tell_clean(lba);
    }

    /// Tells that the data of `lba` is in this run now, and dirty or not.
    fn tell(&mut self, lba: Lba, run: SlotRun, is_dirty: bool) {
        if self.dirty.is_on() {
            let start = self.data_start(run);
            let place = is_dirty.then_some(start..start + self.run_bytes(run));
            self.dirty.set(lba, place, &mut self.gathering);
        }
    }

    fn tell_clean(&mut self, lba: Lba) {
        if self.dirty.is_on() {
            self.dirty.set(lba, None, &mut self.gathering);
        }
    }

    /// Ends the mapping of `lba` without destaging it; a dirty one of another address stays.
    fn forget(&mut self, lba: Lba) {
        if let Some(mapping) = self.core.dirty_mapping(lba) {
            self.read_slot(mapping.run);
            if self.core.owner(&mapping, &self.slot) != Some(lba) {
                return;
            }
        }
        self.core.forget(lba);
        self.tell_clean(lba);
    }

    /// Puts the metadata slot of a run in use into `slot`.
    #[inline]
    fn load(&mut self, run: SlotRun) {
        let is_there = self.region.read(self.core.key_of(run), &mut self.slot);
        debug_assert!(is_there, "a run in use has a metadata slot");
    }

    /// Loads the slot and counts the read, since the cache itself reads it from flash.
    #[inline]
    fn read_slot(&mut self, run: SlotRun) {
        self.count_metadata_read(run);
        self.load(run);
    }

    #[inline]
    fn count_metadata_read(&mut self, run: SlotRun) {
        self.traffic.flash_metadata_bytes_read += SLOT_BYTES;
        if self.gathering.is_on() {
            self.gathering.add_metadata(DeviceAction::Read, u64::from(run.first) * SLOT_BYTES, SLOT_BYTES);
        }
    }

    fn count_metadata_written(&mut self, run: SlotRun) {
        self.traffic.flash_metadata_bytes_written += SLOT_BYTES;
        if self.gathering.is_on() {
            self.gathering.add_metadata(DeviceAction::Write, u64::from(run.first) * SLOT_BYTES, SLOT_BYTES);
        }
    }

    #[inline]
    fn count_data_read(&mut self, run: SlotRun) {
        self.traffic.flash_data_bytes_read += self.run_bytes(run);
        if self.gathering.is_on() {
            self.gathering.add(Device::Flash, DeviceAction::Read, self.data_start(run), self.run_bytes(run));
        }
    }

    /// Notes that a chunk is stored in `run`.
    #[cold]
    fn gather_chunk(&mut self, content: &Content, run: SlotRun) {
        let (start, chunk_bytes) = (self.data_start(run), self.core.config().chunk_bytes);
        let raw = RawChunk { start, len: chunk_bytes, fingerprint: content.fingerprint };
        let is_raw = content.stored_bytes >= chunk_bytes;
        let raw = if is_raw { std::slice::from_ref(&raw) } else { &[] };
        self.gathering.add_with(Device::Flash, DeviceAction::Write, start, self.run_bytes(run), 0, raw);
    }

    #[inline]
    fn gather_origin(&mut self, action: DeviceAction, lba: Lba) {
        if self.gathering.is_on() {
            let chunk = u64::from(self.core.config().chunk_bytes);
            self.gathering.add(Device::Origin, action, lba.0 * chunk, chunk);
        }
    }

    /// Returns the beginning of the subchunks of a run on the flash.
    fn data_start(&self, run: SlotRun) -> u64 {
        let subchunk = u64::from(self.core.config().subchunk_bytes);
        self.core.slot_count() as u64 * SLOT_BYTES + u64::from(run.first) * subchunk
    }

    fn run_bytes(&self, run: SlotRun) -> u64 {
        u64::from(run.count) * u64::from(self.core.config().subchunk_bytes)
    }
}

impl ReplayCache for AustereCache {
    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        self.destaged.clear();
        self.gathering.for_whom(Waits::Client);
        if let Some(run) = self.core.lookup(lba) {
            self.read_slot(run);
            if self.slot.has(lba) {
                self.wrong_hits += u64::from(*self.slot.fingerprint() != content.fingerprint);
                self.core.touch(lba);
                self.count_data_read(run);
                return true;
            }
        }
        self.traffic.origin_chunks_read += 1;
        self.gather_origin(DeviceAction::Read, lba);
        self.gathering.for_whom(Waits::Nobody);
        self.insert(lba, content, false);
        false
    }

    /// Returns true if both indices have an entry for the address.
    ///
    /// The paper does not count write hits, and reads no metadata slot for one; so two addresses of
    /// one LBA-hash are one here.
    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        self.destaged.clear();
        self.gathering.for_whom(Waits::Client);
        let was_cached = self.core.lookup(lba).is_some();
        if self.policy != WritePolicy::Back {
            self.traffic.origin_chunks_written += 1;
            self.gather_origin(DeviceAction::Write, lba);
            self.gathering.for_whom(Waits::Nobody);
        }
        match self.policy {
            WritePolicy::Around => self.forget(lba),
            WritePolicy::Through => self.insert(lba, content, false),
            WritePolicy::Back => self.insert(lba, content, true),
        }
        was_cached
    }

    fn trim(&mut self, lba: Lba) {
        self.destaged.clear();
        self.gathering.for_whom(Waits::Client);
        self.gather_origin(DeviceAction::Trim, lba);
        self.forget(lba);
    }

    fn trim_part(&mut self, lba: Lba) {
        self.gathering.for_whom(Waits::Client);
        self.clean(lba);
        self.forget(lba);
    }

    /// Writes no bytes: chunk and metadata slot are on flash when a write is done.
    fn flush(&mut self) {
        self.destaged.clear();
        if self.gathering.is_on() {
            self.gathering.for_whom(Waits::Flush);
            if self.policy == WritePolicy::Back {
                self.gathering.add(Device::Flash, DeviceAction::Flush, 0, 0);
            }
            self.gathering.add(Device::Origin, DeviceAction::Flush, 0, 0);
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Walks all metadata slots.
    fn figures(&self) -> CacheFigures {
        let mut figures = CacheFigures { index_ram_bytes: self.core.ram().bytes() as u64, ..CacheFigures::default() };
        let mut slot = RunMetadata::EMPTY;
        for run in self.core.runs() {
            self.region.read(self.core.key_of(run), &mut slot);
            let mapped = slot.lbas().filter(|&lba| self.core.is_mapped(lba, run)).count() as u64;
            figures.mapped_chunks += mapped;
            if mapped == 0 {
                figures.stale_chunks += 1;
            } else {
                figures.live_chunks += 1;
                figures.live_stored_bytes += u64::from(slot.stored_bytes());
            }
        }
        figures
    }

    fn gather(&mut self, on: bool) {
        self.gathering.turn(on);
    }

    fn take_requests(&mut self, into: &mut Requests) {
        self.gathering.take(into);
    }

    fn expect_drops(&mut self) -> bool {
        self.dirty.turn_on();
        true
    }

    /// Drops a content if its chunk or its metadata slot was dropped.
    fn evict_range(&mut self, bytes: Range<u64>) {
        self.gathering.for_whom(Waits::Nobody);
        let (slots, subchunk) = (self.core.slot_count() as u64, u64::from(self.core.config().subchunk_bytes));
        let part = |start: u64, each: u64| {
            let at = |byte: u64| (byte.saturating_sub(start)).min(slots * each);
            at(bytes.start) / each..at(bytes.end).div_ceil(each)
        };
        let (metadata, data) = (part(0, SLOT_BYTES), part(slots * SLOT_BYTES, subchunk));
        // A run that reaches into the data begins before it.
        let longest = u64::from(self.core.slots_for(self.core.config().chunk_bytes));
        for first in metadata.chain(data.start.saturating_sub(longest - 1)..data.end) {
            let run = self.core.run_from(first as u32);
            let is_dropped = |run: &SlotRun| {
                let lies = self.data_start(*run)..self.data_start(*run) + self.run_bytes(*run);
                let slot = first * SLOT_BYTES;
                (lies.start < bytes.end && bytes.start < lies.end)
                    || (slot < bytes.end && bytes.start < slot + SLOT_BYTES)
            };
            if let Some(run) = run.filter(is_dropped) {
                self.evict(run, None);
            }
        }
    }

    fn clean_range(&mut self, bytes: Range<u64>) {
        self.gathering.for_whom(Waits::Nobody);
        for lba in self.dirty.in_bytes(&bytes) {
            AustereCache::clean(self, lba);
        }
    }

    fn flash_data_range(&self) -> Range<u64> {
        self.core.slot_count() as u64 * SLOT_BYTES..self.flash_span_bytes()
    }

    fn flash_span_bytes(&self) -> u64 {
        self.core.slot_count() as u64 * (SLOT_BYTES + u64::from(self.core.config().subchunk_bytes))
    }
}
