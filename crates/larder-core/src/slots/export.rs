//! Export of all slots with generations, in replacement order, for a checkpoint.
//!
//! Invariants: each slot is told once, despite changes between two pieces. A slot without a told
//! generation could not be checked after a restart.
//!
//! Its pieces come from different moments; the log has the changes since.

use super::{
    SlotTable,
    state::{Export, ExportedSlot, SlotState, Stage},
};
use crate::{types::SlotId, walk::PIECE};

impl SlotTable {
    /// Returns all slots with generations: evicting ones, sealed ones by age, then the ageless
    /// others.
    pub fn in_order(&self) -> Vec<ExportedSlot> {
        let mut order = Vec::with_capacity(self.slots.len());
        let all = || 0..self.count();
        order.extend(all().filter(|&i| self.state(SlotId(i)) == SlotState::Evicting).map(|i| self.exported(i)));
        let mut at = self.by_use.oldest();
        while let Some(slot) = self.slots.get(at as usize) {
            order.push(self.exported(at));
            at = slot.beside.newer;
        }
        let has_no_age = |&i: &u32| !matches!(self.state(SlotId(i)), SlotState::Sealed | SlotState::Evicting);
        order.extend(all().filter(has_no_age).map(|i| self.exported(i)));
        order
    }

    /// Begins an export piece by piece.
    pub fn begin_export(&mut self) {
        self.export = Export { stage: Stage::Evicting(0), ..Export::default() };
    }

    /// Returns its next piece, which may be empty; `None` at the end.
    pub fn next_exported(&mut self) -> Option<Vec<ExportedSlot>> {
        let from = |first: usize| first..self.slots.len().min(first + PIECE);
        let mut export = std::mem::take(&mut self.export);
        let piece = match export.stage {
            Stage::Over => return None,
            Stage::Evicting(first) => {
                let numbers = from(first);
                export.stage = Stage::Evicting(numbers.end);
                if numbers.end == self.slots.len() {
                    export.stage = Stage::Listed;
                    export.walk.begin(self.by_use.oldest(), self.slots.len());
                }
                numbers.map(|i| i as u32).filter(|&i| self.state(SlotId(i)) == SlotState::Evicting).collect()
            }
            Stage::Listed => export.walk.next(|i| self.slots[i as usize].beside.newer).unwrap_or_else(|| {
                export.stage = Stage::Others(0);
                Vec::new()
            }),
            Stage::Others(first) => {
                let numbers = from(first);
                export.stage = if numbers.end == self.slots.len() { Stage::Over } else { Stage::Others(numbers.end) };
                numbers.map(|i| i as u32).collect()
            }
        };
        let piece = piece.into_iter().filter(|&i| export.told.add(i)).map(|i| self.exported(i)).collect();
        // The last piece ends the use of the told set.
        self.export = if matches!(export.stage, Stage::Over) { Export::default() } else { export };
        Some(piece)
    }

    fn exported(&self, i: u32) -> ExportedSlot {
        let slot = &self.slots[i as usize];
        (SlotId(i), slot.generation, slot.state, slot.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{StreamClass, mix};

    /// Returns slots in all states, with generations.
    fn used(count: u32) -> SlotTable {
        let mut slots = SlotTable::new(count);
        let mut state = u64::from(count);
        for _ in 0..4 * count {
            state = mix(state);
            step(&mut slots, state);
        }
        slots
    }

    fn step(slots: &mut SlotTable, random: u64) {
        let slot = SlotId((random >> 8) as u32 % slots.count());
        match (random % 8, slots.state(slot)) {
            (0..3, _) => {
                if let Some((slot, _)) = slots.open(StreamClass::Clean) {
                    slots.seal(slot);
                }
            }
            (3, _) => {
                slots.open(StreamClass::Dirty);
            }
            (_, SlotState::Open) => slots.seal(slot),
            (4, SlotState::Sealed) => slots.start_evicting(slot),
            (_, SlotState::Sealed) => slots.touch(slot),
            (_, SlotState::Evicting) if random.is_multiple_of(3) => slots.stop_evicting(slot),
            (_, SlotState::Evicting) => {
                slots.retire(slot);
            }
            (_, SlotState::Retired) => slots.release(slot),
            (_, SlotState::Free) => {}
        }
    }

    #[test]
    fn pieces_of_slots_at_rest_are_all_of_them_in_order() {
        for count in [1, 100, PIECE as u32, 5000] {
            let mut slots = used(count);
            let whole = slots.in_order();
            slots.begin_export();
            let mut pieces = Vec::new();
            while let Some(piece) = slots.next_exported() {
                assert!(piece.len() <= PIECE);
                pieces.extend(piece);
            }
            assert_eq!(pieces, whole, "{count} slots");
            assert_eq!(slots.next_exported(), None);
            assert_eq!(slots.export.ram_bytes(), 0);
        }
    }

    #[test]
    fn each_slot_is_told_once_whatever_happens_between_pieces() {
        for (count, steps) in [(3000, 50), (5000, 1000), (9000, 5000)] {
            let mut slots = used(count);
            let mut state = 7;
            slots.begin_export();
            let mut told = Vec::new();
            while let Some(piece) = slots.next_exported() {
                for (slot, generation, state, class) in piece {
                    assert_eq!((state, generation, class), {
                        let (state, generation, ..) = slots.describe(slot);
                        (state, generation, slots.class(slot))
                    });
                    told.push(slot.0);
                }
                for _ in 0..steps {
                    state = mix(state);
                    step(&mut slots, state);
                }
            }
            told.sort_unstable();
            assert!(told.into_iter().eq(0..count), "{count} slots, {steps} steps after each piece");
        }
    }
}
