//! The executor: a cache of any [`Design`] under replay, with the engine's steps, and counts for
//! I/O.
//!
//! The steps are those of `larder-engine`, in a world where each device operation is over at once
//! and one request follows the other. A miss is inserted before the next request. A slot is evicted
//! when one is needed and none is free; with slots for one record, when too few are free. A clean
//! mapping is logged when its record is written.
//!
//! Each of the engine's stores is executed, by its [`StoreRules`]: WEUs, slots of one chunk, and
//! buckets with their metadata region. Layout, packing and the sizes of frames and checkpoints are
//! those of `larder-format` and `larder_core::packing`, so the bytes are the engine's.
//!
//! Nitro's extent-granular caches (Nitro §5.3, §6.1) are the same code with one chunk a WEU, and
//! no compression; [`sizing`] has their rule for metadata.
//!
//! In write-back a trim makes runs, which read as zeroes until the origin was told of them.
//! Destaging tells it. When dirty chunks or runs are too many, it takes them as their addresses
//! come.
//!
//! Invariants: a slot is reused only after its dirty mappings were destaged; open slots count as
//! flash from the moment that their segments are closed.
//!
//! Its steps are public, for a follower of an engine's log: it takes them in the order of the log's
//! events. `requests` has the device requests.
//!
//! It does not prefetch, or make fragments: each request of a trace is a whole chunk; a log has
//! them. It leaves out the engine's reserve of free WEUs, which only concurrency needs, and its
//! commits by the clock.

use crate::{cache::Content, dirty::DirtyChunks, traffic::Traffic};
use larder_core::{
    Decider, Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    decisions::Stored,
    design::{Leaving, Question, Survivor, Wanted},
    packing::SegmentPacker,
};
use larder_format::log::LOG_ENTRY_BYTES;
use open_slot::{OpenSlot, class_of, index_of};
pub use options::ExecutorOptions;
use region::MetadataRegion;
use requests::FlashRequests;
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};
pub use store::StoreRules;

mod destage;
mod drops;
mod evict;
mod figures;
mod log;
mod metadata;
mod open_slot;
mod options;
mod record_reads;
mod region;
mod replayed;
mod requests;
mod room;
mod segments;
pub mod sizing;
mod store;

/// The fewest WEUs: an open one for each class of data, and one to evict.
const SLOTS_MIN: u32 = 3;

/// The cache.
pub struct Executor {
    design: Decider,
    options: ExecutorOptions,
    open: [Option<OpenSlot>; 2],
    /// Records in each slot.
    records: Vec<u32>,
    /// Entries that wait for the next frame of the log.
    pending: u64,
    log_used_bytes: u64,
    next_seq: u64,
    destaged_to: Lba,
    /// Number of evicted slots.
    evictions: u64,
    traffic: Traffic,
    asked: FlashRequests,
    /// The slots that the drive would drop next; none if it did not say.
    advised: Range<u32>,
    /// Slots that the drive emptied, in the order in which it did; they are not free yet.
    dropped: VecDeque<SlotId>,
    /// The places of dirty data, if the drive asks for them.
    dirty: DirtyChunks,
    /// There, addresses that were mapped into each slot for one record; some may have others by
    /// now.
    addresses: HashMap<SlotId, Vec<Lba>>,
    region: MetadataRegion,
    /// Regions of addresses beyond the largest volume, by their numbers.
    far_regions: HashMap<u64, u64>,
    /// Records of victims that are to be stored again.
    survivors: VecDeque<Survivor>,
    /// Segments that were closed, with their slots and bytes, if they are kept.
    closed: Option<Vec<(SlotId, u64)>>,
}

impl Executor {
    /// Makes an empty cache whose decisions `design` makes.
    ///
    /// # Errors
    /// One sentence, with the least that works: a cache of too few slots or mappings.
    pub fn new(design: impl FnOnce(DesignConfig) -> Box<dyn Design>, options: ExecutorOptions) -> Result<Self, String> {
        let ExecutorOptions { slot_count, mappings_max, fp_entries_max, .. } = options;
        let design = design(DesignConfig { slot_count, mappings_max, fp_entries_max });
        Executor::deciding(Decider::new(design), options)
    }

    /// Makes an empty cache over a design with its ledger.
    ///
    /// # Errors
    /// As [`Executor::new`].
    pub fn deciding(design: Decider, options: ExecutorOptions) -> Result<Self, String> {
        let ExecutorOptions { slot_count, mappings_max, .. } = options;
        if slot_count < SLOTS_MIN {
            return Err(format!("{slot_count} slots are too few for a cache; {SLOTS_MIN} is the least"));
        }
        let chunks = u64::from(options.rules.slot_bytes / options.chunk_bytes.max(1)).max(1);
        if mappings_max < chunks {
            return Err(format!(
                "{mappings_max} mappings are too few for WEUs of {chunks} chunks; {chunks} is the least"
            ));
        }
        let mut packer = SegmentPacker::new(options.rules_for(options.chunk_bytes));
        if packer.place(options.chunk_bytes, true).is_none() {
            let (chunk, weu) = (options.chunk_bytes, options.rules.slot_bytes);
            return Err(format!("a chunk of {chunk} bytes does not fit a WEU of {weu} with its header and table"));
        }
        Ok(Executor {
            design,
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
            addresses: HashMap::new(),
            region: MetadataRegion::default(),
            far_regions: HashMap::new(),
            survivors: VecDeque::new(),
            closed: None,
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

    /// Returns the design, to change it.
    pub fn design_mut(&mut self) -> &mut Decider {
        &mut self.design
    }

    /// Returns the options.
    pub fn options(&self) -> &ExecutorOptions {
        &self.options
    }

    /// Gives the next mapping this number.
    pub fn number_next(&mut self, seq: u64) {
        self.next_seq = seq;
    }

    fn stored_bytes(&self, content: &Content) -> u32 {
        let chunk = self.options.chunk_bytes;
        if self.options.compress { content.stored_bytes.min(chunk) } else { chunk }
    }

    /// Maps `lba` to `content`, if the design admits that, and stores it if it is unknown.
    fn insert(&mut self, lba: Lba, content: &Content, dirty: bool) {
        self.insert_one(lba, content, dirty);
        self.keep_slots_free();
        // At once: a later request may change their addresses.
        self.store_survivors(lba);
    }

    fn insert_one(&mut self, lba: Lba, content: &Content, dirty: bool) {
        self.make_room();
        let fingerprint = content.fingerprint;
        if content.is_zero() && !self.options.store.stores_zeroes {
            self.map(lba, NewMapping::Zero, None, dirty);
            return;
        }
        self.inform(Question::Content(&fingerprint));
        if self.map_known(lba, &fingerprint, dirty).is_none() {
            let bytes = self.stored_bytes(content);
            let stored = Stored { bytes, raw: bytes == self.options.chunk_bytes };
            let shared = (self.options.fp_entries_max > 0).then_some(fingerprint);
            let wanted = Wanted { lba, fingerprint: shared, stored_len: bytes };
            if !dirty && !self.design.admits(&wanted) {
                return;
            }
            let Some(place) = self.store(&wanted, stored, class_of(dirty), fingerprint) else { return };
            self.map_stored(lba, place, shared, dirty);
        }
        self.decided(lba, dirty);
    }

    /// Stores the records again that were worth more than their slots.
    ///
    /// The address `changed` has another content by now.
    fn store_survivors(&mut self, changed: Lba) {
        while let Some(Survivor { lba, place, fingerprint }) = self.survivors.pop_front() {
            // Another address may have stored its content meanwhile.
            if lba == changed || self.design.peek(lba) != Lookup::Miss {
                continue;
            }
            if let Some(place) = self.known(&fingerprint) {
                self.map(lba, NewMapping::Duplicate { place }, self.open_class_of(&place), false);
                continue;
            }
            let stored = Stored { bytes: place.stored_len, raw: place.encoding == 0 };
            let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: place.stored_len };
            let Some(place) = self.store(&wanted, stored, StreamClass::Clean, fingerprint) else {
                self.survivors.clear();
                return;
            };
            self.traffic.chunks_stored_again += 1;
            self.map_stored(lba, place, Some(fingerprint), false);
        }
    }

    /// Does the work that follows at once from the mapping of `lba`, if it was just mapped.
    fn decided(&mut self, lba: Lba, dirty: bool) {
        self.write_changed_metadata();
        if !dirty {
            self.settle(lba);
        }
    }

    /// Maps `lba` to content that is known already, and returns its place.
    pub fn map_known(&mut self, lba: Lba, fingerprint: &Fingerprint, dirty: bool) -> Option<Place> {
        let place = self.known(fingerprint)?;
        self.traffic.chunks_deduplicated += 1;
        self.map(lba, NewMapping::Duplicate { place }, self.open_class_of(&place), dirty);
        Some(place)
    }

    /// Maps `lba` to a chunk that was stored for it.
    pub fn map_stored(&mut self, lba: Lba, place: Place, fingerprint: Option<Fingerprint>, dirty: bool) {
        self.map(lba, NewMapping::Unique { place, fingerprint }, Some(class_of(dirty)), dirty);
    }

    /// Maps `lba` and logs it, with the open segment of class `class` if its record is in one.
    pub fn map(&mut self, lba: Lba, new: NewMapping, class: Option<StreamClass>, dirty: bool) {
        let seq = dirty.then_some(self.next_seq);
        self.next_seq += 1;
        self.design.map(lba, new, seq);
        self.tell_dirty(lba);
        self.note_address(lba, &new);
        if !dirty && self.design.is_transient(lba) {
            // The next checkpoint is due as if the log had it.
            self.log_used_bytes += LOG_ENTRY_BYTES as u64;
            return;
        }
        match class.and_then(|class| self.open[index_of(class)].as_mut()) {
            Some(open) if dirty => {
                open.holds_dirty = true;
                self.pending += 1;
            }
            Some(open) => open.awaiting += 1,
            None => self.pending += 1,
        }
    }

    /// Returns the place of content that is stored.
    pub fn known(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        if self.options.fp_entries_max == 0 { None } else { self.design.find_duplicate(fingerprint) }
    }

    /// Looks `lba` up.
    ///
    /// A replaced address is mapped again if its content is stored still, unless that is
    /// `held_back`.
    pub fn look_up(&mut self, lba: Lba, held_back: bool) -> Lookup {
        let found = self.design.lookup(lba);
        if found != Lookup::Miss {
            return found;
        }
        let Some(fingerprint) = self.design.remembered(lba).filter(|_| !held_back) else { return found };
        let Some(place) = self.design.find_duplicate(&fingerprint) else { return found };
        self.map(lba, NewMapping::Duplicate { place }, self.open_class_of(&place), false);
        Lookup::Chunk { place, duplicate: true }
    }

    /// Forgets a run of chunks, whose copies on flash are outdated, durably, before the origin is
    /// written.
    fn forget(&mut self, first: Lba, count: u64) {
        let is_logged = self.design.unmap_each(first, count, Leaving::All);
        self.forgot(first, count, is_logged);
    }

    /// Forgets a chunk whose new content is inserted again: the design may keep the address in
    /// mind.
    fn suspend(&mut self, lba: Lba) {
        let is_logged = self.design.suspend(lba);
        self.forgot(lba, 1, is_logged);
    }

    fn forgot(&mut self, first: Lba, count: u64, is_logged: bool) {
        self.dirty.in_run(first, count).into_iter().for_each(|lba| self.tell_dirty(lba));
        if is_logged {
            self.design.retreat(first, count);
            self.pending += 1;
            self.commit();
        }
    }
}
