//! Designs with equal slots: each data chunk lies in a slot of its own, which is reused in place. [`Slotted`] is what
//! such a design decides, and [`Decision`] the words in which it says so.
//!
//! The store under it has data slots of one chunk each, and a metadata area of small entries that lies beside them
//! (CacheDedup §3.1, §3.3): one entry an address, and where content is shared one a slot, too.
//!
//! Invariants that every design keeps:
//! - [`Slotted::lookup`] answers with the slot of the content that was put last for the address, or with nothing.
//! - Dirty belongs to the mapping of an address. A slot is reused, and a mapping forgotten, only in a decision that
//!   lists each of its dirty addresses to be destaged first; what an address overwrites itself is not destaged.
//! - The same calls give the same decisions.
//!
//! A decision holds from the moment it is made: what it evicts is no longer found. Who executes it on devices lets no
//! other request to its addresses and slots pass until that is done, in this order: (1) destage; (2) write the data;
//! (3) write the metadata entries. The slot that data is written to may be that of the chunk which it overwrites.
//!
//! What it does not do: know what a chunk holds beyond its fingerprint, or when writes reach the origin; whoever calls
//! says of each put whether it is dirty.

pub(crate) mod addresses;
pub(crate) mod contents;
pub(crate) mod kept;
pub(crate) mod order;
mod placed;
mod ram;
pub(crate) mod sizes;

pub use contents::Orphans;
pub use kept::{Kept, shape_of};
pub use placed::{
    Placed, SETS_BYTES_MAX, addresses_for, lost_bytes_max, mapped_max, mappings_for, of_slots, slots_bytes_max, spares,
};
pub use sizes::{FlashSize, METADATA_PAGE_BYTES, SizeError, SizeErrorKind, Sizes};

use crate::{
    design::Use,
    types::{Fingerprint, Lba},
};

/// Number of a data slot: the place of one chunk on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkSlot(pub u32);

/// What happens to the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataStep {
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing: the content lies in this slot already.
    Map(ChunkSlot),
    /// The chunk is written to the slot.
    Store {
        /// Where.
        slot: ChunkSlot,
        /// Other content leaves the slot for it. Not so where an address overwrites its own chunk in place.
        evicts: bool,
    },
}

/// A dirty chunk that the origin has to get before anything else of the decision is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destage {
    /// Its address.
    pub lba: Lba,
    /// Where it lies.
    pub slot: ChunkSlot,
}

/// An entry of the metadata area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataEntry {
    /// What an address maps to, by the entry's number.
    Address(u32),
    /// What a slot holds.
    Slot(ChunkSlot),
}

/// What a design decided about one request. It is passed in and filled, so that its memory is reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The address had its data on flash when the request came: a hit.
    pub was_cached: bool,
    /// The address was known without its data: a ghost hit. Only puts say so.
    pub was_ghost: bool,
    /// What happens to the data.
    pub data: DataStep,
    /// Slots whose content is not needed any more. They are free; one of them may be where the data is stored.
    pub freed: Vec<ChunkSlot>,
    /// What is destaged first. All of it lies where it lay before the decision.
    pub destage: Vec<Destage>,
    /// Addresses that were forgotten for want of room, where the data that they had may stay.
    pub evicted: Vec<Lba>,
    /// Entries that changed, some perhaps twice. The order of replacement is not part of an entry.
    pub changed: Vec<MetadataEntry>,
}

impl Decision {
    /// Empties it for the next one.
    pub fn clear(&mut self) {
        self.was_cached = false;
        self.was_ghost = false;
        self.data = DataStep::Nothing;
        self.freed.clear();
        self.destage.clear();
        self.evicted.clear();
        self.changed.clear();
    }

    /// Bytes that its lists have allocated.
    pub fn ram_bytes(&self) -> usize {
        let freed = self.freed.capacity() * size_of::<ChunkSlot>();
        let destage = self.destage.capacity() * size_of::<Destage>();
        let evicted = self.evicted.capacity() * size_of::<Lba>();
        freed + destage + evicted + self.changed.capacity() * size_of::<MetadataEntry>()
    }
}

/// Counts of a design, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlottedStats {
    /// Addresses whose data is on flash.
    pub mapped_chunks: u64,
    /// Of them, dirty ones.
    pub dirty_chunks: u64,
    /// Slots with content that some address maps to.
    pub live_slots: u64,
    /// Slots with content that no address maps to.
    pub stale_slots: u64,
    /// Addresses that are remembered without data.
    pub ghosts: u64,
    /// Bytes that the design has allocated.
    pub ram_bytes: u64,
}

/// A design with equal slots.
pub trait Slotted: Send + Sync {
    /// Where the data of `lba` is; does not count as a use.
    fn lookup(&self, lba: Lba) -> Option<ChunkSlot>;

    /// As [`Slotted::lookup`], with the number of the address for [`Slotted::used`], where a [`Slotted::read`] would change nothing but
    /// what leaves next: it evicts and frees nothing.
    fn hit(&self, lba: Lba) -> Option<(ChunkSlot, u32)>;

    /// Makes up for the reads of what [`Slotted::hit`] found, by their numbers, before anything else changes.
    fn used(&mut self, uses: &[Use], decision: &mut Decision);

    /// The slot that this content lies in, where a design looks at content at all; does not count as a use.
    fn slot_of(&self, fingerprint: &Fingerprint) -> Option<ChunkSlot>;

    /// The content of `lba`, with data or without; `None` where it is not known, and in a design that does not look at content.
    fn content_of(&self, _lba: Lba) -> Option<Fingerprint> {
        None
    }

    /// Whether `lba` is known, with data or without.
    fn knows(&self, lba: Lba) -> bool;

    /// The addresses of a run that are known, with data or without, ascending.
    fn in_run(&self, first: Lba, count: u64) -> Vec<Lba>;

    /// A client reads `lba`: where its data is. That counts as a use, of which `decision` says what follows. A miss
    /// changes nothing; whoever reads the chunk from the origin then may put it.
    fn read(&mut self, lba: Lba, decision: &mut Decision) -> Option<ChunkSlot>;

    /// `lba` gets this content: a client wrote it, or it was missed and is inserted.
    fn put(&mut self, lba: Lba, fingerprint: &Fingerprint, is_dirty: bool, decision: &mut Decision);

    /// After a restart: this content lies in a slot, and no address has it. It is the most recently used. Nothing is decided where it
    /// lies in a slot already, where no slot is free, and by a design that keeps no such content.
    fn put_content(&mut self, _fingerprint: &Fingerprint, decision: &mut Decision) {
        decision.clear();
    }

    /// Forgets `lba`, dirty or not: it was trimmed, or written around the cache. Content of no other address leaves
    /// its slot. Whether the address was known.
    fn forget(&mut self, lba: Lba, decision: &mut Decision) -> bool;

    /// The origin has the data of `lba` now. Whether it was dirty.
    fn clean(&mut self, lba: Lba) -> bool;

    /// Whether the origin lacks the data of `lba`.
    fn is_dirty(&self, lba: Lba) -> bool;

    /// How many chunks and entries there can be.
    fn sizes(&self) -> Sizes;

    /// How many lists of addresses it has between two calls, at most [`LISTS_MAX`](crate::history::LISTS_MAX).
    fn list_count(&self) -> usize;

    /// Whether it looks at content. If so, addresses have a content, and data an order of its own.
    fn looks_at_content(&self) -> bool;

    /// A walk along a list of addresses begins, least recent first. There is one walk at a time.
    fn begin_list(&mut self, list: usize);

    /// Shows the next addresses of that walk with their content; of a design that does not look at content with zeroes. Whether the walk
    /// goes on. What comes to another list between two calls may be shown with both, or with none.
    fn show_addresses(&mut self, see: &mut dyn FnMut(Lba, &Fingerprint)) -> bool;

    /// A walk along the data begins, where content is looked at.
    fn begin_data(&mut self) {}

    /// Shows the next data slots in use, each with a number that is higher the later it was used. Whether the walk goes on.
    fn show_data(&mut self, _see: &mut dyn FnMut(ChunkSlot, u64)) -> bool {
        false
    }

    /// The target size of its lists, from 0 to the number of data chunks; 0 where it has none.
    fn target_size(&self) -> f64 {
        0.0
    }

    /// After a restart, of a design that is empty: makes it what [`Slotted::show_addresses`] and [`Slotted::show_data`] showed, as far as that
    /// is still there. What has to have data, and has none, is left out, and what is named a second time. False, and nothing changed, where
    /// the lists are longer than they can be.
    fn restore(&mut self, kept: &Kept) -> bool;

    /// Of which lists together how many addresses there are at most; of those that are too many the first list's are left out first.
    fn limits(&self) -> Vec<(Vec<usize>, usize)>;

    /// Counts.
    fn stats(&self) -> SlottedStats;

    /// Bytes of RAM that the design will never have more of allocated, whatever is asked of it.
    fn ram_bytes_max(&self) -> u64;
}

/// Numbers of slots that are free.
pub(crate) struct SlotPool {
    /// Slots from this one on were never used.
    next: u32,
    count: u32,
    freed: Vec<u32>,
}

impl SlotPool {
    pub fn new(count: u32) -> Self {
        SlotPool { next: 0, count, freed: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.next == self.count && self.freed.is_empty()
    }

    /// A free slot.
    pub fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.freed.pop() {
            return Some(slot);
        }
        let slot = self.next;
        (slot < self.count).then(|| {
            self.next += 1;
            slot
        })
    }

    pub fn give_back(&mut self, slot: u32) {
        self.freed.push(slot);
    }

    pub fn ram_bytes(&self) -> usize {
        self.freed.capacity() * size_of::<u32>()
    }

    /// The most that it will be.
    pub fn ram_bytes_max(&self) -> usize {
        ram::vec_bytes_max::<u32>(self.count as usize)
    }
}
