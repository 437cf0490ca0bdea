//! CacheDedup's `cd-arc` (§5.6): D-ARC (§4.2) over WEUs of compressed chunks, as in Nitro.
//!
//! The paper gives one paragraph: "1) the Data Cache stores WEUs; 2) the fingerprints in the
//! Metadata Cache point to the extents in the WEUs; and 3) replacement in the Data Cache preferably
//! uses a WEU with no mappings in T1 ∪ T2". The rest is D-ARC, see `d_arc.rs`: addresses are on
//! T1, T2, B1, B2 and B3, and those in T1 and T2 have their data. Those in B1, B2 and B3 remember
//! their fingerprints, and hit while a WEU is known to have their content. The caller then maps
//! them again ([`Memory::ghost`]). If every WEU has an address in T1 or T2, D-ARC's
//! MANAGEMETADATACACHE moves addresses out of them until one WEU has none.
//!
//! Mappings, dirty chunks, fragments, WEUs and recovery are those of `nitro.rs`, which this design
//! drives. It adds the choice of WEUs, and the remembered addresses.
//!
//! Open points of the paper, and their solutions here:
//! - C and X. A cache of compressed chunks has no fixed number of chunks. C is half of the maximum
//!   number of addresses, and X the rest (0 or 1), as in AustereCache's authors' version.
//! - Among WEUs without an address in T1 or T2 the one goes that lost its last one first, as in
//!   theirs. D-ARC takes the least recently used data, which would need a search among WEUs.
//! - `p` moves as in ARC, by the quotient of the sizes of B1 and B2 or by 1 (theirs: by 1).
//!
//! The test in `larder-sim/tests/simulator/published.rs` compares it with their version on a trace.
//!
//! Departures from D-ARC, due to the order of operations in a cache with I/O ([`Design`]):
//! - An eviction precedes the opening of a WEU, while the chunk for it is still unknown. Addresses
//!   therefore move before `p` does, and REPLACE takes the requested address as not in B2.
//! - The old copy is forgotten ([`Mapping::unmap`]) before a write of the origin, and the new one
//!   is mapped later. In between the address stays on its list, without data, so the write counts
//!   as a use. A write around the cache leaves it so, too, and its next read finds it on its list;
//!   the paper removes it.
//! - An address that leaves B3 is forgotten when the caller asks for addresses to forget
//!   ([`Slots::drop_clean_zeroes`]), because the caller has to log that. Until then, and while it
//!   is dirty, it stays mapped, and hits.
//! - If T2 is empty, REPLACE takes from T1 for any `p`.
//! - Chunks of zeroes are ordinary addresses, but in no WEU.
//! - After an orderly end `cd_arc/restored.rs` restores everything, and after a crash only the
//!   addresses of ghosts. Without a checkpoint's history the mapped addresses are in T2, in no
//!   order, as far as it has room, then in B2.
//!
//! Invariants: those of [`Design`]. |T1|+|T2|+|B3| <= C+X and |B1|+|B2| <= C. Each mapped address
//! is on a list, or waits to be dropped. An address in T1 or T2 is mapped, except between
//! [`Mapping::unmap`] and the next [`Mapping::map`].
//!
//! It does not forget an address by itself that a log may know.

mod lists;
mod memory;
mod persist;
mod restored;
mod restoring;

use crate::{
    design::{
        Design, DesignConfig, DesignStats, Hit, Lookup, Mapping, Memory, NewMapping, Slots, Use, Victim, unmap_some,
    },
    history::{self},
    limits::TRIMMED_AT_ONCE,
    named::{NamedDesign, Over, OverWeus},
    nitro::{self, Nitro},
    slots::SlotState,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};
use lists::{At, B1, B2, B3, LEFT, Lists, OWED, T1, T2, is_top};
use restoring::RestoringLists;

/// The design's name.
pub const NAME: &str = "cd-arc";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "CacheDedup's CD-ARC (Li et al., FAST 2016, section 5.6): duplication-aware ARC over WEUs",
    over: Over::Weus(OverWeus {
        index_bytes_max: INDEX_BYTES_MAX,
        history_bytes_max: HISTORY_BYTES_MAX,
        checkpoint: None,
        weus_wanted: 0,
        make: |config| Box::new(CdArc::new(config)),
    }),
};
/// Maximum bytes of a checkpoint's history for each remembered address.
pub const HISTORY_BYTES_MAX: u64 = history::CONTENT_ADDRESS_BYTES as u64;
/// Maximum bytes of RAM for each remembered address. They cover Nitro's indices, the lists with a
/// maximum of waiting addresses, and the history, which a checkpoint takes at one moment.
pub const INDEX_BYTES_MAX: u64 = nitro::INDEX_BYTES_MAX + lists::ADDRESS_BYTES_MAX + HISTORY_BYTES_MAX;

/// The design.
pub struct CdArc {
    nitro: Nitro,
    lists: Lists,
    /// The last found content: the next mapped duplicate has it.
    found: Option<(Place, Fingerprint)>,
    /// The state of a recovery.
    restoring: Option<RestoringLists>,
}

impl CdArc {
    /// Creates an empty cache. It remembers `config.mappings_max` addresses, the paper's 2C + X.
    pub fn new(config: DesignConfig) -> Self {
        let lists = Lists::new(config.mappings_max, config.slot_count);
        CdArc { nitro: Nitro::new(config), lists, found: None, restoring: None }
    }

    /// Returns the target size of T1 (the paper's p).
    pub fn target(&self) -> f64 {
        self.lists.target()
    }

    /// Counts the addresses on T1, T2, B1, B2, B3. For tests.
    #[doc(hidden)]
    pub fn list_lens(&self) -> [u64; 5] {
        [T1, T2, B1, B2, B3].map(|list| self.lists.len(list))
    }

    /// Counts the addresses that have left the lists: those that may be dropped now, and dirty
    /// ones.
    pub fn waiting(&self) -> [u64; 2] {
        [LEFT, OWED].map(|list| self.lists.len(list))
    }

    /// Takes data and content from `lba`.
    fn outdate(&mut self, lba: Lba) {
        match self.lists.find(lba) {
            Some(i) if matches!(self.lists.list(i), LEFT | OWED) => self.lists.remove(i),
            Some(i) => {
                self.lists.place(i, At::NOWHERE, None);
                self.lists.set_dirty(i, false);
            }
            None => {}
        }
    }

    /// Processes a request of the mapped address `i`.
    fn process(&mut self, i: u32) {
        // Data in a WEU that is about to go does not return to T1 or T2, where its address would be
        // an orphan.
        let slot = SlotId(self.lists.at(i).slot);
        if self.nitro.slot(slot).is_none_or(|(state, _)| state != SlotState::Evicting) {
            self.lists.process(i);
        }
    }

    /// Forgets the addresses of a run, ghosts included.
    fn forget_run(&mut self, first: Lba, count: u64) {
        for lba in self.lists.in_run(first, count) {
            if let Some(i) = self.lists.find(lba) {
                self.lists.remove(i);
            }
        }
    }

    /// Returns whether an unmapped address has room for a mapping.
    fn has_room_for(&self, lba: Lba) -> bool {
        self.nitro.has_room(1) || self.nitro.has_entry(lba)
    }

    /// Returns a sealed slot without an address in T1 and T2.
    fn take_unheld(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<SlotId> {
        let nitro = &self.nitro;
        self.lists.take_unheld(|slot| match nitro.slot(slot) {
            Some((SlotState::Sealed, _)) => Some(!busy(slot)),
            // It is noted when it is sealed, or spared.
            _ => None,
        })
    }

    /// Notes the present generation of `slot` after a step of recovery.
    fn note_generation(&mut self, slot: SlotId) {
        if let Some((_, generation)) = self.nitro.slot(slot) {
            self.lists.begin_generation(slot, generation);
        }
    }

    /// Returns whether an address in T1 or T2 lost its data by an eviction. For tests. None does,
    /// unless recovery passed through states that never were.
    #[doc(hidden)]
    pub fn has_orphan(&self) -> bool {
        let is_orphan = |&i: &u32| {
            let at = self.lists.at(i);
            is_top(self.lists.list(i)) && at != At::NOWHERE && !self.lists.is_there(at)
        };
        self.lists.check().iter().any(|(_, i)| is_orphan(i))
    }

    /// Panics if an invariant of this design does not hold. For tests.
    pub fn check(&self) {
        let mut mapped = 0;
        for (lba, i) in self.lists.check() {
            let (found, was) = (self.nitro.peek(lba), self.lists.at(i));
            assert_eq!(found != Lookup::Miss, self.lists.is_there(was), "{lba:?}");
            mapped += u64::from(found != Lookup::Miss);
            let is_dirty = self.lists.is_dirty(i);
            // Dirty data of a state that never was may have lost its WEU; recovery forgets it in
            // the end.
            assert!(found == Lookup::Miss || is_dirty == self.nitro.is_dirty(lba), "{lba:?}");
            assert!(!matches!((self.lists.list(i), is_dirty), (LEFT, true) | (OWED, false)), "{lba:?}");
            if let Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } = found {
                assert_eq!(at(&place), was, "{lba:?}");
            }
        }
        assert_eq!(mapped, self.nitro.stats().mapped_chunks, "each mapped address is remembered");
    }
}

fn at(place: &Place) -> At {
    At { slot: place.slot.0, generation: place.generation }
}

impl Mapping for CdArc {
    fn lookup(&mut self, lba: Lba) -> Lookup {
        let found = self.nitro.lookup(lba);
        if found != Lookup::Miss
            && let Some(i) = self.lists.find(lba)
        {
            self.process(i);
        }
        found
    }

    fn peek(&self, lba: Lba) -> Lookup {
        self.nitro.peek(lba)
    }

    fn hit(&self, lba: Lba) -> Option<Hit> {
        // The lists choose the leaving addresses. Those stay mapped until the caller asks for
        // addresses to forget.
        let mut hit = self.nitro.hit(lba)?;
        hit.used.number = self.lists.find(lba)?;
        Some(hit)
    }

    fn used(&mut self, uses: &[Use]) {
        self.nitro.used(uses);
        self.lists.warm(uses);
        uses.iter().for_each(|hit| self.process(hit.number));
    }

    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        let place = self.nitro.find_duplicate(fingerprint)?;
        self.found = Some((place, *fingerprint));
        Some(place)
    }

    fn map(&mut self, lba: Lba, new: NewMapping, is_dirty: bool) {
        let (place, fingerprint) = match &new {
            NewMapping::Unique { place, fingerprint } => (Some(place), *fingerprint),
            NewMapping::Duplicate { place } => {
                (Some(place), self.found.filter(|(found, _)| found == place).map(|(_, fingerprint)| fingerprint))
            }
            NewMapping::Fragment { place, .. } => (Some(place), None),
            NewMapping::Zero => (None, None),
        };
        let i = self.lists.find_or_insert(lba);
        match self.restoring {
            Some(_) => self.lists.restore(i),
            None => self.lists.process(i),
        }
        self.lists.place(i, place.map_or(At::ZERO, at), fingerprint);
        self.lists.set_dirty(i, is_dirty);
        self.nitro.map(lba, new, is_dirty);
    }

    fn mark_clean(&mut self, lba: Lba) {
        self.nitro.mark_clean(lba);
        if !self.nitro.has_entry(lba) {
            self.outdate(lba);
        } else if let Some(i) = self.lists.find(lba) {
            self.lists.set_dirty(i, false);
        }
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.nitro.is_dirty(lba)
    }

    fn unmap(&mut self, lba: Lba) -> bool {
        self.outdate(lba);
        self.nitro.unmap(lba)
    }

    fn unmap_run(&mut self, first: Lba, count: u64) {
        self.forget_run(first, count);
        self.nitro.unmap_run(first, count);
    }

    fn unmap_each(&mut self, first: Lba, count: u64, is_leaving: &dyn Fn(Lba) -> bool) -> bool {
        let mapped = [self.lists.in_run(first, count), self.nitro.mapped_in(first, count)].concat();
        unmap_some(self, mapped, is_leaving)
    }

    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        // Ghosts are among them, because unmapping a run unmaps them, too.
        self.lists.in_run(first, count)
    }

    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        // A crash brings back a ghost without its content.
        self.nitro.is_forgetting_logged(first, count)
    }

    fn trim_span(&self, first: Lba, count: u64) -> u64 {
        let count = self.nitro.trim_span(first, count);
        self.lists.in_run(first, count).get(TRIMMED_AT_ONCE as usize).map_or(count, |lba| lba.0 - first.0)
    }

    fn has_room(&self, count: u64) -> bool {
        self.nitro.has_room(count)
    }
}

impl Slots for CdArc {
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)> {
        self.nitro.open_slot(class)
    }

    fn seal_slot(&mut self, slot: SlotId) {
        self.nitro.seal_slot(slot);
        self.lists.note_unheld(slot);
    }

    fn free_slots(&self) -> usize {
        self.nitro.free_slots()
    }

    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        // If no WEU may go at all, no address has to leave T1 and T2 for one.
        self.nitro.oldest_but(&mut *busy)?;
        let mut victim = self.take_unheld(busy);
        while victim.is_none() && self.lists.len(T1) + self.lists.len(T2) > 0 {
            self.lists.manage_metadata();
            victim = self.take_unheld(busy);
        }
        let slot = victim.or_else(|| self.nitro.oldest_but(busy))?;
        Some(self.nitro.take_victim(slot))
    }

    fn spare_victim(&mut self, slot: SlotId) {
        self.nitro.spare_victim(slot);
        self.lists.note_unheld(slot);
    }

    fn dirty_in(&self, slot: SlotId) -> Vec<Lba> {
        self.nitro.dirty_in(slot)
    }

    fn evict(&mut self, slot: SlotId) -> Option<u32> {
        let ended = self.nitro.evict(slot)?;
        self.note_generation(slot);
        Some(ended)
    }

    fn release_slot(&mut self, slot: SlotId) {
        self.nitro.release_slot(slot);
    }

    fn sweep(&mut self) -> usize {
        self.nitro.sweep()
    }

    fn drop_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba> {
        let mut dropped = self.nitro.drop_clean_zeroes(all, max);
        dropped.iter().for_each(|&lba| self.outdate(lba));
        while let Some((i, lba)) = self.lists.oldest(LEFT).filter(|_| dropped.len() < max) {
            self.lists.remove(i);
            if self.nitro.unmap(lba) {
                dropped.push(lba);
            }
        }
        dropped
    }
}

impl Design for CdArc {
    fn stats(&self) -> DesignStats {
        let mut stats = self.nitro.stats();
        stats.lba_index_ram_bytes += self.lists.ram_bytes() as u64;
        stats.ghosts = self.lists.total() - stats.mapped_chunks;
        stats
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }

    fn memory_mut(&mut self) -> Option<&mut dyn Memory> {
        Some(self)
    }
}
