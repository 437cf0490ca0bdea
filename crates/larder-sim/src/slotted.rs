//! CacheDedup's accounting: a replayed cache of equal slots, with a write policy and paper costs.
//! It takes any [`Slotted`] design.
//!
//! A read of a hit looks at the mapping alone, as an engine would. The volume's content matters
//! when the chunk is inserted. Data is destaged only when a decision asks for it.
//!
//! CacheDedup §3.3 has all metadata on flash: "the metadata for clean blocks can be written in
//! batches", and dirty metadata is committed "synchronously". It is counted by this rule. Each
//! entry that a decision changes is gathered in a page of [`METADATA_PAGE_BYTES`], which is written
//! when it is full. The decision of a dirty write that changes an entry writes the page at once,
//! padded. So does a flush when entries are gathered; the next entry begins a new page. The order
//! of replacement is not kept on flash, so hits cost nothing.
//!
//! Device requests ([`devices`](crate::devices)): data slot `n` lies at `n` chunks on the flash.
//! Behind all slots comes the metadata area, whose pages are written one after the other, as a
//! ring. The paper changes entries in place, which takes as many pages and more. Slots that are
//! freed and not written at once are trimmed; the paper is older than trims.
//!
//! A client waits for all of a dirty write, and for the destaging that it causes. On a miss it
//! waits for the origin alone. A drive that drops clean data learns the dirty data, and dropped
//! data is forgotten. In write-back a flush goes to both devices, since destaged data went to the
//! origin.
//!
//! Invariants: beside the design this takes a fixed number of bytes for any trace, if requests are
//! not gathered.
//!
//! It does not compress. A chunk takes a slot, for any stored size.

mod content_addresses;

use content_addresses::ContentAddresses;
use std::ops::Range;

use larder_core::{
    Fingerprint, Lba,
    slotted::{ChunkSlot, DataStep, Decision, METADATA_PAGE_BYTES, Slotted},
};

use crate::{
    cache::{CacheFigures, Content, ReplayCache, WritePolicy},
    devices::{Device, DeviceAction, Gathering, RawChunk, Requests, Waits},
    dirty::DirtyChunks,
    traffic::Traffic,
};

/// See the module.
pub struct SlottedCache<D> {
    design: D,
    decision: Decision,
    policy: WritePolicy,
    chunk_bytes: u64,
    entry_bytes: u64,
    traffic: Traffic,
    /// Bytes of entries in the gathered page.
    gathered_bytes: u64,
    /// Offset of the next page in the metadata area.
    metadata_at: u64,
    gathering: Gathering,
    keeps_orphans: bool,
    /// The places of dirty data, on a drive that drops clean data.
    dirty: DirtyChunks,
    /// There, the addresses of each content.
    addresses: ContentAddresses,
}

impl<D: Slotted> SlottedCache<D> {
    /// Makes an empty cache of chunks of `chunk_bytes`.
    pub fn new(design: D, policy: WritePolicy, chunk_bytes: u32) -> Self {
        SlottedCache {
            entry_bytes: u64::from(design.sizes().entry_bytes),
            design,
            decision: Decision::default(),
            policy,
            chunk_bytes: u64::from(chunk_bytes),
            traffic: Traffic::default(),
            gathered_bytes: 0,
            metadata_at: 0,
            gathering: Gathering::default(),
            keeps_orphans: false,
            dirty: DirtyChunks::default(),
            addresses: ContentAddresses::default(),
        }
    }

    /// Makes it a cache whose design keeps orphans: data whose last address got other content.
    pub fn keeping_orphans(self, keeps_orphans: bool) -> Self {
        SlottedCache { keeps_orphans, ..self }
    }

    /// Returns the design.
    pub fn design(&self) -> &D {
        &self.design
    }

    /// Makes `lba` clean: the origin has its data, as if a cache destaged by itself.
    ///
    /// A replay destages only at a decision's request.
    pub fn clean(&mut self, lba: Lba) {
        self.design.clean(lba);
    }

    fn put(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        if !is_dirty && !self.design.admits(lba, &content.fingerprint, &mut self.decision) {
            self.traffic.ghost_hits += u64::from(self.decision.was_ghost);
            self.tell_put(lba, &content.fingerprint);
            return self.execute(None, Waits::Nobody);
        }
        self.design.put(lba, &content.fingerprint, is_dirty, &mut self.decision);
        self.traffic.ghost_hits += u64::from(self.decision.was_ghost);
        self.tell_put(lba, &content.fingerprint);
        let waits = if is_dirty { Waits::Client } else { Waits::Nobody };
        self.execute(Some(&content.fingerprint), waits);
        if is_dirty && !self.decision.changed.is_empty() {
            self.commit();
        }
    }

    fn forget(&mut self, lba: Lba) -> bool {
        self.design.forget(lba, &mut self.decision);
        self.tell_dirty(lba);
        self.execute(None, Waits::Nobody);
        self.decision.was_cached
    }

    /// Tells the place of the data of `lba`, if it is dirty, has changed, or may have.
    fn tell_dirty(&mut self, lba: Lba) {
        if self.dirty.is_on() {
            let slot = self.design.lookup(lba).filter(|_| self.design.is_dirty(lba));
            let place = slot.map(|slot| u64::from(slot.0) * self.chunk_bytes);
            self.dirty.set(lba, place.map(|start| start..start + self.chunk_bytes), &mut self.gathering);
        }
    }

    /// Tells that the chunks destaged by a decision are clean, and the place of the data of `lba`.
    fn tell_put(&mut self, lba: Lba, content: &Fingerprint) {
        if !self.dirty.is_on() {
            return;
        }
        for at in 0..self.decision.destage.len() {
            self.tell_dirty(self.decision.destage[at].lba);
        }
        self.tell_dirty(lba);
        self.addresses.note(lba, content);
        if let DataStep::Store { slot, .. } = self.decision.data {
            let design = &self.design;
            self.addresses.stored(slot, content, |lba, before| match design.content_of(lba) {
                Some(known) => known == *before,
                None => design.lookup(lba).is_some(),
            });
        }
    }

    /// Destages `lba`, if it is dirty, and keeps it; `waits` is the waiting client.
    fn destage(&mut self, lba: Lba, waits: Waits) {
        if !self.design.is_dirty(lba) {
            return;
        }
        self.traffic.flash_data_bytes_read += self.chunk_bytes;
        self.traffic.origin_chunks_written += 1;
        if let Some(slot) = self.design.lookup(lba).filter(|_| self.gathering.is_on()) {
            self.gathering.for_whom(waits);
            self.gathering.add(
                Device::Flash,
                DeviceAction::Read,
                u64::from(slot.0) * self.chunk_bytes,
                self.chunk_bytes,
            );
            self.gathering.add(Device::Origin, DeviceAction::Write, lba.0 * self.chunk_bytes, self.chunk_bytes);
        }
        self.design.clean(lba);
        self.tell_dirty(lba);
    }

    /// Counts the requests of the decision; `stored` is the content to write if it says so.
    #[inline]
    fn execute(&mut self, stored: Option<&Fingerprint>, waits: Waits) {
        if self.gathering.is_on() {
            self.gathering.for_whom(waits);
            self.gather_decision(stored);
        }
        let destaged = self.decision.destage.len() as u64;
        self.traffic.flash_data_bytes_read += destaged * self.chunk_bytes;
        self.traffic.origin_chunks_written += destaged;
        self.traffic.chunks_evicted += self.decision.freed.len() as u64;
        match self.decision.data {
            DataStep::Store { evicts, .. } => {
                self.traffic.flash_data_bytes_written += self.chunk_bytes;
                self.traffic.chunks_stored += 1;
                self.traffic.chunks_evicted += u64::from(evicts);
            }
            DataStep::Nothing | DataStep::Map(_) => {}
        }
        for _ in 0..self.decision.changed.len() {
            if self.gathered_bytes + self.entry_bytes > METADATA_PAGE_BYTES {
                self.commit();
            }
            self.gathered_bytes += self.entry_bytes;
        }
    }

    /// Writes the gathered page.
    fn commit(&mut self) {
        if self.gathered_bytes > 0 {
            self.traffic.flash_metadata_bytes_written += METADATA_PAGE_BYTES;
            self.gathered_bytes = 0;
            if self.gathering.is_on() {
                self.gather_metadata_page();
            }
        }
    }

    /// Gathers the decision's device requests, its metadata apart.
    #[cold]
    fn gather_decision(&mut self, stored: Option<&Fingerprint>) {
        let SlottedCache { decision, gathering, chunk_bytes, .. } = self;
        let chunk = *chunk_bytes;
        let at = |slot: ChunkSlot| u64::from(slot.0) * chunk;
        for destage in &decision.destage {
            gathering.add(Device::Flash, DeviceAction::Read, at(destage.slot), chunk);
            gathering.add(Device::Origin, DeviceAction::Write, destage.lba.0 * chunk, chunk);
        }
        let target = match decision.data {
            DataStep::Store { slot, .. } => Some(slot),
            DataStep::Nothing | DataStep::Map(_) => None,
        };
        for &slot in decision.freed.iter().filter(|slot| Some(**slot) != target) {
            gathering.add(Device::Flash, DeviceAction::Trim, at(slot), chunk);
        }
        if let Some(slot) = target {
            let raw = stored.map(|&fingerprint| RawChunk { start: at(slot), len: chunk as u32, fingerprint });
            gathering.add_with(Device::Flash, DeviceAction::Write, at(slot), chunk, 0, raw.as_slice());
        }
    }

    #[cold]
    fn gather_metadata_page(&mut self) {
        let sizes = self.design.sizes();
        let start = sizes.data_chunks * self.chunk_bytes + self.metadata_at;
        self.gathering.add_metadata(DeviceAction::Write, start, METADATA_PAGE_BYTES);
        self.metadata_at = (self.metadata_at + METADATA_PAGE_BYTES) % sizes.metadata_bytes.max(METADATA_PAGE_BYTES);
    }

    /// Notes that a chunk of the origin is read, written or trimmed, and that a client waits for
    /// it.
    #[inline]
    fn gather_origin(&mut self, action: DeviceAction, lba: Lba) {
        if self.gathering.is_on() {
            self.gathering.for_whom(Waits::Client);
            self.gathering.add(Device::Origin, action, lba.0 * self.chunk_bytes, self.chunk_bytes);
        }
    }

    /// Notes that a slot is read, and that a client waits for it.
    #[cold]
    fn gather_slot_read(&mut self, slot: ChunkSlot) {
        self.gathering.for_whom(Waits::Client);
        self.gathering.add(Device::Flash, DeviceAction::Read, u64::from(slot.0) * self.chunk_bytes, self.chunk_bytes);
    }

    /// Counts a put that was not stored since its content was there.
    fn count_duplicate(&mut self) {
        self.traffic.chunks_deduplicated += u64::from(matches!(self.decision.data, DataStep::Map(_)));
    }
}

impl<D: Slotted> ReplayCache for SlottedCache<D> {
    #[inline]
    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        if let Some(slot) = self.design.read(lba, &mut self.decision) {
            self.traffic.flash_data_bytes_read += self.chunk_bytes;
            if self.gathering.is_on() {
                self.gather_slot_read(slot);
            }
            self.execute(None, Waits::Nobody);
            return true;
        }
        self.traffic.origin_chunks_read += 1;
        self.gather_origin(DeviceAction::Read, lba);
        self.put(lba, content, false);
        self.count_duplicate();
        false
    }

    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        if self.policy != WritePolicy::Back {
            self.traffic.origin_chunks_written += 1;
            self.gather_origin(DeviceAction::Write, lba);
        }
        if self.policy == WritePolicy::Around {
            return self.forget(lba);
        }
        self.put(lba, content, self.policy == WritePolicy::Back);
        self.count_duplicate();
        self.decision.was_cached
    }

    fn trim(&mut self, lba: Lba) {
        self.gather_origin(DeviceAction::Trim, lba);
        self.forget(lba);
    }

    fn trim_part(&mut self, lba: Lba) {
        self.destage(lba, Waits::Client);
        self.forget(lba);
    }

    fn flush(&mut self) {
        self.gathering.for_whom(Waits::Flush);
        self.commit();
        if self.gathering.is_on() {
            if self.policy == WritePolicy::Back {
                self.gathering.add(Device::Flash, DeviceAction::Flush, 0, 0);
            }
            self.gathering.add(Device::Origin, DeviceAction::Flush, 0, 0);
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn figures(&self) -> CacheFigures {
        let stats = self.design.stats();
        CacheFigures {
            index_ram_bytes: stats.ram_bytes + self.decision.ram_bytes() as u64,
            mapped_chunks: stats.mapped_chunks,
            unstored_zero_chunks: 0,
            live_chunks: stats.live_slots,
            stale_chunks: stats.stale_slots,
            live_stored_bytes: stats.live_slots * self.chunk_bytes,
        }
    }

    fn gather(&mut self, on: bool) {
        self.gathering.turn(on);
    }

    fn take_requests(&mut self, into: &mut Requests) {
        self.gathering.take(into);
    }

    fn expect_drops(&mut self) -> bool {
        if !self.keeps_orphans {
            self.dirty.turn_on();
        }
        !self.keeps_orphans
    }

    fn evict_range(&mut self, bytes: Range<u64>) {
        let slots = self.design.sizes().data_chunks;
        let at = |byte: u64| (byte / self.chunk_bytes).min(slots) as u32;
        for slot in (at(bytes.start)..at(bytes.end.next_multiple_of(self.chunk_bytes))).map(ChunkSlot) {
            for lba in self.addresses.of_slot(slot) {
                if self.design.lookup(lba) == Some(slot) {
                    self.destage(lba, Waits::Nobody);
                    self.forget(lba);
                }
            }
        }
    }

    fn clean_range(&mut self, bytes: Range<u64>) {
        for lba in self.dirty.in_bytes(&bytes) {
            self.destage(lba, Waits::Nobody);
        }
    }

    fn flash_data_range(&self) -> Range<u64> {
        0..self.design.sizes().data_chunks * self.chunk_bytes
    }

    fn flash_span_bytes(&self) -> u64 {
        let sizes = self.design.sizes();
        sizes.data_chunks * self.chunk_bytes + sizes.metadata_bytes.max(METADATA_PAGE_BYTES)
    }
}
