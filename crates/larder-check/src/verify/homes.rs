//! The possible places of records.
//!
//! Invariants: a slot that is free is the home of none.
//!
//! It does not read a record.

use larder_core::{Place, slots::SlotState};
use std::collections::BTreeMap;

pub(crate) type SlotList = Vec<Option<(u32, SlotState)>>;

/// Possible places of records.
pub(crate) struct Homes {
    pub(crate) slots: SlotList,
    /// Slots of the record that begins in one, if the design's indices know it.
    pub runs: BTreeMap<u32, u32>,
}

impl Homes {
    /// Returns the fault of a place, if each slot has its generation.
    pub fn out_of_slots(&self, lba: u64, place: &Place) -> Option<String> {
        match self.slots.get(place.slot.0 as usize) {
            Some(Some((generation, state)))
                if *generation == place.generation && !matches!(state, SlotState::Free | SlotState::Retired) =>
            {
                None
            }
            Some(Some((generation, state))) => Some(format!(
                "chunk {lba} is mapped into generation {} of slot {}, which is {state:?} in generation {generation}",
                place.generation, place.slot.0
            )),
            _ => Some(format!("chunk {lba} is mapped into slot {}, which there is not", place.slot.0)),
        }
    }

    /// Returns the slots that may have dirty chunks.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        let slots = (0..).zip(&self.slots).filter_map(|(slot, known): (u32, _)| known.map(|_| slot));
        slots.chain(self.runs.keys().copied())
    }
}

/// Returns whether generation `a` comes after `b`, on a counter that wraps.
pub fn is_newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
