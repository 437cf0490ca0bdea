//! The parts of Nitro's index that survive a restart.
//!
//! Invariants: those of [`Nitro`].
//!
//! It does not know their form on flash.

use super::Nitro;
use crate::{
    design::{ExportedMapping, Persist},
    lba_index::Entry,
    slots::ExportedSlot,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};

impl Persist for Nitro {
    fn export_pieces(&self) -> usize {
        self.index.shard_count()
    }

    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping> {
        let live = |entry: &Entry| {
            Some(ExportedMapping { lba: entry.lba(), lookup: self.interpret(entry)?, dirty: entry.dirty() })
        };
        self.index.shard(piece).filter_map(live).collect()
    }

    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)> {
        self.known_oldest_first()
    }

    fn begin_export(&mut self) {
        self.begin_pieces();
    }

    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>> {
        self.slots.next_exported()
    }

    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        self.next_known()
    }

    fn export_slots(&self) -> Vec<ExportedSlot> {
        self.slots.in_order()
    }

    fn begin_restore(&mut self, mappings: u64, fingerprints: u64) {
        self.restoring = true;
        self.index.reserve(mappings.min(self.config.mappings_max));
        self.fingerprints.reserve(fingerprints);
    }

    fn touch(&self, lba: Lba) {
        self.index.touch(lba);
    }

    fn end_restore(&mut self, _is_trimmed: &dyn Fn(Lba) -> bool) {
        self.restoring = false;
    }

    fn restore_slot(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba)) -> bool {
        if !self.slots.can_be_at(slot, generation) {
            return false;
        }
        self.settle_restored(slot, generation, ended);
        self.slots.restore(slot, generation)
    }

    fn restore_class(&mut self, slot: SlotId, class: StreamClass) {
        self.slots.restore_class(slot, class);
    }

    fn restore_freed(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba)) {
        if self.slots.can_be_at(slot, generation) {
            self.settle_restored(slot, generation.wrapping_add(1), ended);
            self.slots.restore_freed(slot, generation);
        }
    }

    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place) {
        if !self.restoring {
            return self.restore_duplicate(fingerprint, place);
        }
        if self.slots.generation_for_new(place.slot) == Some(place.generation)
            && let Some(handle) = self.fingerprints.insert_later(fingerprint, place)
        {
            self.slots.remember_fingerprint(place.slot, handle);
        }
    }

    fn restore_duplicate(&mut self, fingerprint: &Fingerprint, place: &Place) {
        // A log often names the same record: a repetition makes it recent, without a back pointer.
        if self.slots.generation_for_new(place.slot) == Some(place.generation)
            && let Some(handle) = self.fingerprints.restore(fingerprint, place)
        {
            self.slots.remember_fingerprint(place.slot, handle);
        }
        if !self.restoring {
            self.fingerprints.settle();
        }
    }
}
