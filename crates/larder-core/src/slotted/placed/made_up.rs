//! Made-up fingerprints, for contents that no address shares or that are unknown.
//!
//! It does not compute fingerprints of contents.

use crate::types::{Fingerprint, Lba, Place};

/// Returns a unique fingerprint for the unknown content of `lba`.
pub(super) fn unknown(lba: Lba) -> Fingerprint {
    let mut bytes = [0xFF; 16];
    bytes[..8].copy_from_slice(&lba.0.to_le_bytes());
    bytes[15] = 0xFE;
    Fingerprint(bytes)
}

/// Returns whether `lba` can have this content.
pub(super) fn is_believable(lba: Lba, content: &Fingerprint) -> bool {
    !is_unshared(content) && *content != unknown(lba)
}

/// Returns whether this is an [`unshared`] fingerprint.
pub(super) fn is_unshared(fingerprint: &Fingerprint) -> bool {
    fingerprint.0[8..] == [0xFF; 8]
}

/// Returns a unique fingerprint for `place`.
pub(super) fn unshared(place: &Place) -> Fingerprint {
    let mut bytes = [0xFF; 16];
    bytes[..4].copy_from_slice(&place.slot.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&place.generation.to_le_bytes());
    Fingerprint(bytes)
}
