//! Device requests of a cache under replay: their places on the flash, and their waiters.
//!
//! The layout is `larder-format`'s: superblocks, two checkpoint areas, the log, and the slots
//! behind it, aligned to a slot. Log frames are written as a ring; one that does not fit before the
//! end begins at the log's beginning. Checkpoints go to the area that the last one did not use,
//! then both superblocks are written. A slot is trimmed when it was evicted. Flash is flushed as in
//! the engine: after each commit of the log, and after each checkpoint; the origin after each turn
//! of destaging.
//!
//! A write in write-back is over when it is in a segment in RAM, so no client waits for flash. In
//! write-through or write-around it waits for the log to say that the old copy is outdated, and for
//! the origin.
//!
//! Invariants: if requests are not gathered, it does nothing. A segment is one write, with the
//! parts around its records.
//!
//! It does not count: `Traffic` is counted by the operations.

use super::{open_slot::index_of, options::ExecutorOptions};
use crate::{
    devices::{Device, DeviceAction, Gathering, RawChunk, Requests, Waits},
    dirty::DirtyChunks,
};
use larder_core::{Fingerprint, Lba, Place, SlotId, StreamClass, region::METADATA_SLOT_BYTES};
use larder_format::{
    METADATA_ALIGN_BYTES,
    layout::{METADATA_OFFSET, SUPERBLOCK_OFFSETS},
    superblock::SUPERBLOCK_BYTES,
};
use std::ops::Range;

/// Requests, and their places on the flash.
pub(super) struct FlashRequests {
    gathering: Gathering,
    checkpoint_area_bytes: u64,
    log_offset: u64,
    log_bytes: u64,
    region_offset: u64,
    metadata_block_bytes: u64,
    slots_offset: u64,
    slot_bytes: u64,
    chunk_bytes: u64,
    /// The place of the next frame in the log.
    log_at: u64,
    /// Number of checkpoints made.
    checkpoints: u64,
    /// Uncompressed chunks in the open segments.
    raw: [Vec<RawChunk>; 2],
}

impl FlashRequests {
    pub fn new(options: &ExecutorOptions) -> FlashRequests {
        let slot_bytes = u64::from(options.rules.slot_bytes.max(1));
        let log_offset = METADATA_OFFSET + 2 * options.checkpoint_area_bytes;
        let region_offset = log_offset + options.log_bytes;
        let metadata_block_bytes = options.store.metadata_block_bytes;
        let region_bytes = match metadata_block_bytes {
            0 => 0,
            _ => {
                let slots = u64::from(options.slot_count) * u64::from(METADATA_SLOT_BYTES);
                slots.next_multiple_of(METADATA_ALIGN_BYTES)
            }
        };
        FlashRequests {
            gathering: Gathering::default(),
            checkpoint_area_bytes: options.checkpoint_area_bytes,
            log_offset,
            log_bytes: options.log_bytes,
            region_offset,
            metadata_block_bytes,
            slots_offset: (region_offset + region_bytes).next_multiple_of(slot_bytes),
            slot_bytes,
            chunk_bytes: u64::from(options.chunk_bytes),
            log_at: 0,
            checkpoints: 0,
            raw: [Vec::new(), Vec::new()],
        }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.gathering.is_on()
    }

    /// Sets the client that waits for the next requests.
    #[inline]
    pub fn for_whom(&mut self, waits: Waits) {
        self.gathering.for_whom(waits);
    }

    /// Sets the client that waits for the next requests, and returns the one before.
    pub fn waits_for(&mut self, waits: Waits) -> Waits {
        let before = self.gathering.waits();
        self.gathering.for_whom(waits);
        before
    }

    pub fn turn(&mut self, on: bool) {
        self.gathering.turn(on);
        self.raw.iter_mut().for_each(Vec::clear);
    }

    pub fn take(&mut self, into: &mut Requests) {
        self.gathering.take(into);
    }

    pub fn slot_start(&self, slot: SlotId) -> u64 {
        self.slots_offset + u64::from(slot.0) * self.slot_bytes
    }

    /// Returns the place of a record.
    pub fn bytes_of(&self, place: &Place) -> Range<u64> {
        let start = self.slot_start(place.slot) + u64::from(place.offset);
        start..start + u64::from(place.stored_len)
    }

    /// Tells that the dirty data of `lba` lies there now, or nowhere.
    pub fn tell_dirty(&mut self, dirty: &mut DirtyChunks, lba: Lba, place: Option<Range<u64>>) {
        dirty.set(lba, place, &mut self.gathering);
    }

    /// Returns the slots that lie in these bytes of the flash, whole or in part.
    pub fn slots_in(&self, bytes: &Range<u64>) -> Range<u64> {
        let first = bytes.start.saturating_sub(self.slots_offset) / self.slot_bytes;
        first..bytes.end.saturating_sub(self.slots_offset).div_ceil(self.slot_bytes)
    }

    /// Returns the end of so many slots.
    pub fn end_of(&self, slot_count: u32) -> u64 {
        self.slots_offset + u64::from(slot_count) * self.slot_bytes
    }

    /// Notes an appended record with a whole uncompressed chunk.
    #[inline]
    pub fn appended(&mut self, class: StreamClass, place: &Place, fingerprint: Fingerprint) {
        if self.is_on() {
            self.note_appended(class, place, fingerprint);
        }
    }

    #[cold]
    fn note_appended(&mut self, class: StreamClass, place: &Place, fingerprint: Fingerprint) {
        if place.encoding == 0 {
            let start = self.slot_start(place.slot) + u64::from(place.offset);
            self.raw[index_of(class)].push(RawChunk { start, len: place.stored_len, fingerprint });
        }
    }

    /// Writes the segment from `start` on in `slot`.
    pub fn segment(&mut self, class: StreamClass, slot: SlotId, start: u32, bytes: u64, metadata: u64) {
        if self.is_on() {
            let start = self.slot_start(slot) + u64::from(start);
            let raw = &mut self.raw[index_of(class)];
            self.gathering.add_with(Device::Flash, DeviceAction::Write, start, bytes, metadata, raw);
            raw.clear();
        }
    }

    /// Notes that the slots of so many bytes, from this one on, get no more.
    pub fn sealed(&mut self, slot: SlotId, bytes: u32) {
        if self.is_on() {
            let start = self.slot_start(slot);
            self.gathering.seal(start..start + u64::from(bytes));
        }
    }

    /// Reads or writes the block of a metadata slot.
    #[inline]
    pub fn metadata_block(&mut self, action: DeviceAction, slot: SlotId) {
        if self.is_on() {
            self.note_metadata_block(action, slot);
        }
    }

    #[cold]
    fn note_metadata_block(&mut self, action: DeviceAction, slot: SlotId) {
        let block = self.metadata_block_bytes.max(1);
        let at = u64::from(slot.0) * u64::from(METADATA_SLOT_BYTES) / block * block;
        self.gathering.add_metadata(action, self.region_offset + at, block);
    }

    /// Trims a slot.
    pub fn trimmed(&mut self, slot: SlotId) {
        if self.is_on() {
            let start = self.slot_start(slot);
            self.gathering.add(Device::Flash, DeviceAction::Trim, start, self.slot_bytes);
        }
    }

    /// Writes a frame of the log.
    #[inline]
    pub fn frame(&mut self, bytes: u64) {
        if self.is_on() {
            self.note_frame(bytes);
        }
    }

    #[cold]
    fn note_frame(&mut self, bytes: u64) {
        if self.log_at + bytes > self.log_bytes {
            self.log_at = 0;
        }
        // A frame longer than the whole log goes round it.
        let mut left = bytes;
        while left > 0 {
            let len = left.min(self.log_bytes - self.log_at).max(1);
            self.gathering.add_metadata(DeviceAction::Write, self.log_offset + self.log_at, len);
            self.log_at = (self.log_at + len) % self.log_bytes.max(1);
            left -= len;
        }
    }

    /// Makes writes to the flash durable.
    pub fn flush_flash(&mut self) {
        if self.is_on() {
            self.gathering.add(Device::Flash, DeviceAction::Flush, 0, 0);
        }
    }

    /// Makes writes to the origin durable.
    pub fn flush_origin(&mut self) {
        if self.is_on() {
            self.gathering.add(Device::Origin, DeviceAction::Flush, 0, 0);
        }
    }

    /// Writes a checkpoint of so many bytes, and the superblocks that name it.
    ///
    /// No client waits for it, not even the one that asked for the commit that made it due.
    pub fn checkpoint(&mut self, bytes: u64) {
        if !self.is_on() {
            return;
        }
        let waits = self.gathering.waits();
        self.gathering.for_whom(Waits::Nobody);
        let area = METADATA_OFFSET + self.checkpoints % 2 * self.checkpoint_area_bytes;
        self.checkpoints += 1;
        self.gathering.add_metadata(DeviceAction::Write, area, bytes);
        self.flush_flash();
        for offset in SUPERBLOCK_OFFSETS {
            self.gathering.add_metadata(DeviceAction::Write, offset, SUPERBLOCK_BYTES as u64);
        }
        self.flush_flash();
        self.gathering.for_whom(waits);
    }

    /// Reads a record, or a part of it, from a device.
    pub fn record_read(&mut self, device: Device, start: u64, len: u64) {
        self.gathering.add(device, DeviceAction::Read, start, len);
    }

    /// Reads, writes or trims chunks of the origin.
    #[inline]
    pub fn origin(&mut self, action: DeviceAction, first: Lba, count: u64) {
        if self.is_on() {
            self.note_origin(action, first, count);
        }
    }

    #[cold]
    fn note_origin(&mut self, action: DeviceAction, first: Lba, count: u64) {
        self.gathering.add(Device::Origin, action, first.0 * self.chunk_bytes, count * self.chunk_bytes);
    }
}
