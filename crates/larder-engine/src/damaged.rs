//! Which records are known to be damaged, or not to be read: no address more is to share them.
//!
//! Invariants: at most [`DAMAGED_MAX`] are remembered. A slot's next generation is another record.
//!
//! What it does not do: say which addresses lost their data; `lost` in [`State`](crate::state::State) does.

use larder_core::Place;
use std::collections::BTreeSet;

/// Records that are remembered. Where there are more, the flash has other troubles.
pub const DAMAGED_MAX: usize = 4096;

/// See the module.
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

    /// Whether the record at `place` is one of them.
    pub fn has(&self, place: &Place) -> bool {
        !self.0.is_empty() && self.0.contains(&key(place))
    }

    /// Forgets what was in `slot`, which was freed.
    pub fn forget_slot(&mut self, slot: u32) {
        if !self.0.is_empty() {
            self.0.retain(|&(other, _, _)| other != slot);
        }
    }
}

fn key(place: &Place) -> (u32, u32, u32) {
    (place.slot.0, place.generation, place.offset)
}
