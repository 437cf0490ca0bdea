//! The metadata slots of a bucket store whose log is followed: what lies there, and what is being written.
//!
//! Invariants: a slot holds what was taken last of those whose write is over.
//!
//! What it does not do: remember anything for the design, which is told of what is read.

use larder_core::{SlotId, region::RegionEntry};
use std::{collections::HashMap, sync::Arc};

/// See the module.
#[derive(Default)]
pub struct Region {
    slots: HashMap<SlotId, Arc<RegionEntry>>,
    /// By the number of the write.
    taken: HashMap<u64, Arc<RegionEntry>>,
}

impl Region {
    /// What the metadata slot of `slot` holds.
    pub fn read(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.slots.get(&slot).cloned()
    }

    /// A write begins, if there is anything to write.
    pub fn take(&mut self, number: u64, entry: Option<Arc<RegionEntry>>) {
        self.taken.extend(entry.map(|entry| (number, entry)));
    }

    /// It is over: what was written, if anything was.
    pub fn written(&mut self, number: u64) -> Option<Arc<RegionEntry>> {
        let entry = self.taken.remove(&number)?;
        self.slots.insert(entry.place.slot, entry.clone());
        Some(entry)
    }
}
