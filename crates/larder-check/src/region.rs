//! A metadata region that no engine serves, read for checks, repairs and people.
//!
//! Invariants: only [`write_unlisted`] writes. Bytes that cannot be read, or are no metadata slot,
//! count as absent.
//!
//! It does not judge a missing slot.

use crate::verify::window::{PIECE_BYTES, Window};
use larder_core::{
    Decider, Fingerprint, Lba, Lookup, Place, SlotId,
    design::ExportedMapping,
    region::{RegionEntry, RunMetadata},
};
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_engine::{
    EngineError,
    offline::{decode_metadata_slot, encode_metadata_slot},
};
use larder_format::{Superblock, metadata_slot::METADATA_SLOT_BYTES};

/// A record that a metadata slot describes.
pub(crate) struct StoredRun {
    /// Its first slot.
    pub slot: SlotId,
    /// Number of its slots.
    pub slots: u32,
    /// The metadata slot, if it can be read.
    pub entry: Option<RegionEntry>,
}

impl StoredRun {
    /// Returns the metadata slot, if the design takes it for the run's content, and it is a chunk.
    /// (A fragment's slot lists no address.)
    pub fn known<'a>(&'a self, design: &Decider) -> Option<&'a RegionEntry> {
        let is_chunk = |entry: &&RegionEntry| entry.metadata.lbas().next().is_some();
        let entry = self.entry.as_ref().filter(is_chunk)?;
        design.is_found_in(self.slot, entry.metadata.fingerprint()).then_some(entry)
    }
}

/// Returns all records of a design that metadata slots describe, in the order of the flash.
pub(crate) async fn stored_runs(flash: &dyn BlockDevice, superblock: &Superblock, design: &Decider) -> Vec<StoredRun> {
    let mut region = region_window(flash, superblock);
    let mut runs = Vec::new();
    for (slot, slots) in design.stored_runs() {
        let entry = entry_at(&mut region, superblock, slot).await;
        runs.push(StoredRun { slot, slots, entry });
    }
    runs
}

/// Clears the metadata slot of the record at `place`: it lists no address and no content to find.
pub(crate) async fn write_unlisted(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    place: &Place,
) -> Result<(), EngineError> {
    let Some(at) = superblock.layout.metadata_slot_offset(place.slot.0) else { return Ok(()) };
    let block = at - at % PIECE_BYTES as u64;
    let mut metadata = RunMetadata::EMPTY;
    metadata.reset_unlisted(Fingerprint([0; 16]), place.stored_len);
    let entry = RegionEntry { place: *place, metadata };
    let mut bytes = region_window(flash, superblock).bytes(block, PIECE_BYTES).await.to_vec();
    let skip = (at - block) as usize;
    if let Some(slot) = bytes.get_mut(skip..skip + METADATA_SLOT_BYTES) {
        slot.copy_from_slice(&encode_metadata_slot(&entry, superblock.flash_tag(), 0));
    }
    flash.write(block, IoBuf::copy_of(&bytes).freeze(), WriteFlags::default()).await?;
    Ok(())
}

/// Tells `design` the uses of all slots, if there are metadata slots. Returns whether it did.
///
/// A metadata slot counts whether or not its record is still stored. No record may get a generation
/// that an earlier record had.
pub(crate) async fn restore_uses(flash: &dyn BlockDevice, superblock: &Superblock, design: &mut Decider) -> bool {
    if superblock.layout.metadata_slot_offset(0).is_none() {
        return false;
    }
    let mut region = region_window(flash, superblock);
    for slot in (0..superblock.layout.slot_count).map(SlotId) {
        if let Some(entry) = entry_at(&mut region, superblock, slot).await {
            design.restore_slot(slot, entry.place.generation, None);
        }
    }
    true
}

/// Returns the clean mappings that a lookup of each address would confirm by a metadata slot.
pub(crate) fn clean_mappings<'a>(
    runs: &'a [StoredRun],
    design: &'a Decider,
) -> impl Iterator<Item = ExportedMapping> + 'a {
    let known = runs.iter().filter_map(|run| run.known(design));
    known.flat_map(move |entry| {
        let place: Place = entry.place;
        let fingerprint = *entry.metadata.fingerprint();
        let is_mapped = move |lba: &Lba| design.dirty_seq(*lba).is_none() && design.maps_to(*lba, &place, &fingerprint);
        let mapping =
            move |lba| ExportedMapping { lba, lookup: Lookup::Chunk { place, duplicate: false }, dirty: false };
        entry.metadata.lbas().filter(is_mapped).map(mapping)
    })
}

fn region_window<'a>(flash: &'a dyn BlockDevice, superblock: &Superblock) -> Window<'a> {
    let layout = &superblock.layout;
    Window::new(flash, layout.region_offset, layout.region_offset + layout.region_bytes())
}

async fn entry_at(region: &mut Window<'_>, superblock: &Superblock, slot: SlotId) -> Option<RegionEntry> {
    let at = superblock.layout.metadata_slot_offset(slot.0)?;
    // A window reads whole blocks of a device.
    let block = at - at % PIECE_BYTES as u64;
    let skip = (at - block) as usize;
    let bytes = region.bytes(block, PIECE_BYTES).await;
    decode_metadata_slot(bytes.get(skip..skip + METADATA_SLOT_BYTES)?, superblock.flash_tag(), slot)
}
