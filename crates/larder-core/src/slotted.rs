//! Designs with equal slots: each data chunk has a slot of its own, which is reused in place.
//!
//! [`Slotted`] has the decisions of such a design, and [`Decision`] the words for them.
//!
//! The store under it has data slots of one chunk each, and beside them a metadata area of small
//! entries (CacheDedup §3.1, §3.3). It has one entry for each address, and if content is shared
//! one for each slot, too.
//!
//! Invariants of every design:
//! - [`Slotted::lookup`] answers with the slot of the content that was put last for the address, or
//!   with nothing.
//! - Dirty state belongs to the mapping of an address. A decision that reuses a slot, or forgets a
//!   mapping, lists each of its dirty addresses to be destaged first. An overwritten chunk of the
//!   address itself is not destaged.
//! - The same calls give the same decisions.
//!
//! A decision holds at once: evicted data is no longer found. Its executor blocks other requests to
//! its addresses and slots until it is done. The order is: (1) destage; (2) write the data; (3)
//! write the metadata entries. The data may go to the slot of the chunk that it overwrites.
//!
//! It knows a chunk only by its fingerprint, and leaves writes of the origin to the caller, which
//! marks each dirty put.

pub(crate) mod addresses;
pub(crate) mod contents;
pub(crate) mod kept;
mod needs;
pub(crate) mod order;
mod placed;
pub(crate) mod ram;
pub(crate) mod sizes;

pub use addresses::Addresses;
pub use contents::Orphans;
pub use kept::Kept;
pub use order::ContentOrder;
pub use placed::{
    Placed, SETS_BYTES_MAX, addresses_for, lost_bytes_max, mapped_max, mappings_for, of_slots, slots_bytes_max, spares,
};
pub use ram::vec_bytes_max;
pub use sizes::{FlashSize, METADATA_PAGE_BYTES, SizeError, SizeErrorKind, Sizes};

use crate::{
    design::Use,
    history::Shape,
    types::{Fingerprint, Lba},
};

/// Number of a data slot: the place of one chunk on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkSlot(pub u32);

/// The data part of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataStep {
    /// No data to write.
    #[default]
    Nothing,
    /// No data to write: the content lies in this slot already.
    Map(ChunkSlot),
    /// A write of the chunk to the slot.
    Store {
        /// The slot.
        slot: ChunkSlot,
        /// True if other content leaves the slot for it; false if an address overwrites its own
        /// chunk in place.
        evicts: bool,
    },
}

/// A dirty chunk that must be written to the origin before the rest of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destage {
    /// Its address.
    pub lba: Lba,
    /// Its slot.
    pub slot: ChunkSlot,
}

/// An entry of the metadata area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataEntry {
    /// The mapping of an address, by the entry's number.
    Address(u32),
    /// The content of a slot.
    Slot(ChunkSlot),
}

/// A decision about one request. The caller passes it in to be filled, so that its memory is
/// reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if the address had its data on flash before the request: a hit.
    pub was_cached: bool,
    /// True if the address was known without its data: a ghost hit. Only puts set it.
    pub was_ghost: bool,
    /// The data part.
    pub data: DataStep,
    /// Slots that became free; the data may be stored in one of them.
    pub freed: Vec<ChunkSlot>,
    /// Chunks to destage first. All of them lie in their slots of before the decision.
    pub destage: Vec<Destage>,
    /// Addresses that were forgotten for want of room; their data may stay.
    pub evicted: Vec<Lba>,
    /// Entries that changed, some perhaps twice. The replacement order is not part of an entry.
    pub changed: Vec<MetadataEntry>,
}

impl Decision {
    /// Empties it for the next decision.
    pub fn clear(&mut self) {
        self.was_cached = false;
        self.was_ghost = false;
        self.data = DataStep::Nothing;
        self.freed.clear();
        self.destage.clear();
        self.evicted.clear();
        self.changed.clear();
    }

    /// Returns the bytes that its lists have allocated.
    pub fn ram_bytes(&self) -> usize {
        let freed = self.freed.capacity() * size_of::<ChunkSlot>();
        let destage = self.destage.capacity() * size_of::<Destage>();
        let evicted = self.evicted.capacity() * size_of::<Lba>();
        freed + destage + evicted + self.changed.capacity() * size_of::<MetadataEntry>()
    }
}

/// Counts of a design at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlottedStats {
    /// Addresses with data on flash.
    pub mapped_chunks: u64,
    /// Dirty ones among them.
    pub dirty_chunks: u64,
    /// Slots with content that an address maps to.
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
    /// Returns the slot of `lba`'s data. Does not count as a use.
    fn lookup(&self, lba: Lba) -> Option<ChunkSlot>;

    /// Returns slot and number of `lba`, if a [`Slotted::read`] of it would only change the next
    /// eviction. Such a read evicts and frees nothing. The number is for [`Slotted::used`].
    fn hit(&self, lba: Lba) -> Option<(ChunkSlot, u32)>;

    /// Applies postponed reads from [`Slotted::hit`], by number, before any other change.
    fn used(&mut self, uses: &[Use], decision: &mut Decision);

    /// Returns the slot of this content, in a design that looks at content. Does not count as a
    /// use.
    fn slot_of(&self, _fingerprint: &Fingerprint) -> Option<ChunkSlot> {
        None
    }

    /// Returns the content of `lba`, with data or without. `None` if it is unknown, or the design
    /// does not look at content.
    fn content_of(&self, _lba: Lba) -> Option<Fingerprint> {
        None
    }

    /// Returns whether `lba` is known, with data or without.
    fn knows(&self, lba: Lba) -> bool;

    /// Returns the known addresses of a run, with data or without, ascending.
    fn in_run(&self, first: Lba, count: u64) -> Vec<Lba>;

    /// Reads `lba` for a client: returns the slot of its data, and counts a use. `decision` has the
    /// consequences. A miss changes nothing; its caller may put the chunk after a read of the
    /// origin.
    fn read(&mut self, lba: Lba, decision: &mut Decision) -> Option<ChunkSlot>;

    /// Returns whether it refuses some chunks: [`Slotted::admits`] tells which.
    fn is_selective(&self) -> bool {
        false
    }

    /// Returns whether a clean chunk is worth a put. The address of a refused one gets the content
    /// without data.
    fn admits(&mut self, _lba: Lba, _fingerprint: &Fingerprint, decision: &mut Decision) -> bool {
        decision.clear();
        true
    }

    /// Gives `lba` this content, after a client's write, or as an insertion after a miss.
    fn put(&mut self, lba: Lba, fingerprint: &Fingerprint, is_dirty: bool, decision: &mut Decision);

    /// Restart: puts this content into a slot, without an address, as the most recently used.
    /// Nothing is decided if it has a slot already, no slot is free, or the design keeps no such
    /// content.
    fn put_content(&mut self, _fingerprint: &Fingerprint, decision: &mut Decision) {
        decision.clear();
    }

    /// Forgets `lba`, dirty or not, after a trim or a write around the cache. Unshared content
    /// leaves its slot. Returns whether the address was known.
    fn forget(&mut self, lba: Lba, decision: &mut Decision) -> bool;

    /// Marks `lba` clean, because the origin has its data. Returns whether it was dirty.
    fn clean(&mut self, lba: Lba) -> bool;

    /// Returns whether the origin lacks the data of `lba`.
    fn is_dirty(&self, lba: Lba) -> bool;

    /// Returns the maximum numbers of chunks and entries.
    fn sizes(&self) -> Sizes;

    /// Returns its number of lists between two calls, at most
    /// [`LISTS_MAX`](crate::history::LISTS_MAX).
    fn list_count(&self) -> usize {
        1
    }

    /// Returns whether it looks at content. Addresses then have a content, and data has its own
    /// order.
    fn looks_at_content(&self) -> bool {
        false
    }

    /// Begins a walk along a list of addresses, least recent first. At most one walk runs.
    fn begin_list(&mut self, list: usize);

    /// Shows the next addresses of that walk with their content; returns whether it goes on. The
    /// content is zeroes in a design that does not look at it. An address that changes its list
    /// between two calls may be shown on both, or on none.
    fn show_addresses(&mut self, see: &mut dyn FnMut(Lba, &Fingerprint)) -> bool;

    /// Begins a walk along the data, in a design that looks at content.
    fn begin_data(&mut self) {}

    /// Shows the next data slots in use, with a use stamp, higher for a later use. Returns whether
    /// the walk goes on.
    fn show_data(&mut self, _see: &mut dyn FnMut(ChunkSlot, u64)) -> bool {
        false
    }

    /// Returns the target size of its lists, from 0 to the number of data chunks; 0 if it has none.
    fn target_size(&self) -> f64 {
        0.0
    }

    /// Restart: restores an empty design from the lists and the data that are still there. They
    /// come from [`Slotted::show_addresses`] and [`Slotted::show_data`]. It leaves out an address
    /// whose required data is gone, and repeated ones. Returns false and changes nothing if the
    /// lists are too long.
    fn restore(&mut self, kept: &Kept) -> bool;

    /// Returns groups of lists with their maximum total. Surplus addresses leave the first list of
    /// a group first.
    fn limits(&self) -> Vec<(Vec<usize>, usize)>;

    /// Returns the counts.
    fn stats(&self) -> SlottedStats;

    /// Returns the maximum bytes of RAM that any use of the design can allocate.
    fn ram_bytes_max(&self) -> u64;
}

/// Free slot numbers.
pub(crate) struct SlotPool {
    /// The first slot that was never used.
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

    /// Takes a free slot.
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

    /// Returns its maximum bytes.
    pub fn ram_bytes_max(&self) -> usize {
        ram::vec_bytes_max::<u32>(self.count as usize)
    }
}

/// Returns the number of this design's lists, and their maximum lengths.
pub fn shape_of(design: &dyn Slotted) -> Shape {
    let (sizes, looks_at_content) = (design.sizes(), design.looks_at_content());
    Shape {
        lists: design.list_count(),
        data_chunks: sizes.data_chunks,
        addresses: sizes.addresses,
        used_slots: if looks_at_content { sizes.data_chunks } else { 0 },
        looks_at_content,
    }
}
