//! Pins: who reads from which slot, and evictions that wait for the last reader to leave.
//!
//! Invariants: a slot's pins rise only under the state's lock, so that a slot without pins whose mappings are gone stays
//! so. An eviction that waits is told when the last pin goes: it announces itself before it looks at the pins, and who
//! unpins looks for announcements afterwards, so that one of the two sees the other.
//!
//! What it does not do: know what is in a slot.

use crate::sync::Notify;
use larder_core::SlotId;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// The pins of all slots.
pub struct Pins {
    readers: Box<[AtomicU32]>,
    /// Evictions that wait.
    waiting: AtomicU32,
    /// A slot's last pin is gone while an eviction waits.
    unpinned: Notify,
}

impl Pins {
    /// Of `slots` slots, none of them pinned.
    pub fn new(slots: u32) -> Pins {
        let readers = (0..slots).map(|_| AtomicU32::new(0)).collect();
        Pins { readers, waiting: AtomicU32::new(0), unpinned: Notify::default() }
    }

    /// A reader of `slot` begins. Under the state's lock, by which it knows that the slot holds what it wants.
    #[inline]
    pub fn pin(&self, slot: SlotId) {
        self.readers[slot.0 as usize].fetch_add(1, AcqRel);
    }

    /// A reader of `slot` is done.
    #[inline]
    pub fn unpin(&self, slot: SlotId) {
        // `SeqCst` here and in `wait_unpinned`: with less, both could look before they see what the other did.
        let before = self.readers[slot.0 as usize].fetch_sub(1, SeqCst);
        debug_assert!(before > 0);
        if before == 1 && self.waiting.load(SeqCst) > 0 {
            self.unpinned.notify();
        }
    }

    /// Whether someone reads from `slot`.
    pub fn is_pinned(&self, slot: SlotId) -> bool {
        self.readers[slot.0 as usize].load(SeqCst) > 0
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
