//! The choice between the two copies of a superblock.
//!
//! Invariants: a copy that a newer Larder wrote keeps the other one from being written, too.
//!
//! It does not read them.

use super::{STRUCTURE, Superblock};
use crate::FormatError;

/// The better twin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its fields.
    pub superblock: Superblock,
    /// Number of this twin: 0 for A, 1 for B.
    pub twin: usize,
    /// The other twin, if it is damaged, older or different, and is to be written again.
    pub repair: Option<usize>,
}

/// Returns the newest valid twin of the two, given the bytes of each.
///
/// # Errors
/// - When neither is valid, the more telling of their two errors.
/// - [`FormatError::NewerVersion`] when either twin says so: then a newer Larder left the other
///   twin behind.
/// - [`FormatError::Foreign`] when both are valid but of different flashes: a creation that did not
///   finish.
pub fn choose(a: &[u8], b: &[u8]) -> Result<Chosen, FormatError> {
    let (mut a, mut b) = (Superblock::decode(a), Superblock::decode(b));
    if let (Ok(a), Ok(b)) = (&mut a, &mut b)
        && a.flash_uuid == b.flash_uuid
    {
        // A newer Larder wrote either twin, so neither may be overwritten.
        let features = a.features_read_only | b.features_read_only;
        (a.features_read_only, b.features_read_only) = (features, features);
    }
    match (a, b) {
        (Err(newer @ FormatError::NewerVersion { .. }), _) | (_, Err(newer @ FormatError::NewerVersion { .. })) => {
            Err(newer)
        }
        (Ok(a), Ok(b)) if a.flash_uuid != b.flash_uuid => Err(FormatError::Foreign(STRUCTURE)),
        (Ok(a), Ok(b)) if a == b => Ok(Chosen { superblock: a, twin: 0, repair: None }),
        (Ok(a), Ok(b)) if b.sequence > a.sequence => Ok(Chosen { superblock: b, twin: 1, repair: Some(0) }),
        (Ok(a), _) => Ok(Chosen { superblock: a, twin: 0, repair: Some(1) }),
        (Err(_), Ok(b)) => Ok(Chosen { superblock: b, twin: 1, repair: Some(0) }),
        (Err(FormatError::BadMagic(_) | FormatError::Truncated { .. }), Err(b)) => Err(b),
        (Err(a), Err(_)) => Err(a),
    }
}
