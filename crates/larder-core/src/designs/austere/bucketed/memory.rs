//! A metadata region in RAM, for callers that drive a design without a flash.
//!
//! Invariants: it allocates all its room at its creation, apart from the design's allocations.
//!
//! It does not persist or count: a real region costs a read of flash for each answer, and a write
//! for each change.

use crate::region::RegionEntry;
use crate::{
    Decider,
    design::{Design, Question},
    types::SlotId,
};
use std::sync::Arc;

/// See the module.
pub struct MemoryRegion {
    slots: Vec<Option<RegionEntry>>,
}

impl MemoryRegion {
    /// Creates a region of so many slots; none for a design without questions.
    pub fn new(slots: usize) -> MemoryRegion {
        MemoryRegion { slots: vec![None; slots] }
    }

    /// Tells the design all metadata that `question` needs.
    pub fn inform<D: Design + ?Sized>(&self, design: &mut Decider<D>, question: Question<'_>) {
        while let Some(slot) = design.unread(question) {
            design.tell(slot, self.get(slot).map(Arc::new));
        }
    }

    /// Writes the changed entries of the design.
    pub fn write<D: Design + ?Sized>(&mut self, design: &mut Decider<D>) {
        while let Some(entry) = design.next_changed_entry() {
            if let Some(slot) = self.slots.get_mut(entry.place.slot.0 as usize) {
                *slot = Some((*entry).clone());
            }
            design.entry_written(&entry);
        }
    }

    /// Returns the entry of `slot`.
    pub fn get(&self, slot: SlotId) -> Option<RegionEntry> {
        self.slots.get(slot.0 as usize)?.clone()
    }
}
