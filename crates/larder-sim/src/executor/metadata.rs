//! Reads and writes of the metadata region of a store of buckets under replay.
//!
//! Each read or write of a metadata slot takes the block of the device around it. A block of
//! several slots is read before one of them is written, as in the engine. The first write of a
//! block reads nothing: the flash has nothing there.
//!
//! Invariants: a changed slot is written at once, and the design learns of it. A store without a
//! region never comes here.
//!
//! It does not decide; the design names the slots.

use super::Executor;
use crate::devices::{DeviceAction, Waits};
use larder_core::{
    Lba, Place, SlotId,
    design::Question,
    region::{METADATA_SLOT_BYTES, RegionEntry},
};
use std::sync::Arc;

impl Executor {
    /// Returns the place of a hit that needs a metadata slot, after a read of it, and counts a use.
    ///
    /// If the slot does not confirm it, the design is told, as for any other question.
    pub(super) fn confirmed_hit(&mut self, lba: Lba) -> Option<Place> {
        let slot = self.design.unread(Question::Address(lba))?;
        let entry = self.read_metadata(slot);
        let hit = entry.as_ref().and_then(|entry| self.design.hit_with(lba, slot, entry));
        match hit {
            Some(hit) => self.design.used(&[hit.used]),
            None => self.design.tell(slot, entry),
        }
        hit.map(|hit| hit.place)
    }

    /// Reads the metadata slots that the design needs before it can answer `question`.
    pub(super) fn inform(&mut self, question: Question<'_>) {
        while let Some(slot) = self.design.unread(question) {
            let entry = self.read_metadata(slot);
            self.design.tell(slot, entry);
        }
    }

    fn read_metadata(&mut self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.count_metadata(DeviceAction::Read, slot);
        self.region.read(slot)
    }

    /// Writes the metadata slots that the last decision changed.
    pub(super) fn write_changed_metadata(&mut self) {
        while let Some(changed) = self.design.next_changed_entry() {
            let slot = changed.place.slot;
            let Some(entry) = self.design.entry_to_write(slot) else { continue };
            let waits = self.asked.waits_for(Waits::Nobody);
            let slots = self.options.store.metadata_block_bytes / u64::from(METADATA_SLOT_BYTES);
            if self.region.write_block(u64::from(slot.0) / slots.max(1)) && slots > 1 {
                self.count_metadata(DeviceAction::Read, slot);
            }
            self.count_metadata(DeviceAction::Write, slot);
            self.asked.for_whom(waits);
            self.region.write(&entry);
            self.design.entry_written(&entry);
        }
    }

    fn count_metadata(&mut self, action: DeviceAction, slot: SlotId) {
        let bytes = self.options.store.metadata_block_bytes;
        match action {
            DeviceAction::Write => self.traffic.flash_metadata_bytes_written += bytes,
            _ => self.traffic.flash_metadata_bytes_read += bytes,
        }
        self.asked.metadata_block(action, slot);
    }

    /// Lets the metadata slot of `lba` name it: log or origin have its content.
    pub(super) fn settle(&mut self, lba: Lba) {
        if self.design.held_at(lba).is_some() {
            self.design.settle(lba, true);
            self.write_changed_metadata();
        }
    }
}
