//! The baseline `lru`: no data reduction, a slot for each address, and LRU replacement.
//!
//! CacheDedup §5.1 compares with it ("LRU (without deduplication)"). An entry of its metadata is
//! an address with its flags, in 8 bytes, one for each slot. The paper gives no size for it.
//!
//! Invariants: a node's number in the address list is its slot's.
//!
//! It does not look at fingerprints, and stores every write, even of the same content.

use crate::{
    design::Use,
    named::{NamedDesign, Over, OverSlots},
    slotted::{
        ChunkSlot, DataStep, Decision, Destage, FlashSize, Kept, MetadataEntry, SizeError, Sizes, Slotted,
        SlottedStats,
        addresses::Addresses,
        of_slots,
        sizes::{Formula, check_chunks, pages_bytes},
    },
    types::{Fingerprint, Lba},
};

/// The design's name.
pub const NAME: &str = "lru";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "the baseline LRU, without data reduction",
    over: Over::Slots(OverSlots {
        dedup: false,
        make: |slots, chunk_bytes| of_slots(slots, |size| Lru::for_flash(size, chunk_bytes)),
    }),
};
/// Bytes of an entry: an address, with flags in its unused bits.
const ENTRY_BYTES: u32 = 8;

/// The design.
pub struct Lru {
    addresses: Addresses<(), 1>,
    data_chunks: u32,
}

impl Lru {
    /// Creates a cache of `data_chunks`, at least 1.
    pub fn new(data_chunks: u64) -> Result<Self, SizeError> {
        let data_chunks = check_chunks(NAME, data_chunks)?;
        Ok(Lru { addresses: Addresses::new(data_chunks as usize), data_chunks })
    }

    /// Creates a cache that fills `flash`.
    pub fn for_flash(flash: FlashSize, chunk_bytes: u32) -> Result<Self, SizeError> {
        let formula = Formula { design: NAME, chunk_bytes, entry_bytes: ENTRY_BYTES, entries: |chunks| chunks };
        Lru::new(formula.data_chunks(flash)?)
    }

    /// Makes room for one address, if the list is full. Returns whether an address left.
    fn make_room(&mut self, decision: &mut Decision) -> bool {
        if self.addresses.len(0) < self.data_chunks as usize {
            return false;
        }
        let Some(victim) = self.addresses.oldest(0) else { return false };
        if self.addresses.set_dirty(victim, false) {
            decision.destage.push(Destage { lba: self.addresses.lba(victim), slot: ChunkSlot(victim) });
        }
        self.addresses.remove(victim);
        true
    }
}

impl Slotted for Lru {
    fn lookup(&self, lba: Lba) -> Option<ChunkSlot> {
        self.addresses.find(lba).map(ChunkSlot)
    }

    fn hit(&self, lba: Lba) -> Option<(ChunkSlot, u32)> {
        self.addresses.find(lba).map(|i| (ChunkSlot(i), i))
    }

    fn used(&mut self, uses: &[Use], decision: &mut Decision) {
        decision.clear();
        self.addresses.warm(uses);
        uses.iter().for_each(|hit| self.addresses.move_to(hit.number, 0));
    }

    fn knows(&self, lba: Lba) -> bool {
        self.addresses.find(lba).is_some()
    }

    fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.addresses.in_run(first, count)
    }

    #[inline]
    fn read(&mut self, lba: Lba, decision: &mut Decision) -> Option<ChunkSlot> {
        decision.clear();
        let i = self.addresses.find(lba)?;
        self.addresses.move_to(i, 0);
        decision.was_cached = true;
        decision.data = DataStep::Map(ChunkSlot(i));
        Some(ChunkSlot(i))
    }

    fn put(&mut self, lba: Lba, _fingerprint: &Fingerprint, is_dirty: bool, decision: &mut Decision) {
        decision.clear();
        let (i, evicts) = match self.addresses.find(lba) {
            Some(i) => {
                decision.was_cached = true;
                self.addresses.move_to(i, 0);
                (i, false)
            }
            None => {
                let evicts = self.make_room(decision);
                // The last freed number is used next: the slot of the evicted address.
                (self.addresses.insert(lba, 0, ()), evicts)
            }
        };
        if self.addresses.set_dirty(i, is_dirty) || !decision.was_cached {
            decision.changed.push(MetadataEntry::Slot(ChunkSlot(i)));
        }
        decision.data = DataStep::Store { slot: ChunkSlot(i), evicts };
    }

    fn forget(&mut self, lba: Lba, decision: &mut Decision) -> bool {
        decision.clear();
        let Some(i) = self.addresses.find(lba) else { return false };
        self.addresses.remove(i);
        decision.was_cached = true;
        decision.freed.push(ChunkSlot(i));
        decision.changed.push(MetadataEntry::Slot(ChunkSlot(i)));
        true
    }

    fn clean(&mut self, lba: Lba) -> bool {
        self.addresses.clean(lba)
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.addresses.is_dirty_at(lba)
    }

    fn begin_list(&mut self, list: usize) {
        self.addresses.begin_walk(list);
    }

    fn show_addresses(&mut self, see: &mut dyn FnMut(Lba, &Fingerprint)) -> bool {
        self.addresses.show_some(see)
    }

    fn restore(&mut self, kept: &Kept) -> bool {
        if !kept.fits(&self.limits()) {
            return false;
        }
        for address in kept.lists.iter().flatten().filter(|address| address.is_mapped) {
            if self.addresses.find(address.lba).is_none() {
                let i = self.addresses.insert(address.lba, 0, ());
                self.addresses.set_dirty(i, address.is_dirty);
            }
        }
        true
    }

    fn limits(&self) -> Vec<(Vec<usize>, usize)> {
        vec![(vec![0], self.data_chunks as usize)]
    }

    fn sizes(&self) -> Sizes {
        let chunks = u64::from(self.data_chunks);
        let metadata_bytes = pages_bytes(chunks, ENTRY_BYTES);
        Sizes { data_chunks: chunks, addresses: chunks, entry_bytes: ENTRY_BYTES, metadata_bytes }
    }

    fn stats(&self) -> SlottedStats {
        let mapped = self.addresses.len(0) as u64;
        SlottedStats {
            mapped_chunks: mapped,
            dirty_chunks: self.addresses.dirty_count(),
            live_slots: mapped,
            stale_slots: 0,
            ghosts: 0,
            ram_bytes: self.addresses.ram_bytes() as u64,
        }
    }

    fn ram_bytes_max(&self) -> u64 {
        self.addresses.ram_bytes_max() as u64
    }
}
