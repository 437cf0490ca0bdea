//! The contents of the metadata region of a store of buckets under replay, in little RAM.
//!
//! Invariant: a slot comes back as it was written.
//!
//! It does not count reads and writes.

use hashbrown::{HashMap, HashSet};
use larder_core::{
    Fingerprint, Lba, Place, SlotId,
    region::{RegionEntry, RunMetadata},
};
use std::sync::Arc;

/// A metadata slot, with no room for more addresses than it has.
struct StoredMetadata {
    place: Place,
    fingerprint: Fingerprint,
    oldest: u16,
    lbas: Box<[u64]>,
}

/// The contents of metadata slots.
#[derive(Default)]
pub struct MetadataRegion {
    slots: HashMap<SlotId, StoredMetadata>,
    /// Numbers of the device's blocks that were written.
    written: HashSet<u64>,
}

impl MetadataRegion {
    /// Returns the content of a slot.
    pub fn read(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        let StoredMetadata { place, fingerprint, oldest, lbas } = self.slots.get(&slot)?;
        let metadata = RunMetadata::from_parts(*fingerprint, place.stored_len, lbas, (*oldest).into())?;
        Some(Arc::new(RegionEntry { place: *place, metadata }))
    }

    /// Writes a slot.
    pub fn write(&mut self, entry: &RegionEntry) {
        let (lbas, oldest) = entry.metadata.parts();
        let fingerprint = *entry.metadata.fingerprint();
        let kept = StoredMetadata { place: entry.place, fingerprint, oldest: oldest as u16, lbas: lbas.into() };
        self.slots.insert(entry.place.slot, kept);
    }

    /// Notes a write of a block of the device, and returns whether it was written before.
    pub fn write_block(&mut self, block: u64) -> bool {
        !self.written.insert(block)
    }

    /// Forgets a slot that nothing will read again.
    pub fn forget(&mut self, slot: SlotId) {
        self.slots.remove(&slot);
    }

    /// Returns each slot with its content's fingerprint and its addresses.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &Place, &Fingerprint, impl Iterator<Item = Lba>)> {
        self.slots
            .iter()
            .map(|(&slot, kept)| (slot, &kept.place, &kept.fingerprint, kept.lbas.iter().map(|&lba| Lba(lba))))
    }
}
