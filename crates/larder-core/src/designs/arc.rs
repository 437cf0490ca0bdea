//! The baseline `arc`: no data reduction, a slot for each cached address, and replacement by ARC.
//!
//! ARC is from Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST '03,
//! Figure 4. T1 has addresses with one recent request, T2 those with more. B1 and B2 remember as
//! many that left them. A hit in B1 or B2 moves the target size `p` of T1 up or down. The step is
//! the quotient of the two lists' sizes, at least 1. `p` is a real number, as in the paper;
//! integers give other hit ratios.
//!
//! CacheDedup §5.1 compares with it ("ARC (without deduplication)"). An entry of its metadata is
//! an address with its flags, in 8 bytes: one for each slot and one for each ghost. The paper gives
//! no size for it.
//!
//! Departures from Figure 4:
//! - Figure 4 has no trims or invalidation. Here they remove the address from its list, and free
//!   the slot. While a slot is free, REPLACE is not called; a ghost that would have to go for it
//!   still goes.
//!
//! Invariants: |T1|+|T2| <= C, |T1|+|B1| <= C, all four together <= 2C. Exactly the addresses in T1
//! and T2 have a slot.
//!
//! It does not look at fingerprints, and stores every write, even of the same content.

use crate::{
    design::Use,
    named::{NamedDesign, Over, OverSlots},
    recency::NONE,
    slotted::{
        ChunkSlot, DataStep, Decision, Destage, FlashSize, Kept, MetadataEntry, SizeError, Sizes, SlotPool, Slotted,
        SlottedStats,
        addresses::Addresses,
        of_slots,
        sizes::{Formula, check_chunks, check_count, pages_bytes},
    },
    types::{Fingerprint, Lba},
};

/// The design's name.
pub const NAME: &str = "arc";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "the baseline ARC (Megiddo and Modha, FAST 2003), without data reduction",
    over: Over::Slots(OverSlots {
        dedup: false,
        make: |slots, chunk_bytes| of_slots(slots, |size| Arc::for_flash(size, chunk_bytes)),
    }),
};
/// Bytes of an entry: an address, with flags in its unused bits.
const ENTRY_BYTES: u32 = 8;

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// The design.
pub struct Arc {
    /// The addresses with their slots, or [`NONE`].
    addresses: Addresses<u32, 4>,
    slots: SlotPool,
    /// The paper's c.
    data_chunks: u32,
    /// The target size of T1, 0 to c.
    p: f64,
}

impl Arc {
    /// Creates a cache of `data_chunks` (the paper's c), at least 1.
    pub fn new(data_chunks: u64) -> Result<Self, SizeError> {
        let chunks = check_chunks(NAME, data_chunks)?;
        let addresses = check_count(NAME, 2 * data_chunks)?;
        Ok(Arc {
            addresses: Addresses::new(addresses as usize),
            slots: SlotPool::new(chunks),
            data_chunks: chunks,
            p: 0.0,
        })
    }

    /// Creates a cache that fills `flash`.
    pub fn for_flash(flash: FlashSize, chunk_bytes: u32) -> Result<Self, SizeError> {
        let formula = Formula { design: NAME, chunk_bytes, entry_bytes: ENTRY_BYTES, entries: |chunks| 2 * chunks };
        Arc::new(formula.data_chunks(flash)?)
    }

    /// Returns the target size of T1 (the paper's p).
    pub fn target(&self) -> f64 {
        self.p
    }

    /// Frees the slot of `i`, which is in T1 or T2.
    fn take_slot(&mut self, i: u32, decision: &mut Decision) {
        let slot = std::mem::replace(self.addresses.payload_mut(i), NONE);
        if self.addresses.set_dirty(i, false) {
            decision.destage.push(Destage { lba: self.addresses.lba(i), slot: ChunkSlot(slot) });
        }
        self.slots.give_back(slot);
    }

    /// Makes a ghost of the least recent address of T1 or T2, without its data (REPLACE).
    fn replace(&mut self, is_in_b2: bool, decision: &mut Decision) {
        if !self.slots.is_empty() {
            return;
        }
        let t1 = self.addresses.len(T1) as f64;
        let from_t1 = t1 >= 1.0 && (t1 > self.p || is_in_b2 && t1 == self.p);
        let (from, ghosts) = if from_t1 { (T1, B1) } else { (T2, B2) };
        let Some(i) = self.addresses.oldest(from) else { return };
        self.take_slot(i, decision);
        self.addresses.move_to(i, ghosts);
        decision.changed.push(MetadataEntry::Address(i));
    }

    /// Gives `i`, of B1 or B2, its data again (cases II and III).
    fn revive(&mut self, i: u32, decision: &mut Decision) {
        let (b1, b2) = (self.addresses.len(B1) as f64, self.addresses.len(B2) as f64);
        let is_in_b2 = self.addresses.list(i) == B2;
        self.p = if is_in_b2 {
            (self.p - (b1 / b2).max(1.0)).max(0.0)
        } else {
            (self.p + (b2 / b1).max(1.0)).min(f64::from(self.data_chunks))
        };
        self.replace(is_in_b2, decision);
        self.addresses.move_to(i, T2);
    }

    /// Takes up `lba`, which is on no list (case IV).
    fn admit(&mut self, lba: Lba, decision: &mut Decision) -> u32 {
        let chunks = self.data_chunks as usize;
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.addresses.len(list));
        if t1 + b1 == chunks {
            if t1 < chunks {
                self.drop_ghost(B1);
                self.replace(false, decision);
            } else if let Some(i) = self.addresses.oldest(T1) {
                self.take_slot(i, decision);
                self.addresses.remove(i);
            }
        } else if t1 + t2 + b1 + b2 >= chunks {
            if t1 + t2 + b1 + b2 == 2 * chunks {
                self.drop_ghost(B2);
            }
            self.replace(false, decision);
        }
        self.addresses.insert(lba, T1, NONE)
    }

    fn drop_ghost(&mut self, list: usize) {
        if let Some(i) = self.addresses.oldest(list) {
            self.addresses.remove(i);
        }
    }

    fn slot(&self, i: u32) -> Option<ChunkSlot> {
        let slot = self.addresses.payload(i);
        (slot != NONE).then_some(ChunkSlot(slot))
    }
}

impl Slotted for Arc {
    fn lookup(&self, lba: Lba) -> Option<ChunkSlot> {
        self.addresses.find(lba).and_then(|i| self.slot(i))
    }

    fn hit(&self, lba: Lba) -> Option<(ChunkSlot, u32)> {
        let i = self.addresses.find(lba)?;
        Some((self.slot(i)?, i))
    }

    fn used(&mut self, uses: &[Use], decision: &mut Decision) {
        decision.clear();
        self.addresses.warm(uses);
        uses.iter().for_each(|hit| self.addresses.move_to(hit.number, T2));
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
        let slot = self.slot(i)?;
        self.addresses.move_to(i, T2);
        decision.was_cached = true;
        decision.data = DataStep::Map(slot);
        Some(slot)
    }

    fn put(&mut self, lba: Lba, _fingerprint: &Fingerprint, is_dirty: bool, decision: &mut Decision) {
        decision.clear();
        let is_full = self.slots.is_empty();
        let i = match self.addresses.find(lba) {
            Some(i) if self.slot(i).is_some() => {
                self.addresses.move_to(i, T2);
                decision.was_cached = true;
                i
            }
            Some(i) => {
                decision.was_ghost = true;
                self.revive(i, decision);
                i
            }
            None => self.admit(lba, decision),
        };
        if !decision.was_cached {
            // REPLACE and case IV have freed a slot, if none was free.
            let Some(slot) = self.slots.take() else { return };
            *self.addresses.payload_mut(i) = slot;
        }
        let slot = ChunkSlot(self.addresses.payload(i));
        if self.addresses.set_dirty(i, is_dirty) || !decision.was_cached {
            decision.changed.push(MetadataEntry::Slot(slot));
        }
        decision.data = DataStep::Store { slot, evicts: is_full && !decision.was_cached };
    }

    fn forget(&mut self, lba: Lba, decision: &mut Decision) -> bool {
        decision.clear();
        let Some(i) = self.addresses.find(lba) else { return false };
        match self.slot(i) {
            Some(slot) => {
                self.slots.give_back(slot.0);
                decision.was_cached = true;
                decision.freed.push(slot);
                decision.changed.push(MetadataEntry::Slot(slot));
            }
            None => decision.changed.push(MetadataEntry::Address(i)),
        }
        self.addresses.remove(i);
        true
    }

    fn clean(&mut self, lba: Lba) -> bool {
        self.addresses.clean(lba)
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.addresses.is_dirty_at(lba)
    }

    fn list_count(&self) -> usize {
        4
    }

    fn begin_list(&mut self, list: usize) {
        self.addresses.begin_walk(list);
    }

    fn show_addresses(&mut self, see: &mut dyn FnMut(Lba, &Fingerprint)) -> bool {
        self.addresses.show_some(see)
    }

    fn target_size(&self) -> f64 {
        self.p
    }

    fn restore(&mut self, kept: &Kept) -> bool {
        if !kept.fits(&self.limits()) {
            return false;
        }
        for (list, addresses) in kept.lists.iter().enumerate() {
            for address in addresses {
                let has_data = list == T1 || list == T2;
                if self.addresses.find(address.lba).is_some() || has_data && !address.is_mapped {
                    continue;
                }
                let slot = if has_data { self.slots.take().unwrap_or(NONE) } else { NONE };
                let i = self.addresses.insert(address.lba, list, slot);
                self.addresses.set_dirty(i, has_data && address.is_dirty);
            }
        }
        self.p = kept.target;
        true
    }

    fn limits(&self) -> Vec<(Vec<usize>, usize)> {
        let chunks = self.data_chunks as usize;
        vec![(vec![T1, T2], chunks), (vec![B1, T1], chunks), (vec![B2, B1, T2, T1], 2 * chunks)]
    }

    fn sizes(&self) -> Sizes {
        let chunks = u64::from(self.data_chunks);
        let metadata_bytes = pages_bytes(2 * chunks, ENTRY_BYTES);
        Sizes { data_chunks: chunks, addresses: 2 * chunks, entry_bytes: ENTRY_BYTES, metadata_bytes }
    }

    fn stats(&self) -> SlottedStats {
        let mapped = (self.addresses.len(T1) + self.addresses.len(T2)) as u64;
        SlottedStats {
            mapped_chunks: mapped,
            dirty_chunks: self.addresses.dirty_count(),
            live_slots: mapped,
            stale_slots: 0,
            ghosts: (self.addresses.len(B1) + self.addresses.len(B2)) as u64,
            ram_bytes: (self.addresses.ram_bytes() + self.slots.ram_bytes()) as u64,
        }
    }

    fn ram_bytes_max(&self) -> u64 {
        (self.addresses.ram_bytes_max() + self.slots.ram_bytes_max()) as u64
    }
}
