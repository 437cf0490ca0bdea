//! The parts of CD-ARC that survive a restart: those of its WEUs, and its lists.
//!
//! Invariants: those of [`CdArc`].
//!
//! It does not know their form on flash.

use super::{CdArc, RestoringLists};
use crate::{
    design::{ExportedMapping, Persist, ToldBy},
    slots::ExportedSlot,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};

impl Persist for CdArc {
    fn export_pieces(&self) -> usize {
        self.nitro.export_pieces()
    }

    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping> {
        self.nitro.export_mappings(piece)
    }

    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)> {
        self.nitro.export_fingerprints()
    }

    fn begin_export(&mut self) {
        self.nitro.begin_export();
    }

    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>> {
        self.nitro.next_slots()
    }

    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        self.nitro.next_fingerprints()
    }

    fn export_slots(&self) -> Vec<ExportedSlot> {
        self.nitro.export_slots()
    }

    fn begin_restore(&mut self, mappings: u64, fingerprints: u64) {
        self.restoring = Some(RestoringLists::default());
        self.nitro.begin_restore(mappings, fingerprints);
    }

    fn touch(&self, lba: Lba) {
        self.nitro.touch(lba);
    }

    fn end_restore(&mut self, is_trimmed: &dyn Fn(Lba) -> bool) {
        self.nitro.end_restore(is_trimmed);
        let restoring = self.restoring.take().unwrap_or_default();
        self.put_restored(restoring, is_trimmed);
    }

    fn restore_slot(
        &mut self,
        slot: SlotId,
        generation: u32,
        class: Option<StreamClass>,
        ended: &mut dyn FnMut(Lba),
    ) -> bool {
        let is_restored = self.nitro.restore_slot(slot, generation, class, ended);
        self.note_generation(slot);
        is_restored
    }

    fn restore_freed(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba)) {
        self.nitro.restore_freed(slot, generation, ended);
        self.note_generation(slot);
    }

    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place, told_by: ToldBy) {
        self.nitro.restore_fingerprint(fingerprint, place, told_by);
    }
}
