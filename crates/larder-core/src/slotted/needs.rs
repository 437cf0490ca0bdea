//! The needs of a design with equal slots, before it is made. That is bytes of RAM and of history,
//! mappings, and the slots that a budget affords.
//!
//! Engine and simulator divide a flash by them.
//!
//! Invariants: they hold for many slots; a sample design shows the cost of one.
//!
//! It does not lay out a flash.

use super::{
    SETS_BYTES_MAX, Slotted, addresses_for, lost_bytes_max, mapped_max, mappings_for, shape_of, slots_bytes_max, spares,
};
use crate::{named::OverSlots, nitro};

/// Data slots of a sample design, which shows the cost of one slot.
const SAMPLE_SLOTS: u64 = 1 << 16;

impl OverSlots {
    fn sample(&self, chunk_bytes: u32) -> Box<dyn Slotted> {
        (self.make)(SAMPLE_SLOTS, chunk_bytes)
    }

    /// Returns the limit of bytes of the history for each slot.
    pub fn history_bytes(&self, chunk_bytes: u32) -> u64 {
        shape_of(&*self.sample(chunk_bytes)).bytes_max().div_ceil(SAMPLE_SLOTS)
    }

    /// Returns the limit of RAM bytes for each slot, mappings apart.
    pub fn slot_bytes_max(&self, chunk_bytes: u32) -> u64 {
        slots_bytes_max() + self.sample(chunk_bytes).ram_bytes_max().div_ceil(SAMPLE_SLOTS)
    }

    /// Returns the limit of RAM bytes for each mapping. The cost of a slot, with the design's
    /// entries, is shared among the addresses that may have it.
    pub fn index_bytes_max(&self, chunk_bytes: u32) -> u64 {
        let design = self.sample(chunk_bytes);
        let addresses = if design.looks_at_content() { design.sizes().addresses } else { 0 };
        let lost = (addresses * lost_bytes_max()).div_ceil(SAMPLE_SLOTS);
        // A checkpoint takes the history of one moment.
        let slot = self.slot_bytes_max(chunk_bytes) + self.history_bytes(chunk_bytes) + lost;
        nitro::INDEX_BYTES_MAX + SETS_BYTES_MAX + (slot * SAMPLE_SLOTS).div_ceil(mapped_max(&*design))
    }

    /// Returns the slots whose addresses can all be mapped within a budget of RAM.
    ///
    /// A table entry for each slot is there from the beginning.
    pub fn slots_within(&self, ram_bytes: u64, chunk_bytes: u32) -> u64 {
        let entries = ram_bytes / self.index_bytes_max(chunk_bytes);
        let addresses = mapped_max(&*self.sample(chunk_bytes));
        let slots = (u128::from(addresses_for(entries)) * u128::from(SAMPLE_SLOTS) / u128::from(addresses)) as u64;
        slots.saturating_add(spares(slots))
    }

    /// Returns the mappings that a checkpoint has room for, with so many slots. `None` if the
    /// design cannot number them.
    pub fn mappings_wanted(&self, slots: u64, chunk_bytes: u32) -> Option<u64> {
        let design = (self.make)(slots, chunk_bytes);
        // A sixteenth of the mappings that a checkpoint has room for is kept free.
        (design.sizes().data_chunks >= slots).then(|| mappings_for(mapped_max(&*design)) / 15 * 16 + 16)
    }
}
