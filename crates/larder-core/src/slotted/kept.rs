//! What of a [history](crate::history) goes into an empty design with equal slots again, after mappings and slots were asked.
//!
//! What it does not do: ask them; `placed/restored.rs` does.

use super::Slotted;
use crate::{
    history::Shape,
    types::{Fingerprint, Lba},
};

/// An address as it goes into an empty design again.
#[derive(Clone, Copy, Debug)]
pub struct KeptAddress {
    /// Itself.
    pub lba: Lba,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// It is mapped, so that its data is there.
    pub is_mapped: bool,
    /// The origin lacks it.
    pub is_dirty: bool,
}

/// A history after mappings and slots were asked: what goes into an empty design again.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// [`Slotted::target_size`].
    pub target: f64,
    /// By list, least recent first.
    pub lists: Vec<Vec<KeptAddress>>,
    /// What lies in data slots, least recently used first; none in a design that does not look at content.
    pub data: Vec<Fingerprint>,
}

impl Kept {
    /// Whether there are no more addresses on its lists than a design allows ([`Slotted::limits`]).
    pub fn fits(&self, limits: &[(Vec<usize>, usize)]) -> bool {
        let len = |list: &usize| self.lists.get(*list).map_or(0, Vec::len);
        limits.iter().all(|(lists, max)| lists.iter().map(len).sum::<usize>() <= *max)
    }
}

/// What lists this design has, and how long they can be.
pub fn shape_of(design: &dyn Slotted) -> Shape {
    let (sizes, looks_at_content) = (design.sizes(), design.looks_at_content());
    Shape {
        lists: design.list_count(),
        data_chunks: sizes.data_chunks,
        addresses: sizes.addresses,
        used_slots: if looks_at_content { sizes.data_chunks } else { 0 },
        looks_at_content,
    }
}
