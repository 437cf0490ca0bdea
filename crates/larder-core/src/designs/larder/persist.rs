//! The parts of [`Larder`] that survive a restart: mappings, slots and known contents.
//!
//! Invariants: those of [`Persist`]. After a restart no address has a belief, for an overwrite of
//! one is not logged.
//!
//! It leaves the form of what the cache has learned to [`history`](super::history).

use super::{
    Larder,
    addresses::{Address, Kind},
    recalling::Recalling,
};
use crate::{
    design::{ExportedMapping, Lookup, Mapping, Persist, Slots, ToldBy},
    history::Pages,
    slots::{ExportedSlot, Generations, SlotTable},
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};

impl Persist for Larder {
    fn begin_export(&mut self) {
        self.slots.begin_export();
        self.contents.begin_export();
        self.checkpoint_room.begin();
    }

    fn export_is_durable(&mut self) {
        self.checkpoint_room.end();
    }

    fn export_pieces(&self) -> usize {
        self.index.pieces()
    }

    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping> {
        let exported = |entry: Address| {
            let lookup = self.interpret(&entry)?;
            let is_left_out = self.stays_transient(&entry) || self.is_recalled(&entry);
            if self.checkpoint_room.is_exporting() && is_left_out {
                return None;
            }
            let is_needed = entry.is_dirty || matches!(lookup, Lookup::Fragment { .. });
            let is_taken = is_needed || self.checkpoint_room.takes();
            is_taken.then_some(ExportedMapping { lba: entry.lba, lookup, dirty: entry.is_dirty })
        };
        self.index.piece(piece).filter_map(exported).collect()
    }

    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>> {
        self.slots.next_exported()
    }

    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        // The history names their records.
        None
    }

    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)> {
        self.contents.all_known().filter(|(_, place)| self.takes_references(place)).collect()
    }

    fn export_slots(&self) -> Vec<ExportedSlot> {
        self.slots.in_order()
    }

    fn begin_restore(&mut self, _mappings: u64, fingerprints: u64) {
        self.restoring = true;
        self.pages = Some(Pages::default());
        self.contents.reserve(fingerprints.min(self.config.mappings_max));
    }

    fn touch(&self, lba: Lba) {
        self.index.touch(lba);
    }

    fn end_restore(&mut self, _is_trimmed: &dyn Fn(Lba) -> bool) {
        for piece in 0..self.index.pieces() {
            let beliefs = self.index.piece(piece).filter(|entry| !Self::is_live(&self.contents, entry));
            let beliefs: Vec<Lba> = beliefs.map(|entry| entry.lba).collect();
            beliefs.into_iter().for_each(|lba| _ = self.unmap(lba));
        }
        (0..self.slots.count()).for_each(|slot| self.contents.seal(SlotId(slot)));
        let recalled = self.recalling.take().map(Recalling::into_bytes);
        if let Some(bytes) = recalled.or_else(|| self.pages.take().map(|pages| pages.bytes())) {
            self.take_knowledge(&bytes);
        }
        self.restoring = false;
    }

    fn restore_slot(
        &mut self,
        slot: SlotId,
        generation: u32,
        class: Option<StreamClass>,
        ended: &mut dyn FnMut(Lba),
    ) -> bool {
        self.restore_generation(slot, generation, class, ended)
    }

    fn restore_freed(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba)) {
        self.restore_freed_generation(slot, generation, ended);
    }

    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place, _told_by: ToldBy) {
        if self.takes_references(place) {
            let (id, _) = self.stored_at(place, Some(fingerprint), None);
            self.contents.drop_if_useless(id);
        }
    }
}

impl Larder {
    /// Returns whether the history tells a mapping.
    ///
    /// It is a clean one of the address for which its record was stored.
    pub(super) fn is_recalled(&self, entry: &Address) -> bool {
        let is_clean_chunk = entry.kind == Kind::Chunk && !entry.is_dirty && !self.stays_transient(entry);
        let record = entry.content().filter(|_| is_clean_chunk).and_then(|id| self.contents.record(id));
        record.is_some_and(|record| record.is_of(entry.lba))
    }

    fn takes_references(&self, place: &Place) -> bool {
        self.slots.generation_for_new(place.slot) == Some(place.generation)
    }
}

impl Generations for Larder {
    fn slots_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }

    fn end_generation(&mut self, slot: SlotId, ended: &mut dyn FnMut(Lba)) {
        for lba in self.dirty_in(slot) {
            self.unmap(lba);
            ended(lba);
        }
        self.forget_fragments(slot);
        self.contents.empty(slot);
        let (_, _, refs, _) = self.slots.describe(slot);
        self.live -= u64::from(refs);
    }
}
