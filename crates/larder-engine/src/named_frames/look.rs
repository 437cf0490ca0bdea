//! The extent of a look for names of frames, and its outcome.
//!
//! Invariants: the likely slots are few.
//!
//! It does not read flash.

use larder_core::{Decider, slots};
use larder_format::{CheckpointBlock, LogEntry, SlotState};
use std::collections::VecDeque;
use std::{future::Future, pin::Pin};

/// Limit of the WEUs that an opening reads to their end, of those that checkpoint and log name
/// last.
const LAST_USED_MAX: usize = 16;

/// Limit, among these, of the pieces of the slots that the log freed last.
const LAST_FREED_MAX: usize = 64;

/// Limit of the further pieces of slots or of a metadata region that an opening reads.
pub(crate) const HEADS_MAX: usize = 4096;

/// The outcome of a look.
pub(crate) type Named<'a> = Pin<Box<dyn Future<Output = Option<Naming>> + 'a>>;

/// A name of a durable frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The frame.
    pub frame_seq: u64,
    /// The position of the name on the flash.
    pub flash_offset: u64,
}

/// The extent of a look.
pub enum Look {
    /// The whole flash.
    All,
    /// The likely last writes.
    Likely(LikelySlots),
}

/// The open slots of a checkpoint, and the slots that the log behind it names last, in its order.
#[derive(Default)]
pub struct LastSpoken {
    used: VecDeque<u32>,
    freed: VecDeque<u32>,
}

impl LastSpoken {
    /// Notes a block of the checkpoint.
    pub fn note_block(&mut self, block: &CheckpointBlock) {
        let CheckpointBlock::Slots(slots) = block else { return };
        for slot in slots.iter().filter(|slot| slot.state == SlotState::Open) {
            put_last(&mut self.used, slot.slot, LAST_USED_MAX);
        }
    }

    /// Notes entries of the log.
    pub fn note(&mut self, entries: &[LogEntry]) {
        for entry in entries {
            match entry {
                LogEntry::Map { place, duplicate: false, .. } | LogEntry::Fragment { place, .. } => {
                    put_last(&mut self.used, place.slot, LAST_USED_MAX);
                }
                LogEntry::SlotFreed { slot, .. } => put_last(&mut self.freed, *slot, LAST_FREED_MAX),
                _ => {}
            }
        }
    }
}

fn put_last(list: &mut VecDeque<u32>, slot: u32, max: usize) {
    if list.back() == Some(&slot) {
        return;
    }
    list.retain(|&other| other != slot);
    list.push_back(slot);
    if list.len() > max {
        list.pop_front();
    }
}

/// Slots that may have been written last.
#[derive(Default)]
pub struct LikelySlots {
    /// Slots to read to their end.
    pub(crate) whole: Vec<u32>,
    /// Slots whose start is read, each with its next generation, which checkpoint and log do not
    /// name. When that generation has begun, the slot is read to its end.
    pub(crate) heads: Vec<(u32, u32)>,
}

impl LikelySlots {
    /// Returns the likely slots of a state that was recovered from a log that names `spoken` last.
    pub fn of(spoken: &LastSpoken, design: &Decider) -> LikelySlots {
        let whole: Vec<u32> = spoken.used.iter().rev().copied().collect();
        let (mut free, mut used) = (Vec::new(), Vec::new());
        for (slot, generation, state, _) in design.export_slots() {
            match state {
                slots::SlotState::Free | slots::SlotState::Retired => free.push((slot.0, generation)),
                // Least recent first, in the order of eviction.
                _ => used.push((slot.0, generation.wrapping_add(1))),
            }
        }
        free.sort_unstable();
        let freed: Vec<_> = free.iter().copied().filter(|(slot, _)| spoken.freed.contains(slot)).collect();
        let half = HEADS_MAX / 2;
        let mut heads = freed;
        heads.extend(free.into_iter().take(half));
        used.truncate(HEADS_MAX.saturating_sub(heads.len()));
        heads.extend(used);
        LikelySlots { whole, heads }
    }
}
