//! The turns of the metadata region's blocks, and the slots that are read ahead of their use.
//!
//! Invariants: requests together hold no more slots ahead than `AHEAD_MAX`, beyond one for each.
//!
//! It does not read.

use crate::tickets::{ManyTickets, Ticket};
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Limit of the metadata slots read ahead of their use, beyond one for each request. It is for all
/// requests of several chunks together. It is half of the remembered ones, so requests seldom push
/// out each other's. A slot that is pushed out is read again.
const AHEAD_MAX: usize = 128;
/// Parts of the turns, for each stripe. Readers of different blocks seldom share one.
const PARTS: usize = 4;

/// The order among the reads and writes of one block, and the slots that are read ahead.
pub(crate) struct RegionTurns {
    blocks: ManyTickets,
    /// Slots that were read, or are being read, for requests that have not used them yet.
    ahead: AtomicUsize,
}

impl RegionTurns {
    /// Returns the turns for threads of so many stripes (a power of two).
    pub fn new(stripes: usize) -> RegionTurns {
        RegionTurns { blocks: ManyTickets::new(PARTS * stripes), ahead: AtomicUsize::new(0) }
    }

    /// Asks for the turn of a block.
    pub fn ask(&self, block: u64) -> Ticket {
        self.blocks.ask(block)
    }

    /// Takes a part of `wanted` slots to read ahead: at least one, and no more than are left.
    /// Returns the part.
    pub fn take_ahead(&self, wanted: usize) -> usize {
        let mut part = 1;
        let more = |ahead: usize| {
            part = wanted.min(AHEAD_MAX.saturating_sub(ahead)).max(1);
            Some(ahead + part)
        };
        let _ = self.ahead.fetch_update(AcqRel, Acquire, more);
        part
    }

    /// Gives a part back, whose slots were used.
    pub fn give_back(&self, part: usize) {
        self.ahead.fetch_sub(part, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_reads_a_slot_ahead_and_all_together_the_limit() {
        let turns = RegionTurns::new(1);
        let parts: Vec<usize> = (0..4).map(|_| turns.take_ahead(60)).collect();
        assert_eq!(parts, [60, 60, 8, 1]);
        turns.give_back(60);
        assert_eq!(turns.take_ahead(0), 1, "a request goes on, however few it wants");
        assert_eq!(turns.take_ahead(100), 58, "129 are left, and one more was taken");
    }
}
