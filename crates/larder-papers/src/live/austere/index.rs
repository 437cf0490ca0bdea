//! A design's index alone, driven as by the engine without any write, to time its decisions.
//!
//! Invariants: a record takes its compressed size, or a whole chunk if the design has slots. Slots
//! are evicted as soon as none is free. Every mapping is clean.
//!
//! It does not do I/O, or have logs or dirty data.

use larder_core::{
    Decider, DesignConfig, Fingerprint, Lba, Lookup,
    austere::bucketed::memory::MemoryRegion,
    design::{NewMapping, Question, Wanted},
    types::{Place, SlotId, StreamClass},
};
use larder_engine::{CreateOptions, designs::EngineDesign};
use larder_format::StoreKind;
use std::time::{Duration, Instant};

/// The index's work for a request of one chunk.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexTimes {
    /// The time to find the address, and for a write its content.
    pub lookup: Duration,
    /// The time to insert it, the cost of room included.
    pub update: Duration,
    /// The request wrote new content.
    pub is_new: bool,
}

/// An index, as the module describes it.
pub struct Index {
    design: Decider,
    /// The region of its metadata slots, if it has any: their reads are I/O, and not timed here.
    region: MemoryRegion,
    slot_bytes: u32,
    /// A record takes as many slots as it needs.
    is_bucketed: bool,
    chunk_bytes: u32,
    /// The open slot and its fill.
    open: Option<(SlotId, u32, u32)>,
}

impl Index {
    /// Returns an empty index for so many bytes of chunks.
    ///
    /// # Errors
    /// A sentence, if the design cannot have these sizes.
    pub fn new(of: &EngineDesign, options: &CreateOptions, data_bytes: u64) -> Result<Index, String> {
        let (chunk_bytes, slot_bytes) = (options.chunk_bytes, options.slot_bytes);
        let chunks = data_bytes / u64::from(chunk_bytes);
        let slot_count = (data_bytes / u64::from(slot_bytes)).max(8) as u32;
        // The numbers of a layout: four mappings and two contents for each chunk that fits raw.
        let config = DesignConfig { slot_count, mappings_max: 4 * chunks, fp_entries_max: 2 * chunks };
        let layout = of.layout(options, data_bytes, u64::MAX);
        let design = of.make(config, &layout).map_err(|error| error.to_string())?;
        let is_bucketed = of.kind() == StoreKind::Buckets;
        let slots = if is_bucketed { slot_count as usize } else { 0 };
        Ok(Index { design, region: MemoryRegion::new(slots), slot_bytes, is_bucketed, chunk_bytes, open: None })
    }

    /// Reads an address, or writes a content that takes so many bytes.
    ///
    /// # Errors
    /// A sentence: the design finds no room.
    pub fn ask(&mut self, lba: u64, is_write: bool, content: u128, stored_len: u32) -> Result<IndexTimes, String> {
        let (lba, fingerprint) = (Lba(lba), Fingerprint(content.to_le_bytes()));
        self.region.inform(&mut self.design, Question::Address(lba));
        self.region.inform(&mut self.design, Question::Content(&fingerprint));
        let began = Instant::now();
        let found = self.design.lookup(lba);
        let duplicate = if is_write || found == Lookup::Miss { self.design.find_duplicate(&fingerprint) } else { None };
        let lookup = began.elapsed();
        if !is_write && found != Lookup::Miss {
            return Ok(IndexTimes { lookup, ..IndexTimes::default() });
        }
        let began = Instant::now();
        if !self.design.has_room(1) {
            self.design.sweep();
        }
        if self.design.has_room(1) || found != Lookup::Miss {
            let new = match duplicate {
                Some(place) => NewMapping::Duplicate { place },
                None => {
                    let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len };
                    NewMapping::Unique { place: self.place(&wanted)?, fingerprint: Some(fingerprint) }
                }
            };
            self.design.map(lba, new, None);
        }
        let update = began.elapsed();
        self.region.write(&mut self.design);
        Ok(IndexTimes { lookup, update, is_new: is_write && duplicate.is_none() })
    }

    fn place(&mut self, wanted: &Wanted) -> Result<Place, String> {
        if self.is_bucketed {
            let len = wanted.stored_len.min(self.chunk_bytes);
            let (slot, generation) = self.open_slot(wanted)?;
            return Ok(Place { slot, generation, offset: 0, stored_len: len, crc: 0, encoding: 0 });
        }
        let len = wanted.stored_len.min(self.slot_bytes);
        let at = match self.open {
            Some((slot, generation, at)) if at + len <= self.slot_bytes => (slot, generation, at),
            full => {
                if let Some((slot, ..)) = full {
                    self.design.seal_slot(slot);
                    self.open = None;
                }
                let (slot, generation) = self.open_slot(wanted)?;
                (slot, generation, 0)
            }
        };
        let (slot, generation, offset) = at;
        self.open = Some((slot, generation, offset + len));
        Ok(Place { slot, generation, offset, stored_len: len, crc: 0, encoding: 0 })
    }

    fn open_slot(&mut self, wanted: &Wanted) -> Result<(SlotId, u32), String> {
        loop {
            if let Some(open) = self.design.open_slot_for(StreamClass::Clean, wanted) {
                return Ok(open);
            }
            let victim = self.design.choose_victim(&mut |_| false);
            let slot = victim.ok_or_else(|| "the design finds nothing to evict".to_owned())?.slot;
            self.design.evict(slot);
            self.design.release_slot(slot);
        }
    }
}
