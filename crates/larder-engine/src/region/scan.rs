//! A metadata region that no engine serves, read for checks, repairs and people; and metadata slots
//! as bytes.
//!
//! Invariants: only [`write_unlisted`] writes. Bytes that cannot be read, or are no metadata slot,
//! count as absent.
//!
//! It does not judge a missing slot.

use crate::{
    error::EngineError,
    verify::window::{PIECE_BYTES, Window},
};
use larder_core::{
    Decider, Fingerprint, Lba, Lookup, Place, SlotId,
    design::ExportedMapping,
    region::{self, RegionEntry},
};
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_format::{
    Encoding, Superblock,
    metadata_slot::{LbaList, METADATA_SLOT_BYTES, MetadataSlot},
};

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

/// Returns the metadata slot in `bytes`, if it belongs to `slot` of this flash.
pub(crate) fn decode(bytes: &[u8], flash_tag: u64, slot: SlotId) -> Option<RegionEntry> {
    let found = MetadataSlot::decode(bytes, flash_tag, slot.0).ok()?;
    let fingerprint = Fingerprint(found.fingerprint);
    let (lbas, oldest) = (found.lbas.as_slice(), found.lbas.oldest());
    let metadata = region::MetadataSlot::from_parts(fingerprint, found.stored_len, lbas, oldest)?;
    Some(RegionEntry { place: crate::places::from_format(&found.place()), metadata })
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
    let mut metadata = region::MetadataSlot::EMPTY;
    metadata.reset_unlisted(Fingerprint([0; 16]), place.stored_len);
    let entry = RegionEntry { place: *place, metadata };
    let mut bytes = region_window(flash, superblock).bytes(block, PIECE_BYTES).await.to_vec();
    let skip = (at - block) as usize;
    if let Some(slot) = bytes.get_mut(skip..skip + METADATA_SLOT_BYTES) {
        slot.copy_from_slice(&encode(&entry, superblock.flash_tag(), 0));
    }
    flash.write(block, IoBuf::copy_of(&bytes).freeze(), WriteFlags::default()).await?;
    Ok(())
}

/// Returns the bytes of a metadata slot that names a frame of the log as durable; 0 for none.
pub(crate) fn encode(entry: &RegionEntry, flash_tag: u64, durable_frame_seq: u64) -> [u8; METADATA_SLOT_BYTES] {
    let Place { slot, generation, stored_len, crc, encoding, .. } = entry.place;
    let (lbas, oldest) = entry.metadata.parts();
    let lbas = LbaList::new(lbas, oldest).expect("the design lists no more than fit");
    let encoding = Encoding::from_code(encoding).unwrap_or(Encoding::Raw);
    let fingerprint = entry.metadata.fingerprint().0;
    let slot = slot.0;
    MetadataSlot { flash_tag, slot, generation, fingerprint, crc, stored_len, encoding, lbas, durable_frame_seq }
        .encode()
}

/// Tells `design` the uses of all slots, if there are metadata slots. Returns whether it did.
///
/// A metadata slot counts whether or not its record is still stored. No record may get a generation
/// that an earlier record had.
pub(crate) async fn restore_uses(flash: &dyn BlockDevice, superblock: &Superblock, design: &mut Decider) -> bool {
    if superblock.layout.region_bytes() == 0 {
        return false;
    }
    let mut region = region_window(flash, superblock);
    for slot in (0..superblock.layout.slot_count).map(SlotId) {
        if let Some(entry) = entry_at(&mut region, superblock, slot).await {
            design.restore_slot(slot, entry.place.generation);
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
    decode(bytes.get(skip..skip + METADATA_SLOT_BYTES)?, superblock.flash_tag(), slot)
}
