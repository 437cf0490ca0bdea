//! Open slots under replay: records are placed, segments closed, and counted as flash.
//!
//! Invariants: `larder_core::packing` places a record; a closed segment gets no more.
//!
//! It does not decide the time of a commit, or the slot that goes.

use super::{
    Executor,
    open_slot::{OpenSlot, index_of},
};
use larder_core::{
    Decider, Fingerprint, Place, SlotId, StreamClass, decisions::Stored, design::Wanted, packing::SegmentPacker,
};

impl Executor {
    /// Returns the class of the open segment that `place` is in.
    pub(super) fn open_class_of(&self, place: &Place) -> Option<StreamClass> {
        let holds = |class: &StreamClass| {
            self.open[index_of(*class)].as_ref().is_some_and(|open| {
                (open.slot, open.generation) == (place.slot, place.generation) && place.offset >= open.packer.start()
            })
        };
        [StreamClass::Clean, StreamClass::Dirty].into_iter().find(holds)
    }

    /// Appends a record with content `fingerprint`, and returns its place. `None` if it has no
    /// slot: a cache of too few.
    ///
    /// A record that fills its slots is closed, before it is mapped.
    pub(super) fn store(
        &mut self,
        wanted: &Wanted,
        stored: Stored,
        class: StreamClass,
        fingerprint: Fingerprint,
    ) -> Option<Place> {
        loop {
            if let Some(place) = self.append(stored, class) {
                self.asked.appended(class, &place, fingerprint);
                if class == StreamClass::Dirty && self.dirty.is_on() {
                    // The drive learns of dirty data before it comes.
                    let bytes = self.asked.bytes_of(&place);
                    self.asked.tell_dirty(&mut self.dirty, wanted.lba, Some(bytes));
                }
                if self.options.store.one_record {
                    self.close_segment(class, true);
                }
                return Some(place);
            }
            self.close_segment(class, true);
            let has_slot = self.open_slot(class, wanted).is_some()
                || self.reuse_freed(wanted.lba)
                || self.evict_some(self.options.store.evicted_at_once);
            if !has_slot {
                return None;
            }
        }
    }

    /// Keeps the segments that are closed from now on, until they are taken.
    pub fn keep_closed(&mut self) {
        self.closed = Some(Vec::new());
    }

    /// Takes the segments that were closed: their slots, and their bytes.
    pub fn take_closed(&mut self) -> Vec<(SlotId, u64)> {
        self.closed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the open slot of a class.
    pub fn open_slot_of(&self, class: StreamClass) -> Option<SlotId> {
        self.open[index_of(class)].as_ref().map(|open| open.slot)
    }

    /// Returns whether a record would fit the open slot of its class.
    pub fn would_fit(&self, stored: Stored, class: StreamClass) -> bool {
        let open = self.open[index_of(class)].as_ref();
        open.is_some_and(|open| open.packer.clone().place(stored.bytes, stored.raw).is_some())
    }

    /// Appends a record to the open slot of its class; `None` if there is none, or it is full.
    pub fn append(&mut self, stored: Stored, class: StreamClass) -> Option<Place> {
        let open = self.open[index_of(class)].as_mut()?;
        let offset = open.packer.place(stored.bytes, stored.raw)?;
        self.traffic.chunks_stored += 1;
        self.records[open.slot.0 as usize] += 1;
        let encoding = u8::from(!stored.raw);
        let (slot, generation) = (open.slot, open.generation);
        Some(Place { slot, generation, offset, stored_len: stored.bytes, crc: 0, encoding })
    }

    /// Opens a slot for a class that has none; `None` if no slot is free, or none for the wanted
    /// record.
    pub fn open_slot(&mut self, class: StreamClass, wanted: &Wanted) -> Option<SlotId> {
        let open = |design: &mut Decider| design.open_slot_for(class, wanted);
        let mut opened = open(&mut self.design);
        if opened.is_none() && self.release_dropped() {
            opened = open(&mut self.design);
        }
        let (slot, generation) = opened?;
        let rules = self.options.rules_for(wanted.stored_len);
        let (bytes, packer) = (rules.slot_bytes, SegmentPacker::new(rules));
        self.open[index_of(class)] =
            Some(OpenSlot { slot, generation, bytes, packer, awaiting: 0, holds_dirty: false });
        Some(slot)
    }

    /// Writes the open segment of a class.
    ///
    /// It seals the slot if that has no room for another, or if `seal` says so.
    pub fn close_segment(&mut self, class: StreamClass, seal: bool) {
        let Some(open) = &mut self.open[index_of(class)] else { return };
        let rules = &self.options.rules;
        if open.packer.records() > 0 {
            let bytes = u64::from(open.packer.closed_end() - open.packer.start());
            let metadata = u64::from(rules.header_bytes + open.packer.records() * rules.entry_bytes);
            self.traffic.flash_metadata_bytes_written += metadata;
            self.traffic.flash_data_bytes_written += bytes - metadata;
            self.asked.segment(class, open.slot, open.packer.start(), bytes, metadata);
            self.pending += std::mem::take(&mut open.awaiting);
            open.holds_dirty = false;
            self.closed.iter_mut().for_each(|closed| closed.push((open.slot, bytes)));
        }
        let goes_on = open.packer.records() == 0 || open.packer.next_segment();
        if seal || !goes_on {
            let (slot, bytes) = (open.slot, open.bytes);
            self.open[index_of(class)] = None;
            self.design.seal_slot(slot);
            if !self.options.store.one_record {
                self.asked.sealed(slot, bytes);
            }
        }
        // These entries have no waiter; the engine's timer commits them about as often as slots
        // fill.
        if class == StreamClass::Clean && !self.options.store.one_record {
            self.commit_if_many();
        }
    }

    /// Writes the open segments that dirty mappings are in; with `all`, every one.
    pub fn close_for_commit(&mut self, all: bool) {
        for class in [StreamClass::Clean, StreamClass::Dirty] {
            if self.open[index_of(class)].as_ref().is_some_and(|open| open.holds_dirty || all) {
                self.close_segment(class, false);
            }
        }
    }

    /// Seals the open slots, so that they may be evicted. Returns false if there was none.
    pub fn close_all(&mut self) -> bool {
        let any = self.open.iter().any(Option::is_some);
        self.close_segment(StreamClass::Clean, true);
        self.close_segment(StreamClass::Dirty, true);
        any
    }
}
