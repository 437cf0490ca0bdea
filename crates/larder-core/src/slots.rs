//! The slots: state, generation, references, replacement order, and their records' addresses.
//!
//! The sources are Nitro §3.1 "WEU header", §3.2 "SSD cache replacement policy" and "Cleaning the
//! file index".
//!
//! A slot's life: free → open (one a class) → sealed → evicting → retired → free. An
//! evicting slot takes no new references, and its dirty data is being destaged. A retired slot has
//! lost its mappings, and its generation has moved on. It is free once that is durable and the slot
//! trimmed.
//!
//! Invariants: `dirty_refs <= refs`. Only sealed slots are on the list by last use, and only free
//! ones on the free list. The generation moves on exactly when a slot retires, so an older mapping
//! never matches again.
//!
//! It leaves the removal of mappings to the design that owns the index.

mod export;
mod generations;
mod state;

use crate::{
    design::Use,
    fp_index::FpHandle,
    recency::{Linked, NONE, Neighbours, Recency},
    types::{Lba, SlotId, StreamClass},
};
pub(crate) use generations::Generations;
use state::Export;
pub use state::{ExportedSlot, SlotState};

/// Back pointers of a slot below which it is never compacted.
const BACK_COMPACT_MIN: u32 = 4096;
/// Slots below which the table is in a processor's caches anyway.
const WARM_MIN: usize = 4096;

/// A record's address and fingerprint handle, so that an eviction finds both without reading flash.
#[derive(Clone, Copy)]
struct BackPointer {
    lba_low: u32,
    lba_high: u32,
    fp: u32,
}

/// One slot.
struct Slot {
    generation: u32,
    state: SlotState,
    class: StreamClass,
    /// True until recovery names a generation: it may begin with any, because generations wrap.
    unheard: bool,
    refs: u32,
    dirty_refs: u32,
    /// Neighbours on the list by last use. A free slot's neighbours are on the free list: `older`
    /// is the next, `newer` the previous.
    beside: Neighbours,
    /// Back pointers that the last compaction kept.
    back_kept: u32,
    /// Index up to which all back pointers have a fingerprint.
    without_fp_from: u32,
    back: Vec<BackPointer>,
}

/// All slots.
pub struct SlotTable {
    slots: Vec<Slot>,
    /// The next free slot. The free list runs through the slots, so recovery removes any of them in
    /// no time.
    free: u32,
    free_count: usize,
    /// Sealed slots.
    by_use: Recency,
    /// Back pointers of all slots together, and their capacity.
    back_len: usize,
    back_capacity: usize,
    export: Export,
}

impl SlotTable {
    /// Bytes of RAM for each slot, free or used.
    pub const SLOT_BYTES: u64 = size_of::<Slot>() as u64;

    /// Creates `count` free slots of generation 0.
    pub fn new(count: u32) -> Self {
        let slot = || Slot {
            generation: 0,
            state: SlotState::Free,
            class: StreamClass::Clean,
            unheard: true,
            refs: 0,
            dirty_refs: 0,
            beside: Neighbours::ALONE,
            back_kept: 0,
            without_fp_from: 0,
            back: Vec::new(),
        };
        let mut slots = SlotTable {
            slots: (0..count).map(|_| slot()).collect(),
            free: NONE,
            free_count: 0,
            by_use: Recency::default(),
            back_len: 0,
            back_capacity: 0,
            export: Export::default(),
        };
        (0..count).rev().for_each(|i| slots.link_free(i));
        slots
    }

    /// Counts the slots.
    pub fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Counts the free slots.
    pub fn free_count(&self) -> usize {
        self.free_count
    }
    /// Returns the bytes that the table has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.back_capacity * size_of::<BackPointer>()
            + self.export.ram_bytes()
    }

    /// Returns state, generation, references and dirty references of `slot`.
    pub fn describe(&self, slot: SlotId) -> (SlotState, u32, u32, u32) {
        let slot = &self.slots[slot.0 as usize];
        (slot.state, slot.generation, slot.refs, slot.dirty_refs)
    }

    /// Returns the state of `slot`.
    #[inline]
    pub fn state(&self, slot: SlotId) -> SlotState {
        self.slots[slot.0 as usize].state
    }

    /// Returns the class of data in `slot`.
    pub fn class(&self, slot: SlotId) -> StreamClass {
        self.slots[slot.0 as usize].class
    }

    /// Returns the current generation of `slot`, whose number may come from flash.
    #[inline]
    pub fn generation(&self, slot: SlotId) -> Option<u32> {
        self.slots.get(slot.0 as usize).map(|slot| slot.generation)
    }

    /// Returns the current generation of `slot` if it may take new references.
    pub fn generation_for_new(&self, slot: SlotId) -> Option<u32> {
        let slot = self.slots.get(slot.0 as usize)?;
        matches!(slot.state, SlotState::Open | SlotState::Sealed).then_some(slot.generation)
    }

    /// Opens a free slot for `class`.
    pub fn open(&mut self, class: StreamClass) -> Option<(SlotId, u32)> {
        let i = self.free;
        if i == NONE {
            return None;
        }
        self.unlink_free(i);
        let slot = &mut self.slots[i as usize];
        slot.state = SlotState::Open;
        slot.class = class;
        slot.unheard = false;
        Some((SlotId(i), slot.generation))
    }

    /// Seals a full open slot as the most recently used.
    pub fn seal(&mut self, slot: SlotId) {
        let entry = &mut self.slots[slot.0 as usize];
        if entry.state != SlotState::Open {
            return;
        }
        entry.state = SlotState::Sealed;
        self.back_capacity -= entry.back.capacity();
        entry.back.shrink_to_fit();
        self.back_capacity += entry.back.capacity();
        self.by_use.link(&mut self.slots[..], slot.0);
    }

    /// Makes `slot` the most recent after a read or a new reference.
    #[inline]
    pub fn touch(&mut self, slot: SlotId) {
        if self.by_use.newest() != slot.0 && self.slots[slot.0 as usize].state == SlotState::Sealed {
            self.unlink(slot.0);
            self.by_use.link(&mut self.slots[..], slot.0);
        }
    }

    /// Reads the memory of these uses ahead, so that many waits for memory become one.
    pub fn warm(&self, uses: &[Use]) {
        if self.slots.len() < WARM_MIN {
            return;
        }
        let slot = |i: u32| self.slots.get(i as usize);
        let neighbours = |hit: &Use| slot(hit.slot.0).map_or(Neighbours::ALONE, |slot| slot.beside);
        let read = uses.iter().map(neighbours).fold(0, |sum, beside| sum ^ beside.newer ^ beside.older);
        std::hint::black_box(read);
        let beside = uses.iter().map(neighbours).flat_map(|beside| [slot(beside.newer), slot(beside.older)]);
        std::hint::black_box(beside.flatten().fold(0, |sum, slot| sum ^ slot.beside.newer));
    }

    /// Returns the least recently used sealed slot that `busy` does not name.
    pub fn oldest_but(&self, mut busy: impl FnMut(SlotId) -> bool) -> Option<SlotId> {
        let mut at = self.by_use.oldest();
        while at != NONE && busy(SlotId(at)) {
            at = self.slots[at as usize].beside.newer;
        }
        (at != NONE).then_some(SlotId(at))
    }

    /// Takes a sealed slot off the list for its eviction.
    pub fn start_evicting(&mut self, slot: SlotId) {
        if self.slots[slot.0 as usize].state == SlotState::Sealed {
            self.unlink(slot.0);
            self.slots[slot.0 as usize].state = SlotState::Evicting;
        }
    }

    /// Seals a slot again after a cancelled eviction, as the most recent.
    ///
    /// As the least recent it would be chosen again and again, and no other slot ever would.
    pub fn stop_evicting(&mut self, slot: SlotId) {
        let entry = &mut self.slots[slot.0 as usize];
        // A slot of any other state is on a list already, or must not join this one.
        if entry.state == SlotState::Evicting {
            entry.state = SlotState::Sealed;
            self.by_use.link(&mut self.slots[..], slot.0);
        }
    }

    /// Ends the slot's generation. Returns that generation and its number of references.
    pub fn retire(&mut self, slot: SlotId) -> (u32, u32) {
        let entry = &mut self.slots[slot.0 as usize];
        let dead = (entry.generation, entry.refs);
        entry.state = SlotState::Retired;
        entry.generation = entry.generation.wrapping_add(1);
        self.forget_refs(slot);
        dead
    }

    /// Frees a retired slot.
    pub fn release(&mut self, slot: SlotId) {
        let entry = &mut self.slots[slot.0 as usize];
        if entry.state == SlotState::Retired {
            entry.state = SlotState::Free;
            self.link_free(slot.0);
        }
    }

    /// Recovery: returns whether `slot` exists and has not moved past `generation`.
    pub fn can_be_at(&self, slot: SlotId, generation: u32) -> bool {
        self.slots
            .get(slot.0 as usize)
            .is_some_and(|slot| slot.unheard || !generation_is_older(generation, slot.generation))
    }

    /// Recovery: says that `slot` holds data of `generation`. The slot becomes sealed and the most
    /// recent.
    ///
    /// Data of an older generation is forgotten. Returns false if the slot does not exist or its
    /// generation is past that already.
    pub fn restore(&mut self, slot: SlotId, generation: u32) -> bool {
        if !self.can_be_at(slot, generation) {
            return false;
        }
        let entry = &mut self.slots[slot.0 as usize];
        entry.unheard = false;
        if entry.state == SlotState::Sealed && entry.generation == generation {
            return true;
        }
        let before = std::mem::replace(&mut entry.state, SlotState::Sealed);
        let another = std::mem::replace(&mut entry.generation, generation) != generation;
        match before {
            SlotState::Free => self.unlink_free(slot.0),
            SlotState::Sealed => {
                self.unlink(slot.0);
            }
            SlotState::Open | SlotState::Evicting | SlotState::Retired => {}
        }
        if another {
            self.forget_refs(slot);
        }
        self.by_use.link(&mut self.slots[..], slot.0);
        true
    }

    /// Recovery: says that the data of `slot` has this class.
    pub fn restore_class(&mut self, slot: SlotId, class: StreamClass) {
        if let Some(slot) = self.slots.get_mut(slot.0 as usize) {
            slot.class = class;
        }
    }

    /// Recovery: says that `slot` was freed at `generation`. Returns true if that ends its present
    /// one.
    pub fn restore_freed(&mut self, slot: SlotId, generation: u32) -> bool {
        if !self.can_be_at(slot, generation) {
            return false;
        }
        let entry = &mut self.slots[slot.0 as usize];
        entry.unheard = false;
        entry.generation = generation.wrapping_add(1);
        if entry.state == SlotState::Sealed {
            entry.state = SlotState::Free;
            self.unlink(slot.0);
            self.link_free(slot.0);
        }
        self.forget_refs(slot);
        true
    }

    fn forget_refs(&mut self, slot: SlotId) {
        let slot = &mut self.slots[slot.0 as usize];
        slot.refs = 0;
        slot.dirty_refs = 0;
        slot.back_kept = 0;
        slot.without_fp_from = 0;
        self.back_len -= slot.back.len();
        self.back_capacity -= slot.back.capacity();
        slot.back = Vec::new();
    }

    /// Counts a new mapping to `slot`. [`SlotTable::remember`] keeps its address, for records
    /// stored there and for dirty mappings.
    pub fn add_ref(&mut self, slot: SlotId, dirty: bool) {
        let slot = &mut self.slots[slot.0 as usize];
        slot.refs += 1;
        slot.dirty_refs += u32::from(dirty);
    }

    /// Uncounts a mapping to `slot` that is gone.
    pub fn drop_ref(&mut self, slot: SlotId, dirty: bool) {
        let slot = &mut self.slots[slot.0 as usize];
        debug_assert!(slot.refs > 0 && (!dirty || slot.dirty_refs > 0));
        slot.refs -= 1;
        slot.dirty_refs -= u32::from(dirty);
    }

    /// Marks a mapping to `slot` clean.
    pub fn clean_ref(&mut self, slot: SlotId) {
        let slot = &mut self.slots[slot.0 as usize];
        debug_assert!(slot.dirty_refs > 0);
        slot.dirty_refs -= 1;
    }

    /// Remembers that `lba` points into `slot`. Returns true if most pointers must be outdated:
    /// [`SlotTable::compact_back`] is then due.
    pub fn remember(&mut self, slot: SlotId, lba: Lba, fp: Option<FpHandle>) -> bool {
        let slot = &mut self.slots[slot.0 as usize];
        let pointer = BackPointer {
            lba_low: lba.0 as u32,
            lba_high: (lba.0 >> 32) as u32,
            fp: fp.map_or(NONE, |handle| handle.0),
        };
        self.back_len += 1;
        self.back_capacity -= slot.back.capacity();
        slot.back.push(pointer);
        self.back_capacity += slot.back.capacity();
        // The limit is twice the pointers that the last compaction kept, too. Pointers to
        // fingerprints stay, and a compaction for each further pointer would take quadratic time.
        let most = BACK_COMPACT_MIN.max(slot.refs.saturating_mul(4)).max(slot.back_kept.saturating_mul(2));
        slot.back.len() > most as usize
    }

    /// Remembers that a fingerprint leads into `slot`.
    ///
    /// Address and fingerprint of a back pointer are two facts, of one record or of two: any
    /// pointer without a fingerprint takes it.
    pub fn remember_fingerprint(&mut self, slot: SlotId, fp: FpHandle) {
        let entry = &mut self.slots[slot.0 as usize];
        while let Some(pointer) = entry.back.get_mut(entry.without_fp_from as usize) {
            entry.without_fp_from += 1;
            if pointer.fp == NONE {
                pointer.fp = fp.0;
                return;
            }
        }
        // No chunk has this number.
        self.remember(slot, Lba(u64::MAX), Some(fp));
    }

    /// Returns the addresses with a dirty mapping into a slot, ascending. Each is remembered.
    pub fn dirty_in(&self, slot: SlotId, is_dirty_here: impl Fn(Lba) -> bool) -> Vec<Lba> {
        if self.slots[slot.0 as usize].dirty_refs == 0 {
            return Vec::new();
        }
        let mut found: Vec<Lba> = self.remembered(slot).map(|(lba, _)| lba).filter(|&lba| is_dirty_here(lba)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the slots whose back pointers are to be compacted.
    ///
    /// There are none unless twice as many are remembered as may be useful. A slot whose records
    /// are replaced elsewhere may live long, and keeps a pointer for each.
    pub fn crowded(&self, useful_max: u64) -> Vec<SlotId> {
        if self.back_len as u64 <= useful_max.saturating_mul(2) {
            return Vec::new();
        }
        (0..self.count()).map(SlotId).filter(|&slot| self.state(slot) != SlotState::Free).collect()
    }

    /// Compacts the back pointers of `slot` to `live` addresses, once each, and leading
    /// fingerprints.
    pub fn compact_back(&mut self, slot: SlotId, mut live: impl FnMut(Lba) -> bool, leads: impl Fn(FpHandle) -> bool) {
        let slot = &mut self.slots[slot.0 as usize];
        let mut seen = std::collections::BTreeSet::new();
        self.back_len -= slot.back.len();
        self.back_capacity -= slot.back.capacity();
        slot.back.retain_mut(|pointer| {
            if pointer.fp != NONE && !leads(FpHandle(pointer.fp)) {
                pointer.fp = NONE;
            }
            let lba = pointer.lba();
            pointer.fp != NONE || (live(lba) && seen.insert(lba))
        });
        if slot.state != SlotState::Open {
            slot.back.shrink_to_fit();
        }
        self.back_len += slot.back.len();
        self.back_capacity += slot.back.capacity();
        slot.back_kept = slot.back.len() as u32;
        slot.without_fp_from = 0;
    }

    /// Returns the addresses remembered for `slot`, with repeats and outdated ones.
    pub fn remembered(&self, slot: SlotId) -> impl Iterator<Item = (Lba, Option<FpHandle>)> + '_ {
        self.slots[slot.0 as usize].back.iter().map(|p| (p.lba(), (p.fp != NONE).then_some(FpHandle(p.fp))))
    }

    fn link_free(&mut self, i: u32) {
        let next = std::mem::replace(&mut self.free, i);
        self.slots[i as usize].beside = Neighbours { newer: NONE, older: next };
        if let Some(slot) = self.slots.get_mut(next as usize) {
            slot.beside.newer = i;
        }
        self.free_count += 1;
    }

    fn unlink_free(&mut self, i: u32) {
        let left = self.slots[i as usize].beside;
        match self.slots.get_mut(left.newer as usize) {
            Some(slot) => slot.beside.older = left.older,
            None => self.free = left.older,
        }
        if let Some(slot) = self.slots.get_mut(left.older as usize) {
            slot.beside.newer = left.newer;
        }
        self.free_count -= 1;
    }

    fn unlink(&mut self, i: u32) {
        let left = self.by_use.unlink(&mut self.slots[..], i);
        self.export.unlinks(i, left.newer);
    }
}

impl Linked for Slot {
    #[inline]
    fn neighbours(&self) -> Neighbours {
        self.beside
    }

    #[inline]
    fn neighbours_mut(&mut self) -> &mut Neighbours {
        &mut self.beside
    }
}

impl BackPointer {
    fn lba(&self) -> Lba {
        Lba(u64::from(self.lba_low) | u64::from(self.lba_high) << 32)
    }
}

/// Returns whether generation `a` came before `b`, on a counter that wraps.
fn generation_is_older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_sealed_slot_is_evicted_first() {
        let mut slots = SlotTable::new(4);
        let start = |slots: &mut SlotTable, busy: &dyn Fn(SlotId) -> bool| {
            slots.oldest_but(busy).inspect(|&slot| slots.start_evicting(slot))
        };
        let ids: Vec<_> = (0..3).map(|_| slots.open(StreamClass::Clean).unwrap().0).collect();
        ids.iter().for_each(|&id| slots.seal(id));
        slots.touch(ids[0]);
        assert_eq!(start(&mut slots, &|id| id == ids[1]), Some(ids[2]), "the busy one is passed over");
        assert_eq!(slots.retire(ids[2]), (0, 0));
        assert_eq!(slots.free_count(), 1);
        slots.release(ids[2]);
        assert_eq!(slots.free_count(), 2);
        assert_eq!(slots.open(StreamClass::Dirty), Some((ids[2], 1)), "its generation has moved on");
        assert_eq!(start(&mut slots, &|_| false), Some(ids[1]));
        slots.stop_evicting(ids[1]);
        assert_eq!(start(&mut slots, &|_| false), Some(ids[0]), "what was given back is not the next");
        assert_eq!(start(&mut slots, &|_| false), Some(ids[1]));
        assert_eq!(start(&mut slots, &|_| false), None);
    }

    #[test]
    fn recovery_keeps_the_newest_generation() {
        let mut slots = SlotTable::new(2);
        assert!(slots.restore(SlotId(0), 3));
        assert!(!slots.restore(SlotId(0), 2) && !slots.restore(SlotId(9), 0));
        assert!(!slots.restore_freed(SlotId(0), 2));
        assert!(slots.restore_freed(SlotId(0), 3));
        assert_eq!(slots.describe(SlotId(0)), (SlotState::Free, 4, 0, 0));
        assert_eq!(slots.free_count(), 2);
        assert!(!slots.restore(SlotId(0), 3));
    }

    #[test]
    fn generations_wrap() {
        assert!(generation_is_older(u32::MAX, 0) && !generation_is_older(0, u32::MAX));
    }
}
