//! FIFO: no data reduction, and the address that came first leaves.
//!
//! Each address has a slot of its own. Uses do not change the order.
//!
//! Invariants: a node's number in the address list is its slot's; the list is in the order of
//! arrival.
//!
//! It does not look at fingerprints. Every write is stored, even with the same content.

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

const NAME: &str = "fifo";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "FIFO, without data reduction: the address that came first goes",
    over: Over::Slots(OverSlots {
        dedup: false,
        make: |slots, chunk_bytes| of_slots(slots, |size| Fifo::for_flash(size, chunk_bytes)),
    }),
};
/// Bytes of an entry: an address, with flags in its unused bits.
const ENTRY_BYTES: u32 = 8;

/// The design.
pub struct Fifo {
    addresses: Addresses<(), 1>,
    data_chunks: u32,
}

impl Fifo {
    /// Makes a cache that fills `flash`.
    pub fn for_flash(flash: FlashSize, chunk_bytes: u32) -> Result<Self, SizeError> {
        let formula = Formula { design: NAME, chunk_bytes, entry_bytes: ENTRY_BYTES, entries: |chunks| chunks };
        let data_chunks = check_chunks(NAME, formula.data_chunks(flash)?)?;
        Ok(Fifo { addresses: Addresses::new(data_chunks as usize), data_chunks })
    }

    /// Returns the place of the new address `lba`, and whether another leaves for it.
    fn come(&mut self, lba: Lba, decision: &mut Decision) -> (u32, bool) {
        let first = self.addresses.oldest(0).filter(|_| self.addresses.len(0) == self.data_chunks as usize);
        if let Some(first) = first {
            if self.addresses.set_dirty(first, false) {
                decision.destage.push(Destage { lba: self.addresses.lba(first), slot: ChunkSlot(first) });
            }
            self.addresses.remove(first);
        }
        // The number that was freed last is used next: the slot of the address that left.
        (self.addresses.insert(lba, 0, ()), first.is_some())
    }
}

impl Slotted for Fifo {
    fn lookup(&self, lba: Lba) -> Option<ChunkSlot> {
        self.addresses.find(lba).map(ChunkSlot)
    }

    fn hit(&self, lba: Lba) -> Option<(ChunkSlot, u32)> {
        self.addresses.find(lba).map(|i| (ChunkSlot(i), i))
    }

    fn used(&mut self, _uses: &[Use], decision: &mut Decision) {
        decision.clear();
    }

    fn knows(&self, lba: Lba) -> bool {
        self.addresses.find(lba).is_some()
    }

    fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.addresses.in_run(first, count)
    }

    fn read(&mut self, lba: Lba, decision: &mut Decision) -> Option<ChunkSlot> {
        decision.clear();
        let slot = self.lookup(lba)?;
        decision.was_cached = true;
        decision.data = DataStep::Map(slot);
        Some(slot)
    }

    fn put(&mut self, lba: Lba, _fingerprint: &Fingerprint, is_dirty: bool, decision: &mut Decision) {
        decision.clear();
        let found = self.addresses.find(lba);
        decision.was_cached = found.is_some();
        let (i, evicts) = found.map_or_else(|| self.come(lba, decision), |i| (i, false));
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
        let mapped_chunks = self.addresses.len(0) as u64;
        let ram_bytes = self.addresses.ram_bytes() as u64;
        SlottedStats {
            mapped_chunks,
            dirty_chunks: self.addresses.dirty_count(),
            live_slots: mapped_chunks,
            ram_bytes,
            ..SlottedStats::default()
        }
    }

    fn ram_bytes_max(&self) -> u64 {
        self.addresses.ram_bytes_max() as u64
    }
}
