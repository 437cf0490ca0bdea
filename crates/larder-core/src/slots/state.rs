//! The stage of a slot's life, and the state of an export of slots.
//!
//! It does not move a slot from stage to stage.

use crate::{
    types::{SlotId, StreamClass},
    walk::{Numbers, Walk},
};

/// The stage of a slot's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Trimmed, durable as such, ready for use.
    Free,
    /// Being filled.
    Open,
    /// Full.
    Sealed,
    /// Chosen for replacement; its dirty references are being destaged.
    Evicting,
    /// Evicted, not yet ready for use.
    Retired,
}

/// A slot with its generation.
pub type ExportedSlot = (SlotId, u32, SlotState, StreamClass);

/// The stage of an export.
#[derive(Clone, Copy, Default)]
pub(super) enum Stage {
    /// Slots under eviction from this number on: they were the least recent.
    Evicting(usize),
    /// Sealed slots, which are on the list.
    Listed,
    /// All other slots from this number on.
    Others(usize),
    #[default]
    Over,
}

/// The state of an export.
#[derive(Default)]
pub(super) struct Export {
    pub stage: Stage,
    pub walk: Walk,
    pub told: Numbers,
}

impl Export {
    /// Notes that a slot leaves the list, on which `newer` came after it.
    #[inline]
    pub fn unlinks(&mut self, slot: u32, newer: u32) {
        self.walk.unlinks(slot, newer);
    }

    pub fn ram_bytes(&self) -> usize {
        self.walk.ram_bytes() + self.told.ram_bytes()
    }
}
