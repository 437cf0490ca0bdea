//! A cache over WEU slots under replay: any [`Design`], executed as the engine does, with counts in place of I/O.
//!
//! The steps are those of `larder-engine`, in a world where each device operation is over at once and one request follows
//! the other: a miss is inserted before the next request; a WEU is evicted when a slot is needed and none is free; a clean
//! mapping is logged when its segment is written. Layout, packing and the sizes of frames and checkpoints are those of
//! `larder-format` and `larder_core::packing`, so bytes are what the engine would write.
//!
//! Nitro's extent-granular caches (Nitro §5.3, §6.1) are the same code with one chunk a WEU, and no compression; [`sizing`]
//! says what then is metadata.
//!
//! In write-back a trim makes runs, which read as zeroes until the origin was told of them: by destaging, which takes dirty
//! chunks and runs as their addresses come, where either are too many.
//!
//! Invariants: a slot is reused only after its dirty mappings were destaged; open WEUs count as flash from the moment that
//! their segments are closed.
//!
//! What it does not do: prefetching, fragments (each request is a whole chunk), or the engine's reserve of free slots, which
//! only concurrency needs.

use crate::cache::{Content, Figures, ReplayCache, Traffic, WritePolicy};
use larder_core::{
    Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    packing::{PackingRules, SegmentPacker},
    ranges::Run,
};
use larder_format::{
    CheckpointCounts, checkpoint::checkpoint_bytes_max, layout::SUPERBLOCK_OFFSETS, log::frame_bytes_for,
    superblock::SUPERBLOCK_BYTES,
};
use std::collections::HashMap;

mod destage;
pub mod sizing;

/// The fewest slots: an open one for each class of data, and one to evict.
const SLOTS_MIN: u32 = 3;
/// A checkpoint is due when this share of the log is used, in percent, as in the engine.
const LOG_USED_PERCENT: u64 = 50;
/// Chunks of a trim that make a run, as in the engine.
const TRIMMED_AT_ONCE: u64 = 1 << 14;
/// Entries of a frame at most: a frame has a mebibyte at most.
const FRAME_ENTRIES_MAX: u64 = (1 << 20) / 64 - 1;

/// How a WEU cache works.
#[derive(Clone, Copy, Debug)]
pub struct WeuOptions {
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// Size of a WEU in bytes, and of what surrounds its records.
    pub rules: PackingRules,
    /// WEU slots.
    pub slot_count: u32,
    /// Mappings at most.
    pub mappings_max: u64,
    /// Known fingerprints at most; 0 turns deduplication off.
    pub fp_entries_max: u64,
    /// Size of the metadata log in bytes.
    pub log_bytes: u64,
    /// When writes reach the origin.
    pub policy: WritePolicy,
    /// Whether chunks are stored compressed.
    pub compress: bool,
    /// In write-back: destaging begins when so many chunks are dirty.
    pub dirty_chunks_max: u64,
    /// Trimmed runs that a checkpoint holds. In write-back, destaging begins at half of them: from there on nothing limits the
    /// engine's rate.
    pub zero_ranges_max: u64,
    /// Entries for which nobody waits are written to the log when so many of them are there: 1 for each time that a WEU
    /// is full or freed. After so many evictions one shard of the index is swept.
    pub commit_entries: u64,
}

struct OpenWeu {
    slot: SlotId,
    generation: u32,
    packer: SegmentPacker,
    /// Mappings that are logged when the segment is written.
    awaiting: u64,
    holds_dirty: bool,
}

/// The cache.
pub struct WeuCache {
    design: Box<dyn Design>,
    options: WeuOptions,
    open: [Option<OpenWeu>; 2],
    /// Records in each slot.
    records: Vec<u32>,
    /// Entries that wait for the next frame of the log.
    pending: u64,
    log_used_bytes: u64,
    next_seq: u64,
    destaged_to: Lba,
    /// WEUs that were evicted.
    evictions: u64,
    traffic: Traffic,
}

impl WeuCache {
    /// An empty cache whose decisions `design` makes.
    ///
    /// # Errors
    /// One sentence, with the least that works: a cache of too few WEUs or mappings.
    pub fn new(design: impl FnOnce(DesignConfig) -> Box<dyn Design>, options: WeuOptions) -> Result<Self, String> {
        let WeuOptions { slot_count, mappings_max, fp_entries_max, .. } = options;
        if slot_count < SLOTS_MIN {
            return Err(format!("{slot_count} WEUs are too few for a cache; {SLOTS_MIN} is the least"));
        }
        let chunks = u64::from(options.rules.weu_bytes / options.chunk_bytes.max(1)).max(1);
        if mappings_max < chunks {
            return Err(format!(
                "{mappings_max} mappings are too few for WEUs of {chunks} chunks; {chunks} is the least"
            ));
        }
        let mut packer = SegmentPacker::new(options.rules);
        if packer.place(options.chunk_bytes, true).is_none() {
            let (chunk, weu) = (options.chunk_bytes, options.rules.weu_bytes);
            return Err(format!("a chunk of {chunk} bytes does not fit a WEU of {weu} with what surrounds it"));
        }
        Ok(WeuCache {
            design: design(DesignConfig { slot_count, mappings_max, fp_entries_max }),
            options,
            open: [None, None],
            records: vec![0; slot_count as usize],
            pending: 0,
            log_used_bytes: 0,
            next_seq: 1,
            destaged_to: Lba(0),
            evictions: 0,
            traffic: Traffic::default(),
        })
    }

    /// WEUs that were evicted: erasures, where a WEU is what the flash erases at once (Nitro §6.1).
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The design.
    pub fn design(&self) -> &dyn Design {
        &*self.design
    }

    fn stored_bytes(&self, content: &Content) -> u32 {
        let chunk = self.options.chunk_bytes;
        if self.options.compress { content.stored_bytes.min(chunk) } else { chunk }
    }

    /// Maps `lba` to `content`, which is stored where it is not known.
    fn insert(&mut self, lba: Lba, content: &Content, dirty: bool) {
        self.make_room();
        let (new, class) = if content.is_zero() {
            (NewMapping::Zero, None)
        } else if let Some(place) = self.known(&content.fingerprint) {
            self.traffic.chunks_deduplicated += 1;
            (NewMapping::Duplicate { place }, self.open_class_of(&place))
        } else {
            let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
            let Some(place) = self.store(self.stored_bytes(content), class) else { return };
            let fingerprint = (self.options.fp_entries_max > 0).then_some(content.fingerprint);
            (NewMapping::Unique { place, fingerprint }, Some(class))
        };
        self.map(lba, new, class, dirty);
    }

    /// Maps `lba`, and logs that: with the segment that its record is in, of class `class`, where that is open still.
    fn map(&mut self, lba: Lba, new: NewMapping, class: Option<StreamClass>, dirty: bool) {
        let seq = dirty.then_some(self.next_seq);
        self.next_seq += 1;
        self.design.map(lba, new, seq);
        match class.and_then(|class| self.open[index_of(class)].as_mut()) {
            Some(open) if dirty => {
                open.holds_dirty = true;
                self.pending += 1;
            }
            Some(open) => open.awaiting += 1,
            None => self.pending += 1,
        }
    }

    fn known(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        if self.options.fp_entries_max == 0 { None } else { self.design.find_duplicate(fingerprint) }
    }

    /// The class of the open segment that `place` is in.
    fn open_class_of(&self, place: &Place) -> Option<StreamClass> {
        let holds = |class: &StreamClass| {
            self.open[index_of(*class)].as_ref().is_some_and(|open| {
                (open.slot, open.generation) == (place.slot, place.generation) && place.offset >= open.packer.start()
            })
        };
        [StreamClass::Clean, StreamClass::Dirty].into_iter().find(holds)
    }

    /// The index has a limit: what the design has replaced goes first, then stale entries, then WEUs.
    fn make_room(&mut self) {
        if self.design.has_room(1) {
            return;
        }
        self.drop_replaced();
        self.sweep_while(|design| !design.has_room(1));
        while !self.design.has_room(1) && (self.evict() || self.close_all()) {
            self.sweep_while(|_| true);
            (0..self.design.export_pieces()).for_each(|_| self.drop_replaced());
        }
    }

    /// Removes stale entries, until none is left or it is enough. To look through the index for each address that comes, where none
    /// is stale, would take longer than all else.
    fn sweep_while(&mut self, is_wanted: impl Fn(&dyn Design) -> bool) {
        if !is_wanted(&*self.design) {
            return;
        }
        let stats = self.design.stats();
        let mut stale = stats.lba_index_entries - stats.mapped_chunks;
        for _ in 0..self.design.export_pieces() {
            if stale == 0 || !is_wanted(&*self.design) {
                return;
            }
            stale = stale.saturating_sub(self.design.sweep() as u64);
        }
    }

    /// What is forgotten that way is logged.
    fn drop_replaced(&mut self) {
        self.pending += self.design.drop_clean_zeroes(false, usize::MAX).len() as u64;
    }

    /// Appends a record; its place. `None` where there is no slot for it: a cache of too few WEUs.
    fn store(&mut self, bytes: u32, class: StreamClass) -> Option<Place> {
        let raw = bytes == self.options.chunk_bytes;
        loop {
            let open = match &mut self.open[index_of(class)] {
                Some(open) => open,
                none => {
                    let Some((slot, generation)) = self.design.open_slot(class) else {
                        if self.evict() {
                            continue;
                        }
                        return None;
                    };
                    let packer = SegmentPacker::new(self.options.rules);
                    none.insert(OpenWeu { slot, generation, packer, awaiting: 0, holds_dirty: false })
                }
            };
            if let Some(offset) = open.packer.place(bytes, raw) {
                let encoding = u8::from(!raw);
                let (slot, generation) = (open.slot, open.generation);
                self.traffic.chunks_stored += 1;
                self.records[slot.0 as usize] += 1;
                return Some(Place { slot, generation, offset, stored_len: bytes, crc: 0, encoding });
            }
            self.close_segment(class, true);
        }
    }

    /// Writes the open segment of a class; seals the WEU where it has no room for another, or where `seal` says so.
    fn close_segment(&mut self, class: StreamClass, seal: bool) {
        let Some(open) = &mut self.open[index_of(class)] else { return };
        let rules = &self.options.rules;
        if open.packer.records() > 0 {
            let bytes = u64::from(open.packer.closed_end() - open.packer.start());
            let metadata = u64::from(rules.header_bytes + open.packer.records() * rules.entry_bytes);
            self.traffic.flash_metadata_bytes_written += metadata;
            self.traffic.flash_data_bytes_written += bytes - metadata;
            self.pending += std::mem::take(&mut open.awaiting);
            open.holds_dirty = false;
        }
        let goes_on = open.packer.records() == 0 || open.packer.next_segment();
        if seal || !goes_on {
            let slot = open.slot;
            self.open[index_of(class)] = None;
            self.design.seal_slot(slot);
        }
        // Nobody asks for these entries; the engine's timer commits them about as often as WEUs fill.
        if class == StreamClass::Clean {
            self.commit_if_many();
        }
    }

    /// Seals what is open, so that it may be evicted; whether there was anything.
    fn close_all(&mut self) -> bool {
        let any = self.open.iter().any(Option::is_some);
        self.close_segment(StreamClass::Clean, true);
        self.close_segment(StreamClass::Dirty, true);
        any
    }

    /// Evicts one WEU.
    fn evict(&mut self) -> bool {
        let Some(victim) = self.design.choose_victim(&mut |_| false) else { return false };
        let dirty = self.design.dirty_in(victim.slot);
        let dirty: Vec<_> = dirty.into_iter().filter_map(|lba| Some((lba, self.design.dirty_seq(lba)?))).collect();
        self.destage(dirty.into_iter());
        if self.design.evict(victim.slot).is_none() {
            self.design.spare_victim(victim.slot);
            return false;
        }
        self.traffic.chunks_evicted += u64::from(std::mem::take(&mut self.records[victim.slot.0 as usize]));
        self.traffic.weu_erasures += 1;
        // *Slot freed* is durable before the slot is written again.
        self.pending += 1;
        self.commit_if_many();
        self.design.release_slot(victim.slot);
        self.evictions += 1;
        if self.evictions.is_multiple_of(self.options.commit_entries.max(1)) {
            self.design.sweep();
            self.drop_replaced();
        }
        true
    }

    fn commit_if_many(&mut self) {
        if self.pending >= self.options.commit_entries {
            self.commit();
        }
    }

    /// Writes what waits as frames of the log, and a checkpoint where that is due.
    fn commit(&mut self) {
        while self.pending > 0 {
            let entries = self.pending.min(FRAME_ENTRIES_MAX);
            let bytes = frame_bytes_for(entries as usize, self.options.rules.sector_bytes) as u64;
            self.pending -= entries;
            self.log_used_bytes += bytes;
            self.traffic.flash_metadata_bytes_written += bytes;
        }
        if self.log_used_bytes * 100 >= self.options.log_bytes * LOG_USED_PERCENT {
            self.log_used_bytes = 0;
            let stats = self.design.stats();
            let counts = CheckpointCounts {
                slots: u64::from(self.options.slot_count),
                mappings: stats.mapped_chunks,
                fragments: 0,
                zero_ranges: self.design.dirty_counts().runs,
                fingerprints: stats.fp_index_entries,
                design_pages: 0,
            };
            let superblocks = (SUPERBLOCK_OFFSETS.len() * SUPERBLOCK_BYTES) as u64;
            self.traffic.flash_metadata_bytes_written += checkpoint_bytes_max(&counts) + superblocks;
        }
    }

    /// What `lba` maps to; an address that the design replaced is mapped again where its content is stored still.
    fn lookup(&mut self, lba: Lba) -> Lookup {
        let found = self.design.lookup(lba);
        if found != Lookup::Miss {
            return found;
        }
        let Some(fingerprint) = self.design.remembered(lba) else { return found };
        let Some(place) = self.design.find_duplicate(&fingerprint) else { return found };
        self.map(lba, NewMapping::Duplicate { place }, self.open_class_of(&place), false);
        Lookup::Chunk { place, duplicate: true }
    }

    /// The chunk's copy on flash is outdated, durably, before the origin is written.
    fn forget(&mut self, lba: Lba) {
        if self.design.unmap(lba) {
            self.pending += 1;
            self.commit();
        }
    }
}

fn index_of(class: StreamClass) -> usize {
    match class {
        StreamClass::Clean => 0,
        StreamClass::Dirty => 1,
    }
}

impl ReplayCache for WeuCache {
    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        match self.lookup(lba) {
            Lookup::Chunk { place, .. } => {
                self.traffic.flash_data_bytes_read += u64::from(place.stored_len);
                true
            }
            Lookup::Zero => true,
            Lookup::Miss | Lookup::Fragment { .. } => {
                self.traffic.origin_chunks_read += 1;
                self.traffic.ghost_hits += u64::from(self.design.is_ghost(lba));
                self.insert(lba, content, false);
                false
            }
        }
    }

    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        // What is in a trimmed run reads as zeroes, but is not cached: it has neither data nor an entry.
        let hit = match self.design.peek(lba) {
            Lookup::Miss => self.design.remembered(lba).is_some(),
            Lookup::Zero => self.run_of(lba).is_none(),
            Lookup::Chunk { .. } | Lookup::Fragment { .. } => true,
        };
        let is_inserted = self.options.policy != WritePolicy::Around;
        self.traffic.ghost_hits += u64::from(is_inserted && !hit && self.design.is_ghost(lba));
        match self.options.policy {
            WritePolicy::Back => {
                self.insert(lba, content, true);
                self.destage_some();
            }
            WritePolicy::Through | WritePolicy::Around => {
                self.forget(lba);
                self.traffic.origin_chunks_written += 1;
                if self.options.policy == WritePolicy::Through {
                    self.insert(lba, content, false);
                }
            }
        }
        hit
    }

    fn trim(&mut self, lba: Lba) {
        self.trim_run(lba, 1);
    }

    fn trim_run(&mut self, first: Lba, count: u64) {
        let end = first.0 + count;
        if self.options.policy != WritePolicy::Back {
            (first.0..end).for_each(|lba| self.forget(Lba(lba)));
            return;
        }
        for at in (first.0..end).step_by(TRIMMED_AT_ONCE as usize) {
            let seq = self.next_seq;
            self.next_seq += 1;
            let count = TRIMMED_AT_ONCE.min(end - at);
            self.design.trim(Run { first: Lba(at), count, seq, no_hole: false });
            self.pending += 1;
            self.destage_some();
        }
    }

    /// The engine may keep the chunk, with zeroes in the part; here there is no telling what content that is.
    fn trim_part(&mut self, lba: Lba) {
        if let Some(seq) = self.design.dirty_seq(lba) {
            self.destage(std::iter::once((lba, seq)));
        }
        if let Some(run) = self.run_of(lba) {
            self.destage_run(Run { first: lba, count: 1, ..run });
        }
        self.forget(lba);
    }

    fn flush(&mut self) {
        if self.options.policy != WritePolicy::Back {
            return;
        }
        for class in [StreamClass::Clean, StreamClass::Dirty] {
            if self.open[index_of(class)].as_ref().is_some_and(|open| open.holds_dirty) {
                self.close_segment(class, false);
            }
        }
        self.commit();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn figures(&self) -> Figures {
        let stats = self.design.stats();
        let mut live: HashMap<(SlotId, u32), u32> = HashMap::new();
        for mapping in (0..self.design.export_pieces()).flat_map(|piece| self.design.export_mappings(piece)) {
            if let Lookup::Chunk { place, .. } = mapping.lookup {
                live.insert((place.slot, place.offset), place.stored_len);
            }
        }
        let records: u64 = self.records.iter().map(|&records| u64::from(records)).sum();
        Figures {
            index_ram_bytes: stats.ram_bytes(),
            mapped_chunks: stats.mapped_chunks,
            unstored_zero_chunks: stats.zero_chunks,
            live_chunks: live.len() as u64,
            stale_chunks: records - live.len() as u64,
            live_stored_bytes: live.values().map(|&bytes| u64::from(bytes)).sum(),
        }
    }
}
