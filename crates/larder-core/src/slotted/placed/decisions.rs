//! The decisions of a placed design, in the words of an engine.
//!
//! The mappings answer most calls, and the design is told.
//!
//! Invariants: those of [`Placed`].
//!
//! It leaves their agreement to `placed.rs`.

use super::{
    Placed, SETS_BYTES_MAX,
    made_up::unshared,
    restoring::RestoringSlots,
    slot_content::{NONE, SlotContent},
};
use crate::{
    design::{
        Design, DesignStats, ExportedMapping, Hit, Lookup, Mapping, Memory, NewMapping, Persist, Selective, Slots,
        ToldBy, Use, Victim, unmap_some,
    },
    limits::TRIMMED_AT_ONCE,
    slots::{ExportedSlot, SlotState},
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
    walk::{Numbers, PIECE},
};

impl Mapping for Placed {
    fn lookup(&mut self, lba: Lba) -> Lookup {
        let found = self.mappings.lookup(lba);
        if !self.is_visible(lba, &found) {
            return Lookup::Miss;
        }
        if found != Lookup::Miss && self.known(lba).is_some() && self.design.read(lba, &mut self.decision).is_some() {
            self.execute(None);
        }
        found
    }

    fn peek(&self, lba: Lba) -> Lookup {
        let found = self.mappings.peek(lba);
        if self.is_visible(lba, &found) { found } else { Lookup::Miss }
    }

    fn hit(&self, lba: Lba) -> Option<Hit> {
        let mut hit = self.mappings.hit(lba)?;
        let (slot, number) = self.design.hit(lba)?;
        let held = self.held.get(slot.0 as usize)?;
        hit.used.number = number;
        (held.is_at(&hit.place) && !self.suspended.contains(&lba)).then_some(hit)
    }

    fn used(&mut self, uses: &[Use]) {
        self.mappings.used(uses);
        self.design.used(uses, &mut self.decision);
        debug_assert!(
            self.decision.freed.is_empty() && self.decision.evicted.is_empty(),
            "more than the order changed"
        );
    }

    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        let slot = self.design.slot_of(fingerprint).filter(|_| self.dedup)?;
        let place = self.held.get(slot.0 as usize).filter(|held| held.slot != NONE)?.place();
        self.found = Some((place, *fingerprint));
        Some(place)
    }

    fn map(&mut self, lba: Lba, new: NewMapping, is_dirty: bool) {
        let known = match &new {
            NewMapping::Unique { place, fingerprint } => Some((*place, fingerprint.filter(|_| self.dedup))),
            NewMapping::Duplicate { place } => {
                let found = self.found.filter(|(found, _)| found == place);
                Some((*place, found.map(|(_, fingerprint)| fingerprint)))
            }
            NewMapping::Fragment { place, .. } => Some((*place, None)),
            NewMapping::Zero => None,
        };
        self.mappings.map(lba, new, is_dirty);
        if let Some(restoring) = &mut self.restoring {
            restoring.map(lba, known);
            return;
        }
        match known {
            Some((place, fingerprint)) => {
                self.put(lba, &place, &fingerprint.unwrap_or_else(|| unshared(&place)), is_dirty)
            }
            // Zeroes have no data, and no address in the design.
            None => {
                self.note_lost(lba);
                self.forget(lba);
            }
        }
    }

    fn mark_clean(&mut self, lba: Lba) {
        self.mappings.mark_clean(lba);
        if self.restoring.is_some() {
            return;
        }
        self.design.clean(lba);
        let found = self.mappings.peek(lba);
        if found == Lookup::Miss {
            // A fragment.
            self.note_lost(lba);
            self.forget(lba);
        } else if !self.is_visible(lba, &found) {
            self.note_hidden(lba);
        }
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.mappings.is_dirty(lba)
    }

    fn unmap(&mut self, lba: Lba) -> bool {
        if let Some(restoring) = &mut self.restoring {
            restoring.logged.map(lba, None);
        }
        let outlives = self.outlives(lba);
        self.forget(lba);
        self.mappings.unmap(lba) || outlives
    }

    fn suspend(&mut self, lba: Lba) -> bool {
        let outlives = self.outlives(lba);
        if self.design.knows(lba) {
            if self.suspended.len() as u64 >= self.design.sizes().addresses {
                // Evicted addresses are still among them.
                let Placed { suspended, design, .. } = self;
                suspended.retain(|&lba| design.knows(lba));
            }
            self.suspended.insert(lba);
        }
        self.evicted.remove(&lba);
        self.mappings.unmap(lba) || outlives
    }

    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        self.mappings.is_forgetting_logged(first, count) || self.any_outlives(first, count)
    }

    fn unmap_run(&mut self, first: Lba, count: u64) {
        if let Some(restoring) = &mut self.restoring {
            restoring.logged.forget(first, count);
        }
        self.forget_run(first, count);
        self.mappings.unmap_run(first, count);
    }

    fn unmap_each(&mut self, first: Lba, count: u64, is_leaving: &dyn Fn(Lba) -> bool) -> bool {
        let outlives = self.any_outlives(first, count);
        let mapped = [self.design.in_run(first, count), self.mappings.mapped_in(first, count)].concat();
        unmap_some(self, mapped, is_leaving) || outlives
    }

    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.mappings.mapped_in(first, count)
    }

    fn trim_span(&self, first: Lba, count: u64) -> u64 {
        let count = self.mappings.trim_span(first, count);
        self.design.in_run(first, count).get(TRIMMED_AT_ONCE as usize).map_or(count, |lba| lba.0 - first.0)
    }

    fn has_room(&self, count: u64) -> bool {
        self.mappings.has_room(count)
    }
}

impl Slots for Placed {
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)> {
        self.mappings.open_slot(class)
    }

    fn seal_slot(&mut self, slot: SlotId) {
        self.mappings.seal_slot(slot);
    }

    fn free_slots(&self) -> usize {
        self.mappings.free_slots()
    }

    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        for _ in 0..self.let_go.len() {
            let slot = self.let_go.pop_front()?;
            if self.owner[slot.0 as usize] != NONE {
                // It was noted twice, and has gone and come back since.
                continue;
            }
            match self.mappings.slot(slot) {
                Some((SlotState::Sealed, _)) if !busy(slot) => return Some(self.mappings.take_victim(slot)),
                Some((SlotState::Sealed | SlotState::Open, _)) => self.let_go.push_back(slot),
                _ => {}
            }
        }
        None
    }

    fn spare_victim(&mut self, slot: SlotId) {
        self.mappings.spare_victim(slot);
        self.let_go.push_back(slot);
    }

    fn dirty_in(&self, slot: SlotId) -> Vec<Lba> {
        self.mappings.dirty_in(slot)
    }

    fn evict(&mut self, slot: SlotId) -> Option<u32> {
        self.mappings.evict(slot)
    }

    fn release_slot(&mut self, slot: SlotId) {
        self.mappings.release_slot(slot);
    }

    fn sweep(&mut self) -> usize {
        self.mappings.sweep()
    }

    fn drop_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba> {
        let mut dropped = self.mappings.drop_clean_zeroes(all, max);
        while dropped.len() < max
            && let Some(lba) = self.evicted.pop_first()
        {
            if self.drop_hidden(lba) {
                dropped.push(lba);
            }
        }
        dropped
    }
}

impl Persist for Placed {
    fn export_pieces(&self) -> usize {
        self.mappings.export_pieces()
    }

    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping> {
        let mut mappings = self.mappings.export_mappings(piece);
        // Hidden mappings are no part of the cache: a caller must not learn them without a request.
        mappings.retain(|mapping| self.is_visible(mapping.lba, &mapping.lookup));
        mappings
    }

    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)> {
        self.known_among(0..self.held.len(), &Numbers::default())
    }

    fn begin_export(&mut self) {
        self.lost.checkpoint_begins();
        self.mappings.begin_export();
        self.exported = 0;
        self.held_since = Numbers::default();
    }

    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>> {
        self.mappings.next_slots()
    }

    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        if self.exported >= self.held.len() {
            self.held_since = Numbers::default();
            return None;
        }
        let slots = self.exported..self.held.len().min(self.exported + PIECE);
        self.exported = slots.end;
        Some(self.known_among(slots, &self.held_since))
    }

    fn export_slots(&self) -> Vec<ExportedSlot> {
        self.mappings.export_slots()
    }

    fn begin_restore(&mut self, mappings: u64, fingerprints: u64) {
        self.restoring = Some(RestoringSlots::default());
        self.mappings.begin_restore(mappings, fingerprints);
    }

    fn touch(&self, lba: Lba) {
        self.mappings.touch(lba);
    }

    fn end_restore(&mut self, is_trimmed: &dyn Fn(Lba) -> bool) {
        self.mappings.end_restore(is_trimmed);
        if let Some(restoring) = self.restoring.take() {
            self.put_restored(restoring, is_trimmed);
            self.entries_changed = 0;
        }
    }

    fn export_is_durable(&mut self) {
        self.lost.checkpoint_is_durable();
    }

    fn restore_slot(
        &mut self,
        slot: SlotId,
        generation: u32,
        class: Option<StreamClass>,
        ended: &mut dyn FnMut(Lba),
    ) -> bool {
        self.mappings.restore_slot(slot, generation, class, ended)
    }

    fn restore_freed(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba)) {
        self.mappings.restore_freed(slot, generation, ended);
    }

    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place, _: ToldBy) {
        if let Some(restoring) = self.restoring.as_mut().filter(|_| self.dedup) {
            restoring.told.insert(place.slot, SlotContent::new(place, fingerprint));
        }
    }
}

impl Design for Placed {
    fn stats(&self) -> DesignStats {
        let mut stats = self.mappings.stats();
        let design = self.design.stats();
        // Addresses that are gone with their slot cannot be told apart.
        stats.mapped_chunks = stats.mapped_chunks.saturating_sub(self.evicted.len() as u64);
        stats.lba_index_ram_bytes += design.ram_bytes + self.decision.ram_bytes() as u64;
        if self.design.looks_at_content() {
            stats.fp_index_entries = design.live_slots + design.stale_slots;
        }
        stats.slot_table_ram_bytes += (self.held.capacity() * size_of::<SlotContent>()) as u64
            + (self.owner.capacity() * size_of::<u32>()) as u64
            + (self.let_go.capacity() * size_of::<SlotId>() + self.lost.ram_bytes() + self.held_since.ram_bytes())
                as u64
            + (self.evicted.len() + self.suspended.len()) as u64 * SETS_BYTES_MAX;
        stats.ghosts = design.ghosts;
        stats.metadata_entries_changed = self.entries_changed;
        stats
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }

    fn memory_mut(&mut self) -> Option<&mut dyn Memory> {
        Some(self)
    }

    fn selective_mut(&mut self) -> Option<&mut dyn Selective> {
        if self.design.is_selective() { Some(self) } else { None }
    }
}
