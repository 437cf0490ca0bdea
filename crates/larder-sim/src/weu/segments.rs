//! Open WEUs under replay: records are placed, segments closed, and counted as flash.
//!
//! Invariants: `larder_core::packing` places a record; a closed segment gets no more.
//!
//! It does not decide the time of a commit, or the WEU that goes.

use super::WeuCache;
use larder_core::{Decider, Place, SlotId, StreamClass, decisions::Stored, design::Wanted, packing::SegmentPacker};

/// A WEU that is being filled.
pub(super) struct OpenWeu {
    pub slot: SlotId,
    pub generation: u32,
    pub packer: SegmentPacker,
    /// Mappings that are logged when the segment is written.
    pub awaiting: u64,
    pub holds_dirty: bool,
}

pub(super) fn index_of(class: StreamClass) -> usize {
    match class {
        StreamClass::Clean => 0,
        StreamClass::Dirty => 1,
    }
}

/// Returns the class of dirty chunks, or of clean ones.
pub(super) fn class_of(dirty: bool) -> StreamClass {
    if dirty { StreamClass::Dirty } else { StreamClass::Clean }
}

impl WeuCache {
    /// Returns the class of the open segment that `place` is in.
    pub(super) fn open_class_of(&self, place: &Place) -> Option<StreamClass> {
        let holds = |class: &StreamClass| {
            self.open[index_of(*class)].as_ref().is_some_and(|open| {
                (open.slot, open.generation) == (place.slot, place.generation) && place.offset >= open.packer.start()
            })
        };
        [StreamClass::Clean, StreamClass::Dirty].into_iter().find(holds)
    }

    /// Appends a record, and returns its place. `None` if it has no slot: a cache of too few WEUs.
    pub(super) fn store(&mut self, stored: Stored, class: StreamClass) -> Option<Place> {
        loop {
            if let Some(place) = self.append(stored, class) {
                return Some(place);
            }
            self.close_segment(class, true);
            if self.open_weu(class, None).is_none() && !self.evict() {
                return None;
            }
        }
    }

    /// Appends a record to the open WEU of its class; `None` if there is none, or it is full.
    pub(super) fn append(&mut self, stored: Stored, class: StreamClass) -> Option<Place> {
        let open = self.open[index_of(class)].as_mut()?;
        let offset = open.packer.place(stored.bytes, stored.raw)?;
        self.traffic.chunks_stored += 1;
        self.records[open.slot.0 as usize] += 1;
        let encoding = u8::from(!stored.raw);
        let (slot, generation) = (open.slot, open.generation);
        Some(Place { slot, generation, offset, stored_len: stored.bytes, crc: 0, encoding })
    }

    /// Opens a WEU for a class that has none; `None` if no slot is free, or none for the wanted
    /// record.
    pub(super) fn open_weu(&mut self, class: StreamClass, wanted: Option<&Wanted>) -> Option<SlotId> {
        let open = |design: &mut Decider| match wanted {
            Some(wanted) => design.open_slot_for(class, wanted),
            None => design.open_slot(class),
        };
        let mut opened = open(&mut self.design);
        if opened.is_none() && self.release_dropped() {
            opened = open(&mut self.design);
        }
        let (slot, generation) = opened?;
        let packer = SegmentPacker::new(self.options.rules);
        self.open[index_of(class)] = Some(OpenWeu { slot, generation, packer, awaiting: 0, holds_dirty: false });
        Some(slot)
    }

    /// Writes the open segment of a class.
    ///
    /// It seals the WEU if that has no room for another, or if `seal` says so.
    pub(super) fn close_segment(&mut self, class: StreamClass, seal: bool) {
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
            if let Some(following) = &mut self.following {
                following.segment_closed(open.slot, bytes);
            }
        }
        let goes_on = open.packer.records() == 0 || open.packer.next_segment();
        if seal || !goes_on {
            let slot = open.slot;
            self.open[index_of(class)] = None;
            self.design.seal_slot(slot);
            self.asked.sealed(slot);
        }
        // These entries have no waiter; the engine's timer commits them about as often as WEUs
        // fill.
        if class == StreamClass::Clean {
            self.commit_if_many();
        }
    }

    /// Writes the open segments that dirty mappings are in; with `all`, every one.
    pub(super) fn close_for_commit(&mut self, all: bool) {
        for class in [StreamClass::Clean, StreamClass::Dirty] {
            if self.open[index_of(class)].as_ref().is_some_and(|open| open.holds_dirty || all) {
                self.close_segment(class, false);
            }
        }
    }

    /// Seals the open WEUs, so that they may be evicted. Returns false if there was none.
    pub(super) fn close_all(&mut self) -> bool {
        let any = self.open.iter().any(Option::is_some);
        self.close_segment(StreamClass::Clean, true);
        self.close_segment(StreamClass::Dirty, true);
        any
    }
}
