//! Places of records in the words of the format, and back.
//!
//! Invariants: both name the same bytes.
//!
//! It does not check a place.

use larder_core::{Place, SlotId};
use larder_format::Encoding;

/// Converts a place to the format's type. Encodings come from the codec, so each code is known.
pub fn to_format(place: &Place) -> larder_format::FlashPlace {
    larder_format::FlashPlace {
        slot: place.slot.0,
        generation: place.generation,
        offset: place.offset,
        stored_len: place.stored_len,
        crc: place.crc,
        encoding: Encoding::from_code(place.encoding).unwrap_or(Encoding::Raw),
    }
}

/// Converts a place to the core's type.
pub fn from_format(place: &larder_format::FlashPlace) -> Place {
    Place {
        slot: SlotId(place.slot),
        generation: place.generation,
        offset: place.offset,
        stored_len: place.stored_len,
        crc: place.crc,
        encoding: place.encoding.code(),
    }
}
