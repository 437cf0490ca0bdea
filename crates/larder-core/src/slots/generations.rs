//! Recovery of a slot's generation, by the owner of the mappings into it.
//!
//! Invariants: the mappings of an older generation end before the slot has a newer one.
//!
//! It does not know mappings.

use super::SlotTable;
use crate::types::{Lba, SlotId, StreamClass};

/// The owner of slots and of the mappings into them.
pub(crate) trait Generations {
    /// Returns the slots.
    fn slots_mut(&mut self) -> &mut SlotTable;

    /// Ends every mapping into `slot` in its present generation. `ended` hears of each dirty one.
    ///
    /// A log frees no slot with dirty data, but replay over a newer checkpoint passes through
    /// states that never were. Dirty mappings of such a state die, too.
    fn end_generation(&mut self, slot: SlotId, ended: &mut dyn FnMut(Lba));

    /// Restores a slot as [`Persist::restore_slot`](crate::design::Persist::restore_slot).
    fn restore_generation(
        &mut self,
        slot: SlotId,
        generation: u32,
        class: Option<StreamClass>,
        ended: &mut dyn FnMut(Lba),
    ) -> bool {
        if !self.slots_mut().can_be_at(slot, generation) {
            return false;
        }
        end_older(self, slot, generation, ended);
        let slots = self.slots_mut();
        let is_restored = slots.restore(slot, generation);
        if let Some(class) = class.filter(|_| is_restored) {
            slots.restore_class(slot, class);
        }
        is_restored
    }

    /// Frees a slot as [`Persist::restore_freed`](crate::design::Persist::restore_freed).
    fn restore_freed_generation(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba)) {
        if self.slots_mut().can_be_at(slot, generation) {
            end_older(self, slot, generation.wrapping_add(1), ended);
            self.slots_mut().restore_freed(slot, generation);
        }
    }
}

/// Ends the mappings into `slot`, unless it is at generation `next` already.
fn end_older<D: Generations + ?Sized>(owner: &mut D, slot: SlotId, next: u32, ended: &mut dyn FnMut(Lba)) {
    if owner.slots_mut().generation(slot).is_some_and(|generation| generation != next) {
        owner.end_generation(slot, ended);
    }
}
