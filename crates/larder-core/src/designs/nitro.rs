//! Nitro (Li et al., USENIX ATC 2014, §3): replacement of WEUs in LRU order, with two indices.
//!
//! The LBA index has base and duplicate entries; the FP index is limited to a ratio of the chunks
//! and evicted in LRU order. Generations outdate duplicates, cleaned on sight or in background.
//!
//! Departures from the paper, with the reason:
//! - A generation validates base entries, too, not the extent's header on SSD. The check costs no
//!   read, and the record's checksum covers slot and generation besides.
//! - Clean duplicates survive a restart, for their mappings are logged like base ones.
//! - Chunks of zeroes have an entry and no record. Clean ones are bounded to a quarter of the index
//!   and dropped beyond that, because no eviction of a WEU would remove them.
//! - No recipe cache: it belongs to deduplicating origins.
//!
//! Invariants: those of [`Design`]; a slot's reference counts are its live entries.

mod back;
mod export;
mod forget;
mod persist;
mod shared;

use crate::{
    design::{Design, DesignConfig, DesignStats, Hit, Lookup, Mapping, NewMapping, Slots, Use, Victim},
    fp_index::FpIndex,
    lba_index::{EntryKind, GENERATION_MASK, LbaEntry, LbaIndex},
    ledger::DIRTY_SHARE_BYTES_MAX,
    limits::TRIMMED_AT_ONCE,
    named::{NamedDesign, Over, OverWeus},
    pages::PageMap,
    slots::{SlotState, SlotTable},
    types::{Fingerprint, Lba, Place, SectorMap, SlotId, StreamClass},
};

/// The design's name.
pub const NAME: &str = "nitro";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "Nitro (Li et al., USENIX ATC 2014): the WEU that was used least recently goes",
    over: Over::Weus(OverWeus {
        index_bytes_max: INDEX_BYTES_MAX,
        history_bytes_max: 0,
        checkpoint: None,
        weus_wanted: 0,
        make: |config| Box::new(Nitro::new(config)),
    }),
};
/// Maximum bytes of RAM for each entry of the indices. The LBA index counts with a table just
/// doubled; an FP index entry, a back pointer and a share of the write-back data are included.
pub const INDEX_BYTES_MAX: u64 = 128 + DIRTY_SHARE_BYTES_MAX;

/// The design's state.
pub struct Nitro {
    config: DesignConfig,
    index: LbaIndex,
    fingerprints: FpIndex,
    slots: SlotTable,
    fragments: PageMap<SectorMap>,
    live: u64,
    zeroes: u64,
    clean_zeroes: u64,
    sweep_at: usize,
    zero_sweep_at: usize,
    swept: u64,
    /// True during recovery: the FP index is behind.
    restoring: bool,
}

impl Nitro {
    /// Creates an empty cache.
    pub fn new(config: DesignConfig) -> Self {
        Nitro {
            index: LbaIndex::new(config.mappings_max),
            fingerprints: FpIndex::new(config.fp_entries_max as usize),
            slots: SlotTable::new(config.slot_count),
            fragments: PageMap::default(),
            live: 0,
            zeroes: 0,
            clean_zeroes: 0,
            sweep_at: 0,
            zero_sweep_at: 0,
            swept: 0,
            restoring: false,
            config,
        }
    }

    /// Returns the entry's slot and full generation; `None` if it is stale. Zeroes are never stale.
    #[inline]
    fn current(slots: &SlotTable, entry: &LbaEntry) -> Option<Option<(SlotId, u32)>> {
        let Some((slot, generation_low)) = entry.slot() else { return Some(None) };
        let generation = slots.generation(slot)?;
        (generation & GENERATION_MASK == generation_low).then_some(Some((slot, generation)))
    }

    #[inline]
    fn interpret(&self, entry: &LbaEntry) -> Option<Lookup> {
        let at = Self::current(&self.slots, entry)?;
        Some(match (entry.kind(), at) {
            (EntryKind::Chunk { duplicate }, Some((_, generation))) => {
                Lookup::Chunk { place: entry.place(generation), duplicate }
            }
            (EntryKind::Fragment, Some((_, generation))) => Lookup::Fragment {
                place: entry.place(generation),
                sectors: self.fragments.get(entry.lba().0).unwrap_or_default(),
            },
            _ => Lookup::Zero,
        })
    }

    /// Settles the counts for an entry that was just removed from the index. Returns whether it was
    /// live.
    fn forget(&mut self, entry: &LbaEntry) -> bool {
        if entry.kind() == EntryKind::Fragment {
            self.fragments.remove(entry.lba().0);
        }
        match Self::current(&self.slots, entry) {
            None => return false,
            Some(None) => {
                self.zeroes -= 1;
                self.clean_zeroes -= u64::from(!entry.dirty());
            }
            Some(Some((slot, _))) => self.slots.drop_ref(slot, entry.dirty()),
        }
        self.live -= 1;
        true
    }
}

impl Mapping for Nitro {
    fn lookup(&mut self, lba: Lba) -> Lookup {
        let Some(entry) = self.index.get(lba).copied() else { return Lookup::Miss };
        match self.interpret(&entry) {
            Some(found) => {
                if let Some((slot, _)) = entry.slot() {
                    self.slots.touch(slot);
                }
                found
            }
            None => {
                // Nitro §3.2: a stale entry that a client meets before the cleaner does is removed
                // there and then.
                self.index.remove(lba);
                self.forget(&entry);
                self.swept += 1;
                Lookup::Miss
            }
        }
    }

    fn peek(&self, lba: Lba) -> Lookup {
        self.index.get(lba).and_then(|entry| self.interpret(entry)).unwrap_or(Lookup::Miss)
    }

    fn hit(&self, lba: Lba) -> Option<Hit> {
        let Some(Lookup::Chunk { place, .. }) = self.interpret(self.index.get(lba)?) else { return None };
        Some(Hit { place, used: Use { lba, slot: place.slot, number: 0 } })
    }

    fn used(&mut self, uses: &[Use]) {
        self.slots.warm(uses);
        uses.iter().for_each(|hit| self.slots.touch(hit.slot));
    }

    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        let slots = &self.slots;
        let (_, place) = self.fingerprints.lookup(fingerprint, |slot| slots.generation_for_new(slot))?;
        self.slots.touch(place.slot);
        Some(place)
    }

    fn map(&mut self, lba: Lba, new: NewMapping, dirty: bool) {
        let (kind, place) = match &new {
            NewMapping::Unique { place, .. } => (EntryKind::Chunk { duplicate: false }, Some(place)),
            NewMapping::Duplicate { place } => (EntryKind::Chunk { duplicate: true }, Some(place)),
            NewMapping::Zero => (EntryKind::Zero, None),
            NewMapping::Fragment { place, .. } => (EntryKind::Fragment, Some(place)),
        };
        if let Some(old) = self.index.insert(LbaEntry::new(lba, kind, place, dirty)) {
            self.forget(&old);
        }
        self.live += 1;
        let Some(place) = place else {
            self.zeroes += 1;
            self.clean_zeroes += u64::from(!dirty);
            return;
        };
        self.slots.add_ref(place.slot, dirty);
        let handle = match &new {
            NewMapping::Unique { fingerprint: Some(fingerprint), .. } if self.restoring => {
                self.fingerprints.insert_later(fingerprint, place)
            }
            NewMapping::Unique { fingerprint: Some(fingerprint), .. } => self.fingerprints.insert(fingerprint, place),
            NewMapping::Fragment { sectors, .. } => {
                self.fragments.insert(lba.0, *sectors);
                None
            }
            _ => None,
        };
        // Back pointers: base entries, as in the WEU header, and dirty duplicates, for evictions.
        if (dirty || kind != (EntryKind::Chunk { duplicate: true })) && self.slots.remember(place.slot, lba, handle) {
            self.compact_back(place.slot);
        }
        self.bound_back_pointers();
    }

    fn mark_clean(&mut self, lba: Lba) {
        let Some(entry) = self.index.get_mut(lba) else { return };
        if entry.kind() == EntryKind::Fragment {
            self.unmap(lba);
            return;
        }
        entry.set_dirty(false);
        match entry.slot() {
            Some((slot, _)) => self.slots.clean_ref(slot),
            None => self.clean_zeroes += 1,
        }
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.index.get(lba).is_some_and(LbaEntry::dirty)
    }

    fn unmap(&mut self, lba: Lba) -> bool {
        self.index.remove(lba).is_some_and(|entry| self.forget(&entry))
    }

    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.index.in_run(first, count)
    }

    fn trim_span(&self, first: Lba, count: u64) -> u64 {
        self.index.span(first, count, TRIMMED_AT_ONCE as usize)
    }

    fn has_room(&self, count: u64) -> bool {
        self.index.len() as u64 + count <= self.config.mappings_max
    }
}

impl Slots for Nitro {
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)> {
        self.slots.open(class)
    }

    fn seal_slot(&mut self, slot: SlotId) {
        self.slots.seal(slot);
    }

    fn free_slots(&self) -> usize {
        self.slots.free_count()
    }

    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        self.oldest_but(busy).map(|slot| self.take_victim(slot))
    }

    fn spare_victim(&mut self, slot: SlotId) {
        self.slots.stop_evicting(slot);
    }

    fn dirty_in(&self, slot: SlotId) -> Vec<Lba> {
        self.dirty_chunks_in(slot)
    }

    fn evict(&mut self, slot: SlotId) -> Option<u32> {
        let (state, generation, _, dirty_refs) = self.slots.describe(slot);
        if state != SlotState::Evicting || dirty_refs > 0 {
            return None;
        }
        // Nothing dirty ends.
        self.forget_remembered(slot, generation, &mut |_| {});
        // Only clean duplicates are left: dead from here on, and removed on sight or by a sweep.
        let (ended, dead_refs) = self.slots.retire(slot);
        self.live -= u64::from(dead_refs);
        Some(ended)
    }

    fn release_slot(&mut self, slot: SlotId) {
        self.slots.release(slot);
    }

    fn sweep(&mut self) -> usize {
        let shard = self.sweep_at;
        self.sweep_at = (self.sweep_at + 1) % self.index.shard_count();
        let slots = &self.slots;
        let gone = self.index.sweep_shard(shard, |entry| Self::current(slots, entry).is_some());
        self.swept += gone as u64;
        self.fingerprints.merge_some();
        gone
    }

    fn drop_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba> {
        let dropped = self.some_clean_zeroes(all, max);
        dropped.iter().for_each(|&lba| {
            self.unmap(lba);
        });
        dropped
    }
}

impl Design for Nitro {
    fn stats(&self) -> DesignStats {
        DesignStats {
            mapped_chunks: self.live,
            zero_chunks: self.zeroes,
            fragments: self.fragments.len() as u64,
            lba_index_entries: self.index.len() as u64,
            fp_index_entries: self.fingerprints.len() as u64,
            fp_index_evictions: self.fingerprints.evictions(),
            lba_index_ram_bytes: self.index.ram_bytes() as u64,
            fp_index_ram_bytes: self.fingerprints.ram_bytes() as u64,
            slot_table_ram_bytes: self.slots.ram_bytes() as u64,
            dirty_ram_bytes: self.fragments.ram_bytes() as u64,
            slots_free: self.slots.free_count() as u64,
            swept_entries: self.swept,
            ..DesignStats::default()
        }
    }
}
