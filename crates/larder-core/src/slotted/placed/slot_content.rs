//! The content of a data slot, and its place.
//!
//! It does not know the design.

use crate::types::{Fingerprint, Place, SlotId};

/// No data slot, or no flash slot.
pub(super) const NONE: u32 = u32::MAX;

/// The content of a data slot, and its place.
#[derive(Clone, Copy)]
pub(super) struct SlotContent {
    pub fingerprint: [u8; 16],
    pub slot: u32,
    pub generation: u32,
    pub crc: u32,
    pub stored_len: u32,
}

impl SlotContent {
    pub fn new(place: &Place, fingerprint: &Fingerprint) -> Self {
        let Place { slot, generation, crc, stored_len, .. } = *place;
        SlotContent { fingerprint: fingerprint.0, slot: slot.0, generation, crc, stored_len }
    }

    pub fn is_at(&self, place: &Place) -> bool {
        (self.slot, self.generation) == (place.slot.0, place.generation)
    }

    pub fn place(&self) -> Place {
        let SlotContent { slot, generation, crc, stored_len, .. } = *self;
        Place { slot: SlotId(slot), generation, offset: 0, stored_len, crc, encoding: 0 }
    }
}

pub(super) const NOTHING: SlotContent =
    SlotContent { fingerprint: [0; 16], slot: NONE, generation: 0, crc: 0, stored_len: 0 };
