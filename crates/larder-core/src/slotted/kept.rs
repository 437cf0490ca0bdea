//! The valid part of a [history](crate::history), for an empty design with equal slots.
//!
//! It agrees with mappings and slots; the comparison is left to `placed/restored.rs`.

use crate::types::{Fingerprint, Lba};

/// An address of a restored history.
#[derive(Clone, Copy, Debug)]
pub struct KeptAddress {
    /// The address itself.
    pub lba: Lba,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// True if it is mapped, so that its data is there.
    pub is_mapped: bool,
    /// True if the origin lacks it.
    pub is_dirty: bool,
}

/// A restored history for an empty design.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The target of the lists, [`Slotted::target_size`](super::Slotted::target_size).
    pub target: f64,
    /// Lists, least recent first.
    pub lists: Vec<Vec<KeptAddress>>,
    /// Contents of data slots, least recently used first; none if the design does not look at
    /// content.
    pub data: Vec<Fingerprint>,
}

impl Kept {
    /// Returns whether the lists are within a design's [limits](super::Slotted::limits).
    pub fn fits(&self, limits: &[(Vec<usize>, usize)]) -> bool {
        let len = |list: &usize| self.lists.get(*list).map_or(0, Vec::len);
        limits.iter().all(|(lists, max)| lists.iter().map(len).sum::<usize>() <= *max)
    }
}
