//! A cache over WEU slots under replay: any [`Design`], executed as in the engine, with counts for
//! I/O.
//!
//! The steps are those of `larder-engine`, in a world where each device operation is over at once
//! and one request follows the other. A miss is inserted before the next request. A WEU is evicted
//! when a slot is needed and none is free. A clean mapping is logged when its segment is written.
//! Layout, packing and the sizes of frames and checkpoints are those of `larder-format` and
//! `larder_core::packing`, so the bytes are the engine's.
//!
//! Nitro's extent-granular caches (Nitro §5.3, §6.1) are the same code with one chunk a WEU, and
//! no compression; [`sizing`] has their rule for metadata.
//!
//! In write-back a trim makes runs, which read as zeroes until the origin was told of them.
//! Destaging tells it. When dirty chunks or runs are too many, it takes them as their addresses
//! come.
//!
//! Invariants: a slot is reused only after its dirty mappings were destaged; open WEUs count as
//! flash from the moment that their segments are closed.
//!
//! [`follow`] has the same cache decide the events of an engine's log, in their order. `requests`
//! has its device requests.
//!
//! It does not prefetch, or make fragments: each request of a trace is a whole chunk; a log has
//! them. It leaves out the engine's reserve of free slots, which only concurrency needs.

use crate::{
    cache::{CacheFigures, Content, ReplayCache, WritePolicy},
    devices::{DeviceAction, Requests, Waits},
    dirty::DirtyChunks,
    traffic::Traffic,
};
use follow::Following;
use larder_core::{
    Decider, Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    decisions::Stored,
    packing::{PackingRules, SegmentPacker},
    ranges::Run,
};
use larder_format::{
    CheckpointCounts,
    checkpoint::{DESIGN_PAGE_BYTES_MAX, checkpoint_bytes_max},
    layout::SUPERBLOCK_OFFSETS,
    log::frame_bytes_for,
    superblock::SUPERBLOCK_BYTES,
};
use requests::FlashRequests;
use segments::{OpenWeu, class_of, index_of};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

mod destage;
mod evict;
pub mod follow;
mod requests;
mod segments;
pub mod sizing;

/// The fewest slots: an open one for each class of data, and one to evict.
const SLOTS_MIN: u32 = 3;
/// A checkpoint is due when this share of the log is used, in percent, as in the engine.
const LOG_USED_PERCENT: u64 = 50;
/// Chunks of a trim that make a run, as in the engine.
const TRIMMED_AT_ONCE: u64 = 1 << 14;
/// Entries of a frame at most: a frame has a mebibyte at most.
const FRAME_ENTRIES_MAX: u64 = (1 << 20) / 64 - 1;

/// The options of a WEU cache.
#[derive(Clone, Copy, Debug)]
pub struct WeuOptions {
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// Size of a WEU in bytes, and of the parts around its records.
    pub rules: PackingRules,
    /// WEU slots.
    pub slot_count: u32,
    /// Mappings at most.
    pub mappings_max: u64,
    /// Known fingerprints at most; 0 turns deduplication off.
    pub fp_entries_max: u64,
    /// Size of the metadata log in bytes.
    pub log_bytes: u64,
    /// Size of each of the two areas for checkpoints, which lie before the log, in bytes.
    pub checkpoint_area_bytes: u64,
    /// The moment when writes reach the origin.
    pub policy: WritePolicy,
    /// True if chunks are stored compressed.
    pub compress: bool,
    /// In write-back, the number of dirty chunks from which destaging begins.
    pub dirty_chunks_max: u64,
    /// Trimmed runs that a checkpoint holds.
    ///
    /// In write-back, destaging begins at half of them: from there on the engine's rate has no
    /// limit.
    pub zero_ranges_max: u64,
    /// Bytes that a checkpoint has of each address beside its mapping; 0 for a design that keeps no
    /// history.
    pub history_bytes: u64,
    /// Background entries are written to the log once so many wait; 1: when a WEU is full or freed.
    ///
    /// After so many evictions one shard of the index is swept.
    pub commit_entries: u64,
}

/// The cache.
pub struct WeuCache {
    design: Decider,
    options: WeuOptions,
    open: [Option<OpenWeu>; 2],
    /// Records in each slot.
    records: Vec<u32>,
    /// Entries that wait for the next frame of the log.
    pending: u64,
    log_used_bytes: u64,
    next_seq: u64,
    destaged_to: Lba,
    /// Number of evicted WEUs.
    evictions: u64,
    traffic: Traffic,
    asked: FlashRequests,
    /// The slots that the drive would drop next; none if it did not say.
    advised: Range<u32>,
    /// Slots that the drive emptied, in the order in which it did; they are not free yet.
    dropped: VecDeque<SlotId>,
    /// The places of dirty data, if the drive asks for them.
    dirty: DirtyChunks,
    /// The work under way in a log that is followed.
    following: Option<Following>,
}

impl WeuCache {
    /// Makes an empty cache whose decisions `design` makes.
    ///
    /// # Errors
    /// One sentence, with the least that works: a cache of too few WEUs or mappings.
    pub fn new(design: impl FnOnce(DesignConfig) -> Box<dyn Design>, options: WeuOptions) -> Result<Self, String> {
        WeuCache::over(|config| Decider::new(design(config)), options)
    }

    /// Makes an empty cache as [`WeuCache::new`], over a design that has its ledger already.
    fn over(design: impl FnOnce(DesignConfig) -> Decider, options: WeuOptions) -> Result<Self, String> {
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
            asked: FlashRequests::new(&options),
            advised: 0..0,
            dropped: VecDeque::new(),
            dirty: DirtyChunks::default(),
            following: None,
        })
    }

    /// Returns the number of evicted WEUs: erasures, if the flash erases a WEU at once (Nitro
    /// §6.1).
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Returns the design with its ledger.
    pub fn design(&self) -> &Decider {
        &self.design
    }

    fn stored_bytes(&self, content: &Content) -> u32 {
        let chunk = self.options.chunk_bytes;
        if self.options.compress { content.stored_bytes.min(chunk) } else { chunk }
    }

    /// Maps `lba` to `content`, and stores it if it is unknown.
    fn insert(&mut self, lba: Lba, content: &Content, dirty: bool) {
        self.make_room();
        if content.is_zero() {
            self.map(lba, NewMapping::Zero, None, dirty);
        } else if self.map_known(lba, &content.fingerprint, dirty).is_none() {
            let bytes = self.stored_bytes(content);
            let stored = Stored { bytes, raw: bytes == self.options.chunk_bytes };
            let Some(place) = self.store(stored, class_of(dirty)) else { return };
            self.asked.appended(class_of(dirty), &place, content.fingerprint);
            self.map_stored(lba, place, Some(content.fingerprint), dirty);
        }
    }

    /// Maps `lba` to content that is known already, and returns its place.
    fn map_known(&mut self, lba: Lba, fingerprint: &Fingerprint, dirty: bool) -> Option<Place> {
        let place = self.known(fingerprint)?;
        self.traffic.chunks_deduplicated += 1;
        self.map(lba, NewMapping::Duplicate { place }, self.open_class_of(&place), dirty);
        Some(place)
    }

    /// Maps `lba` to a chunk that was stored for it.
    fn map_stored(&mut self, lba: Lba, place: Place, fingerprint: Option<Fingerprint>, dirty: bool) {
        let fingerprint = fingerprint.filter(|_| self.options.fp_entries_max > 0);
        self.map(lba, NewMapping::Unique { place, fingerprint }, Some(class_of(dirty)), dirty);
    }

    /// Maps `lba` and logs it, with the open segment of class `class` if its record is in one.
    fn map(&mut self, lba: Lba, new: NewMapping, class: Option<StreamClass>, dirty: bool) {
        let seq = dirty.then_some(self.next_seq);
        self.next_seq += 1;
        self.design.map(lba, new, seq);
        self.tell_dirty(lba);
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

    /// Makes room in the index: mappings that the design has replaced go first, then stale entries,
    /// then WEUs.
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

    /// Removes stale entries, until none is left or it is enough.
    ///
    /// If none is stale, a search of the index for each new address would take longer than all
    /// else.
    fn sweep_while(&mut self, is_wanted: impl Fn(&Decider) -> bool) {
        if !is_wanted(&self.design) {
            return;
        }
        let stats = self.design.stats();
        let mut stale = stats.lba_index_entries - stats.mapped_chunks;
        for _ in 0..self.design.export_pieces() {
            if stale == 0 || !is_wanted(&self.design) {
                return;
            }
            stale = stale.saturating_sub(self.design.sweep() as u64);
        }
    }

    /// Drops replaced mappings, and logs that.
    fn drop_replaced(&mut self) {
        self.pending += self.design.drop_clean_zeroes(false, usize::MAX).len() as u64;
    }

    fn commit_if_many(&mut self) {
        if self.pending >= self.options.commit_entries {
            self.commit();
        }
    }

    /// Writes the waiting entries as frames of the log, and a checkpoint if one is due.
    fn commit(&mut self) {
        while self.pending > 0 {
            let entries = self.pending.min(FRAME_ENTRIES_MAX);
            let bytes = frame_bytes_for(entries as usize, self.options.rules.sector_bytes) as u64;
            self.pending -= entries;
            self.log_used_bytes += bytes;
            self.traffic.flash_metadata_bytes_written += bytes;
            self.asked.frame(bytes);
            if self.pending == 0 {
                self.asked.flush_flash();
            }
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
                design_pages: ((stats.mapped_chunks + stats.ghosts) * self.options.history_bytes)
                    .div_ceil(DESIGN_PAGE_BYTES_MAX as u64),
            };
            let superblocks = (SUPERBLOCK_OFFSETS.len() * SUPERBLOCK_BYTES) as u64;
            let bytes = checkpoint_bytes_max(&counts);
            self.traffic.flash_metadata_bytes_written += bytes + superblocks;
            self.asked.checkpoint(bytes);
        }
    }

    /// Looks `lba` up.
    ///
    /// A replaced address is mapped again if its content is stored still, unless that is
    /// `held_back`.
    fn lookup(&mut self, lba: Lba, held_back: bool) -> Lookup {
        let found = self.design.lookup(lba);
        if found != Lookup::Miss {
            return found;
        }
        let Some(fingerprint) = self.design.remembered(lba).filter(|_| !held_back) else { return found };
        let Some(place) = self.design.find_duplicate(&fingerprint) else { return found };
        self.map(lba, NewMapping::Duplicate { place }, self.open_class_of(&place), false);
        Lookup::Chunk { place, duplicate: true }
    }

    /// Forgets the chunk. Its copy on flash is outdated, durably, before the origin is written.
    fn forget(&mut self, lba: Lba) {
        if self.design.unmap(lba) {
            self.tell_dirty(lba);
            self.pending += 1;
            self.commit();
        }
    }
}

impl ReplayCache for WeuCache {
    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        self.asked.for_whom(Waits::Client);
        match self.lookup(lba, false) {
            Lookup::Chunk { place, .. } => {
                self.count_record_read(&place);
                true
            }
            Lookup::Zero => true,
            Lookup::Miss | Lookup::Fragment { .. } => {
                self.traffic.origin_chunks_read += 1;
                self.asked.origin(DeviceAction::Read, lba, 1);
                self.asked.for_whom(Waits::Nobody);
                self.traffic.ghost_hits += u64::from(self.design.is_ghost(lba));
                self.insert(lba, content, false);
                false
            }
        }
    }

    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        // Addresses in a trimmed run read as zeroes, but are not cached: they have neither data nor
        // an entry.
        let hit = match self.design.peek(lba) {
            Lookup::Miss => self.design.remembered(lba).is_some(),
            Lookup::Zero => self.run_of(lba).is_none(),
            Lookup::Chunk { .. } | Lookup::Fragment { .. } => true,
        };
        let is_inserted = self.options.policy != WritePolicy::Around;
        self.traffic.ghost_hits += u64::from(is_inserted && !hit && self.design.is_ghost(lba));
        match self.options.policy {
            WritePolicy::Back => {
                self.asked.for_whom(Waits::Nobody);
                self.insert(lba, content, true);
                self.destage_some();
            }
            WritePolicy::Through | WritePolicy::Around => {
                self.asked.for_whom(Waits::Client);
                self.forget(lba);
                self.traffic.origin_chunks_written += 1;
                self.asked.origin(DeviceAction::Write, lba, 1);
                self.asked.for_whom(Waits::Nobody);
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
            self.asked.for_whom(Waits::Client);
            (first.0..end).for_each(|lba| self.forget(Lba(lba)));
            self.asked.origin(DeviceAction::Trim, first, count);
            return;
        }
        self.asked.for_whom(Waits::Nobody);
        for at in (first.0..end).step_by(TRIMMED_AT_ONCE as usize) {
            let seq = self.next_seq;
            self.next_seq += 1;
            let count = TRIMMED_AT_ONCE.min(end - at);
            self.design.trim(Run::new(Lba(at), count, seq));
            self.dirty.in_run(Lba(at), count).into_iter().for_each(|lba| self.tell_dirty(lba));
            self.pending += 1;
            self.destage_some();
        }
    }

    /// The engine may keep the chunk, with zeroes in the part; here its content is unknown.
    fn trim_part(&mut self, lba: Lba) {
        self.asked.for_whom(Waits::Client);
        if let Some(seq) = self.design.dirty_seq(lba) {
            self.destage(std::iter::once((lba, seq)));
        }
        if let Some(run) = self.run_of(lba) {
            self.destage_run(Run { first: lba, count: 1, ..run });
        }
        self.forget(lba);
    }

    fn flush(&mut self) {
        self.asked.for_whom(Waits::Flush);
        if self.options.policy != WritePolicy::Back {
            self.asked.flush_origin();
            return;
        }
        self.close_for_commit(false);
        self.commit();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn figures(&self) -> CacheFigures {
        let stats = self.design.stats();
        let mut live: HashMap<(SlotId, u32), u32> = HashMap::new();
        for mapping in (0..self.design.export_pieces()).flat_map(|piece| self.design.export_mappings(piece)) {
            if let Lookup::Chunk { place, .. } = mapping.lookup {
                live.insert((place.slot, place.offset), place.stored_len);
            }
        }
        let records: u64 = self.records.iter().map(|&records| u64::from(records)).sum();
        CacheFigures {
            index_ram_bytes: stats.ram_bytes(),
            mapped_chunks: stats.mapped_chunks,
            unstored_zero_chunks: stats.zero_chunks,
            live_chunks: live.len() as u64,
            stale_chunks: records - live.len() as u64,
            live_stored_bytes: live.values().map(|&bytes| u64::from(bytes)).sum(),
        }
    }

    fn gather(&mut self, on: bool) {
        self.asked.turn(on);
    }

    fn take_requests(&mut self, into: &mut Requests) {
        self.asked.take(into);
    }

    fn flash_span_bytes(&self) -> u64 {
        self.asked.end_of(self.options.slot_count)
    }

    fn flash_data_range(&self) -> Range<u64> {
        self.asked.end_of(0)..self.flash_span_bytes()
    }

    fn flash_weu_bytes(&self) -> Option<u64> {
        // An extent's slot is as long as its chunk.
        let WeuOptions { chunk_bytes, rules, .. } = &self.options;
        (rules.weu_bytes > *chunk_bytes).then_some(rules.weu_bytes.into())
    }

    fn advise_victim(&mut self, bytes: Range<u64>) {
        self.advise(&bytes);
    }

    fn expect_drops(&mut self) -> bool {
        self.dirty.turn_on();
        true
    }

    fn evict_range(&mut self, bytes: Range<u64>) {
        self.evict_all_in(&bytes);
    }

    fn clean_range(&mut self, bytes: Range<u64>) {
        self.clean_all_in(&bytes);
    }
}
