//! The indices, and the effects of a change of the LBA index.
//!
//! That is all work for a mapping under the lock of its bucket. It runs beside other mappings, and
//! beside decisions of the rest of the design.
//!
//! Invariants: an entry that leaves the LBA index without a log entry at each restart is
//! [lost](Lost) before another thread sees its bucket. Recovery has one thread, and
//! [reserves](Indices::reserve) before it notes. A holder of a lock here takes none of the indices'
//! locks.
//!
//! It leaves dirty data and metadata slots to the design.

use super::{
    super::{Austere, lba_index::Change, lba_index::HeldBucket},
    ahead::Due,
};
use crate::{
    austere::keys::Key,
    design::Deferred,
    lost::Lost,
    types::{Fingerprint, Lba, SlotId},
};
use parking_lot::Mutex;
use std::sync::Arc;

/// See the module.
pub(super) struct Indices {
    pub core: Austere,
    /// Losses of the LBA index that a crash may bring back.
    pub lost: Mutex<Lost>,
    /// Buckets of the FP index that may need a next victim.
    pub due: Mutex<Due>,
}

impl Indices {
    pub fn new(core: Austere) -> Indices {
        let due = Due::new(core.slot_count() as u32, core.config().bucket_slots);
        Indices { lost: Mutex::new(Lost::new(core.lba_entries_max())), due: Mutex::new(due), core }
    }

    /// Maps an address. A search for it waits until this is done, so the change is atomic.
    pub fn map(self: &Arc<Self>, lba: Lba, fingerprint: &Fingerprint) -> Deferred {
        let (indices, fp_key) = (self.clone(), self.core.key_of_content(fingerprint));
        let mut bucket = self.core.hold(lba);
        Deferred::new(move || indices.map_held(&mut bucket, fp_key))
    }

    /// Maps as [`Indices::map`], before it returns.
    pub fn map_now(&self, lba: Lba, fingerprint: &Fingerprint) {
        self.map_held(&mut self.core.hold(lba), self.core.key_of_content(fingerprint));
    }

    fn map_held(&self, bucket: &mut HeldBucket, fp_key: Key) {
        let change = self.core.map_held(bucket, fp_key);
        self.note(bucket.lba_key(), &change);
    }

    /// Maps as [`Indices::map_now`], to a run in any bucket: [`Austere::reserve`].
    pub fn reserve(&self, lba: Lba, first: u32, slots: u32) {
        let change = self.core.reserve(lba, first, slots);
        self.note(self.core.key_of_lba(lba), &change);
    }

    /// Notes the lost references of a mapping of `lba_key`.
    ///
    /// The index has lost an entry that left for another address. Either content may be the next
    /// victim of its bucket, if it is still there.
    fn note(&self, lba_key: Key, change: &Change) {
        let Change { left, demoted } = change;
        if let Some(left) = left
            && left.lba_key != lba_key
        {
            self.lost.lock().add(left.lba_key.0);
        }
        for key in left.iter().map(|left| left.fp_key).chain(*demoted) {
            if let Some(run) = self.core.run_of_key(key) {
                self.due.lock().look_at(SlotId(run.first));
            }
        }
    }

    /// Notes that the entry of an address is about to be lost; it may be another's with its
    /// LBA-hash.
    pub fn note_lost(&self, lba: Lba) {
        let key = self.core.key_of_lba(lba);
        if self.core.has_entry(key) {
            self.lost.lock().add(key.0);
        }
    }

    /// Loses all entries.
    pub fn lose_all(&self) {
        self.lost.lock().add_all();
        self.core.forget_all();
    }

    /// Returns whether a crash now could bring back an entry of an address.
    pub fn may_come_back(&self, lba: Lba) -> bool {
        let key = self.core.key_of_lba(lba);
        self.core.has_entry(key) || self.lost.lock().has(key.0)
    }
}
