//! Metadata slots as bytes.
//!
//! Invariants: bytes that are no metadata slot of the place decode to nothing.
//!
//! It does not read or write them.

use larder_core::{
    Fingerprint, Place, SlotId,
    region::{self, RegionEntry},
};
use larder_format::{
    Encoding,
    metadata_slot::{LbaList, METADATA_SLOT_BYTES, MetadataSlot},
};

/// Returns the metadata slot in `bytes`, if it belongs to `slot` of this flash.
pub fn decode(bytes: &[u8], flash_tag: u64, slot: SlotId) -> Option<RegionEntry> {
    let found = MetadataSlot::decode(bytes, flash_tag, slot.0).ok()?;
    let fingerprint = Fingerprint(found.fingerprint);
    let (lbas, oldest) = (found.lbas.as_slice(), found.lbas.oldest());
    let metadata = region::RunMetadata::from_parts(fingerprint, found.stored_len, lbas, oldest)?;
    Some(RegionEntry { place: crate::places::from_format(&found.place()), metadata })
}

/// Returns the bytes of a metadata slot that names a frame of the log as durable; 0 for none.
pub fn encode(entry: &RegionEntry, flash_tag: u64, durable_frame_seq: u64) -> [u8; METADATA_SLOT_BYTES] {
    let Place { slot, generation, stored_len, crc, encoding, .. } = entry.place;
    let (lbas, oldest) = entry.metadata.parts();
    let lbas = LbaList::new(lbas, oldest).expect("the design lists no more than fit");
    let encoding = Encoding::from_code(encoding).unwrap_or(Encoding::Raw);
    let fingerprint = entry.metadata.fingerprint().0;
    let slot = slot.0;
    MetadataSlot { flash_tag, slot, generation, fingerprint, crc, stored_len, encoding, lbas, durable_frame_seq }
        .encode()
}
