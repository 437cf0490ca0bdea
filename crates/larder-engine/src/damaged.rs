//! Records that are known to be damaged or unreadable: no further address may share them.
//!
//! Invariants: at most [`DAMAGED_MAX`] are remembered. A slot's next generation is another record.
//!
//! It does not record the addresses of lost data; [`lost`] does.

pub(crate) mod lost;

use larder_core::Place;
use std::collections::BTreeSet;

/// Limit of remembered records. A flash with more has other troubles.
pub const DAMAGED_MAX: usize = 4096;

/// The damaged records.
#[derive(Clone, Debug, Default)]
pub struct DamagedRecords(BTreeSet<(u32, u32, u32)>);

impl DamagedRecords {
    /// Remembers the record at `place`.
    pub fn note(&mut self, place: &Place) {
        if self.0.len() >= DAMAGED_MAX {
            self.0.pop_first();
        }
        self.0.insert(key(place));
    }

    /// Returns whether the record at `place` is damaged.
    pub fn has(&self, place: &Place) -> bool {
        !self.0.is_empty() && self.0.contains(&key(place))
    }

    /// Forgets the records of `slot`, which was freed.
    pub fn forget_slot(&mut self, slot: u32) {
        if !self.0.is_empty() {
            self.0.retain(|&(other, _, _)| other != slot);
        }
    }
}

fn key(place: &Place) -> (u32, u32, u32) {
    (place.slot.0, place.generation, place.offset)
}
