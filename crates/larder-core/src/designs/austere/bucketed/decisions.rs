//! The decisions of an AustereCache, in the words of an engine.
//!
//! Invariants: those of [`Bucketed`].
//!
//! It leaves the agreement of indices, entries and exact data to `bucketed.rs`.

use super::{
    Bucketed, SUSPENDED_MAX, Wish,
    entries::{EntryState, Until},
    exact::PIECES,
};
use crate::{
    design::{
        Design, DesignStats, ExportedMapping, Hit, Lookup, Mapping, NewMapping, Persist, Provisional, Slots, ToldBy,
        Use, Victim,
    },
    limits::TRIMMED_AT_ONCE,
    slots::ExportedSlot,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};

impl Mapping for Bucketed {
    fn lookup(&mut self, lba: Lba) -> Lookup {
        let found = self.find(lba);
        if let Some(run) = self.run_of(lba) {
            if found != Lookup::Miss {
                self.indices.core.touch(lba);
            }
            self.entries.use_up(SlotId(run.first));
        }
        found
    }

    fn peek(&self, lba: Lba) -> Lookup {
        self.find(lba)
    }

    fn hit(&self, lba: Lba) -> Option<Hit> {
        let entry = self.run_of(lba).map(|run| self.entries.state(SlotId(run.first)));
        match self.exact.get(lba) {
            // A lookup would use up the entry that was read for it: the next one has to read again.
            Lookup::Chunk { place, .. } => (entry != Some(EntryState::Fresh)).then(|| hit_at(lba, place)),
            Lookup::Miss if entry == Some(EntryState::Unwritten) => match self.find(lba) {
                Lookup::Chunk { place, .. } => Some(hit_at(lba, place)),
                _ => None,
            },
            _ => None,
        }
    }

    fn used(&mut self, uses: &[Use]) {
        for hit in uses {
            let Some(run) = self.run_of(hit.lba) else { continue };
            self.indices.core.touch(hit.lba);
            let slot = SlotId(run.first);
            // A fresh entry was read for another lookup.
            if self.entries.state(slot) == EntryState::Unwritten {
                self.entries.use_up(slot);
            }
        }
    }

    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        let entry = self.run_with(fingerprint).and_then(|run| self.entry_of(run))?;
        (entry.metadata.fingerprint() == fingerprint).then_some(entry.place)
    }

    fn map(&mut self, lba: Lba, new: NewMapping, is_dirty: bool) {
        drop(self.map_as(lba, new, is_dirty, Until::Told));
    }

    fn mark_clean(&mut self, lba: Lba) {
        let found = self.exact.get(lba);
        self.exact.remove(lba);
        if let Lookup::Fragment { place, .. } | Lookup::Chunk { place, .. } = found
            && self.exact.in_slot(place.slot).next().is_none()
        {
            self.stuck.remove(&place.slot);
        }
        if matches!(found, Lookup::Fragment { .. }) {
            // A restart skips the log's mark if the checkpoint has the fragment clean already.
            self.lose_in_core(lba);
        }
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.exact.has(lba)
    }

    fn unmap(&mut self, lba: Lba) -> bool {
        self.forget_one(lba)
    }

    fn unmap_each(&mut self, first: Lba, count: u64, is_leaving: &dyn Fn(Lba) -> bool) -> bool {
        self.forget_each(first, count, is_leaving)
    }

    fn suspend(&mut self, lba: Lba) -> bool {
        self.count();
        if self.suspended.len() >= SUSPENDED_MAX {
            // Their insertions were dropped. The log has forgotten each of them that had an entry.
            let Bucketed { suspended, indices, .. } = self;
            suspended.drain().for_each(|key| indices.core.forget_key(key));
        }
        let was_exact = self.exact.remove(lba);
        self.entries.drop_held(lba);
        self.suspended.insert(self.indices.core.key_of_lba(lba));
        was_exact || self.indices.may_come_back(lba)
    }

    fn unmap_run(&mut self, first: Lba, count: u64) {
        self.forget_run(first, count);
    }

    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.exact.kept_in(first, count)
    }

    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        self.has_any(first, count)
    }

    fn trim_span(&self, _first: Lba, count: u64) -> u64 {
        // A trim searches the indices for each address.
        count.min(TRIMMED_AT_ONCE)
    }

    fn has_room(&self, count: u64) -> bool {
        self.exact.chunks().saturating_add(count) <= self.exact_max
    }
}

impl Slots for Bucketed {
    fn open_slot(&mut self, _class: StreamClass) -> Option<(SlotId, u32)> {
        None
    }

    /// Counts no free slot while a record waits: a full cache stays full, as in the paper.
    fn free_slots(&self) -> usize {
        if self.wishes.is_empty() { usize::MAX } else { 0 }
    }

    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        self.next_victim(busy)
    }

    fn spare_victim(&mut self, slot: SlotId) {
        self.leaving.remove(&slot);
        self.stuck.insert(slot);
    }

    fn dirty_in(&self, slot: SlotId) -> Vec<Lba> {
        self.exact.in_slot(slot).collect()
    }

    fn evict(&mut self, slot: SlotId) -> Option<u32> {
        if self.exact.in_slot(slot).next().is_some() {
            return None;
        }
        self.retired.insert(slot);
        self.forget_what_was_in(slot);
        Some(self.generation)
    }

    fn release_slot(&mut self, slot: SlotId) {
        self.retired.remove(&slot);
        self.leaving.remove(&slot);
        if let Some(run) = self.indices.core.run_from(slot.0) {
            self.indices.core.evict(run);
        }
        // A wish with room, and without a victim that is left, need not wait.
        let has_room = |wish: &Wish| wish.victims.is_empty() && self.victims_of(wish).is_none();
        let done: Vec<Lba> = self.wishes.iter().filter(|(_, wish)| has_room(wish)).map(|(lba, _)| *lba).collect();
        done.iter().for_each(|lba| drop(self.wishes.remove(lba)));
    }
}

impl Persist for Bucketed {
    fn export_pieces(&self) -> usize {
        PIECES as usize
    }

    /// Returns the exact data; the pages have the rest.
    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping> {
        self.exact.export(piece as u64)
    }

    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)> {
        Vec::new()
    }

    fn export_slots(&self) -> Vec<ExportedSlot> {
        Vec::new()
    }

    fn begin_export(&mut self) {
        self.indices.lost.lock().checkpoint_begins();
    }

    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>> {
        None
    }

    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        None
    }

    fn export_is_durable(&mut self) {
        self.indices.lost.lock().checkpoint_is_durable();
    }

    fn begin_restore(&mut self, _mappings: u64, _fingerprints: u64) {
        self.is_restoring = true;
    }

    fn end_restore(&mut self, _is_trimmed: &dyn Fn(Lba) -> bool) {
        self.count();
        self.reserve_exact();
        self.is_restoring = false;
        self.untold = None;
    }

    fn restore_slot(
        &mut self,
        slot: SlotId,
        generation: u32,
        _class: Option<StreamClass>,
        _ended: &mut dyn FnMut(Lba),
    ) -> bool {
        let is_there = (slot.0 as usize) < self.indices.core.slot_count();
        if is_there {
            self.generation = self.generation.max(generation.wrapping_add(1));
        }
        is_there
    }

    fn restore_freed(&mut self, slot: SlotId, generation: u32, _ended: &mut dyn FnMut(Lba)) {
        self.count();
        self.generation = self.generation.max(generation);
        if let Some(run) = self.indices.core.run_from(slot.0) {
            self.indices.core.evict(run);
        }
    }

    /// Restores a fingerprint of the log, or of the metadata region; a checkpoint has none.
    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place, told_by: ToldBy) {
        let lba = match told_by {
            ToldBy::Checkpoint => None,
            ToldBy::Log => self.untold.take(),
        };
        self.restore(lba, fingerprint, place);
    }
}

impl Design for Bucketed {
    fn stats(&self) -> DesignStats {
        self.count_all()
    }

    fn provisional(&self) -> Option<&dyn Provisional> {
        Some(self)
    }

    fn provisional_mut(&mut self) -> Option<&mut dyn Provisional> {
        Some(self)
    }
}

/// Returns a chunk that was found at `place`.
pub(super) fn hit_at(lba: Lba, place: Place) -> Hit {
    Hit { place, used: Use { lba, slot: place.slot, number: 0 } }
}
