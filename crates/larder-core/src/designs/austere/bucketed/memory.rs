//! A metadata region in RAM, for those who drive a design without a flash.
//!
//! Invariants: its room is taken when it is made, so that what a design allocates can be told apart.
//!
//! What it does not do: keep anything, or count; a real region costs a read of flash for each answer, and a write for each change.

use crate::region::RegionEntry;
use crate::{
    design::{Design, Question},
    types::SlotId,
};
use std::sync::Arc;

/// See the module.
pub struct MemoryRegion {
    slots: Vec<Option<RegionEntry>>,
}

impl MemoryRegion {
    /// Of so many slots; none for a design that asks nothing.
    pub fn new(slots: usize) -> MemoryRegion {
        MemoryRegion { slots: vec![None; slots] }
    }

    /// Tells the design what it has to know before it can answer `question`.
    pub fn inform(&self, design: &mut dyn Design, question: Question<'_>) {
        while let Some(slot) = design.unread(question) {
            design.tell(slot, self.get(slot).map(Arc::new));
        }
    }

    /// Writes what the design has changed.
    pub fn write(&mut self, design: &mut dyn Design) {
        while let Some(entry) = design.next_changed_entry() {
            if let Some(slot) = self.slots.get_mut(entry.place.slot.0 as usize) {
                *slot = Some((*entry).clone());
            }
            design.entry_written(&entry);
        }
    }

    /// What it has of `slot`.
    pub fn get(&self, slot: SlotId) -> Option<RegionEntry> {
        self.slots.get(slot.0 as usize)?.clone()
    }
}
