//! The orders among operations of an open cache: some must not overtake, some run one at a time.
//!
//! Each verb takes a place in its order at once. The caller waits for its turn with
//! [`Ticket::granted`], and holds it until the ticket is dropped.
//!
//! Invariants: each order is first come, first served, so each operation gets its turn. A task asks
//! for a ticket of changes before a ticket of destages, and never while it holds a ticket of
//! destages.
//!
//! It does not order reads, or the blocks of the metadata region.

use crate::{
    sync::Turns,
    tickets::{Ticket, Tickets},
};
use larder_core::{Lba, SlotId};
use std::sync::Arc;

/// The orders.
#[derive(Default)]
pub(crate) struct Orders {
    changes: Arc<Tickets>,
    destages: Arc<Tickets>,
    slots: Arc<Tickets>,
    checkpoints: Turns,
    mode_switches: Turns,
    origin_flushes: Turns,
    flash_flushes: Turns,
}

impl Orders {
    /// Asks for these chunks, among writes and trims.
    pub fn change(&self, first: Lba, count: u64) -> Ticket {
        self.changes.ask(first, count)
    }

    /// Asks for all chunks, among writes and trims, none of which is then under way.
    pub fn change_all(&self) -> Ticket {
        self.changes.ask(Lba(0), u64::MAX)
    }

    /// Asks for these chunks, among destages.
    pub fn destage(&self, first: Lba, count: u64) -> Ticket {
        self.destages.ask(first, count)
    }

    /// Asks for a slot, among the writes into it. Its trim is part of the first.
    pub fn write_slot(&self, slot: SlotId) -> Ticket {
        self.slots.ask(Lba(slot.0.into()), 1)
    }

    /// Asks for the turn of a checkpoint.
    pub fn checkpoint(&self) -> Ticket {
        self.checkpoints.ask()
    }

    /// Asks for the turn of a switch of the write mode, or of a note of the mode in force.
    pub fn switch_mode(&self) -> Ticket {
        self.mode_switches.ask()
    }

    /// Asks for the turn of a flush of the origin. If two ran at once, the successful flush could
    /// not tell the losses of the failed one.
    pub fn flush_origin(&self) -> Ticket {
        self.origin_flushes.ask()
    }

    /// Asks for the turn of a flush of the flash, for the same reason.
    pub fn flush_flash(&self) -> Ticket {
        self.flash_flushes.ask()
    }
}
