//! The parts of Nitro's index that survive a restart.
//!
//! Invariants: those of [`Nitro`].
//!
//! It does not know their form on flash.

use super::Nitro;
use crate::{
    design::{ExportedMapping, Persist, ToldBy},
    lba_index::LbaEntry,
    slots::{ExportedSlot, Generations},
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};

impl Persist for Nitro {
    fn export_pieces(&self) -> usize {
        self.index.shard_count()
    }

    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping> {
        let live = |entry: &LbaEntry| {
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

    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place, told_by: ToldBy) {
        if self.slots.generation_for_new(place.slot) == Some(place.generation) {
            let handle = match told_by {
                ToldBy::Checkpoint if self.restoring => self.fingerprints.insert_later(fingerprint, place),
                // A repetition makes the content recent, without a back pointer.
                _ => self.fingerprints.restore(fingerprint, place),
            };
            if let Some(handle) = handle {
                self.slots.remember_fingerprint(place.slot, handle);
            }
        }
        if !self.restoring {
            self.fingerprints.merge_waiting();
        }
    }
}
