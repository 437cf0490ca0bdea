//! Pins: the readers of each slot, and the evictions that wait for the last reader to leave.
//!
//! Each slot has a count in several stripes, so that readers of one slot do not pass a cache line
//! from core to core.
//!
//! Invariants: a slot's pins rise only under the state's lock, shared or not. So a slot stays
//! unpinned once it has no pins and no mappings. An eviction takes the mappings under the exclusive
//! lock, and then sees each pin of a reader that found one. A waiting eviction is told when the
//! last pin of a stripe goes. The eviction announces itself before it looks at the pins, and an
//! unpinning reader looks for announcements afterwards. So one of the two sees the other.
//!
//! It does not know the content of a slot.

use crate::{stripes::Stripe, sync::Notify};
use larder_core::SlotId;
use std::{
    mem::ManuallyDrop,
    sync::atomic::{AtomicU32, Ordering::*},
};

/// Limit of the bytes of all counts, beyond one count for each slot.
const BYTES_MAX: usize = 4 << 20;

/// The pins of all slots.
pub struct Pins {
    /// Counts by stripe, and there by slot.
    readers: Box<[Box<[AtomicU32]>]>,
    /// Evictions that wait.
    waiting: AtomicU32,
    /// A slot's last pin of a stripe is gone while an eviction waits.
    unpinned: Notify,
}

/// A pin; the slot is unpinned when it is dropped.
pub struct Pinned<'a> {
    pins: &'a Pins,
    held: HeldPin,
}

/// A pin that only [`Pins::unpin`] gives back.
#[derive(Clone, Copy)]
pub struct HeldPin {
    slot: SlotId,
    stripe: Stripe,
}

impl Pins {
    /// Returns the pins of `slots` slots, all unpinned, for threads of `stripes` stripes (a power
    /// of two).
    pub fn new(slots: u32, stripes: usize) -> Pins {
        let affordable = BYTES_MAX / (slots.max(1) as usize * size_of::<AtomicU32>());
        // The largest power of two within the bound.
        let stripes = stripes.min(1 << affordable.max(1).ilog2());
        let count = || (0..slots).map(|_| AtomicU32::new(0)).collect();
        Pins {
            readers: (0..stripes).map(|_| count()).collect(),
            waiting: AtomicU32::new(0),
            unpinned: Notify::default(),
        }
    }

    fn count(&self, pin: &HeldPin) -> &AtomicU32 {
        &self.readers[pin.stripe.0][pin.slot.0 as usize]
    }

    /// Pins `slot` for a reader. The caller holds the state's lock, under which it found its record
    /// in the slot.
    #[inline]
    pub fn pin(&self, slot: SlotId, stripe: Stripe) -> Pinned<'_> {
        let held = HeldPin { slot, stripe: Stripe(stripe.0 & (self.readers.len() - 1)) };
        self.count(&held).fetch_add(1, AcqRel);
        Pinned { pins: self, held }
    }

    /// Unpins a slot after a read.
    #[inline]
    pub fn unpin(&self, pin: HeldPin) {
        // `SeqCst` here and in `wait_unpinned`: a weaker order lets both look before they see each
        // other's change.
        let before = self.count(&pin).fetch_sub(1, SeqCst);
        debug_assert!(before > 0);
        if before == 1 && self.waiting.load(SeqCst) > 0 {
            self.unpinned.notify();
        }
    }

    /// Returns whether a reader pins `slot`.
    pub fn is_pinned(&self, slot: SlotId) -> bool {
        self.readers.iter().any(|stripe| stripe[slot.0 as usize].load(SeqCst) > 0)
    }

    /// Waits for the last reader of `slot`, to which no new one comes.
    pub async fn wait_unpinned(&self, slot: SlotId) {
        self.waiting.fetch_add(1, SeqCst);
        loop {
            let unpinned = self.unpinned.listen();
            if !self.is_pinned(slot) {
                break;
            }
            unpinned.await;
        }
        self.waiting.fetch_sub(1, AcqRel);
    }
}

impl Pinned<'_> {
    /// Leaves the slot pinned until the result is given back.
    pub fn hold(self) -> HeldPin {
        ManuallyDrop::new(self).held
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pins.unpin(self.held);
    }
}
