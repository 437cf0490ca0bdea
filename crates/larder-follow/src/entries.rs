//! The metadata slots of a bucket store with a followed log: contents, and writes under way.
//!
//! Invariants: a slot holds the last entry taken among those whose write is over.
//!
//! It does not remember entries for the design, which learns of each read.

use larder_core::{SlotId, region::RegionEntry};
use std::{collections::HashMap, sync::Arc};

/// See the module.
#[derive(Default)]
pub struct FollowedRegion {
    slots: HashMap<SlotId, Arc<RegionEntry>>,
    /// By the number of the write.
    taken: HashMap<u64, Arc<RegionEntry>>,
}

impl FollowedRegion {
    /// Returns the content of the metadata slot of `slot`.
    pub fn read(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.slots.get(&slot).cloned()
    }

    /// Begins a write, if there is an entry.
    pub fn take(&mut self, number: u64, entry: Option<Arc<RegionEntry>>) {
        self.taken.extend(entry.map(|entry| (number, entry)));
    }

    /// Ends a write, and returns its entry, if there was one.
    pub fn written(&mut self, number: u64) -> Option<Arc<RegionEntry>> {
        let entry = self.taken.remove(&number)?;
        self.slots.insert(entry.place.slot, entry.clone());
        Some(entry)
    }
}
