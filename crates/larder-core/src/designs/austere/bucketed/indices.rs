//! The indices, and what a change of the LBA index leaves behind: all that is done for a mapping under the lock of its bucket, beside
//! others who map elsewhere, and beside who decides about the rest of the design.
//!
//! Invariants: an entry that leaves the LBA index, of which no entry of the log tells at each restart, is [lost](Lost) before another
//! thread sees its bucket. A recovery is alone, and [reserves](Indices::reserve) before it notes. A holder of a lock here asks for
//! none of the indices'.
//!
//! What it does not do: know what is dirty, or what metadata slots say.

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
    /// What the LBA index lost by itself, and a crash may bring back.
    pub lost: Mutex<Lost>,
    /// Buckets of the FP index in which somebody may have to go next.
    pub due: Mutex<Due>,
}

impl Indices {
    pub fn new(core: Austere) -> Indices {
        let due = Due::new(core.slot_count() as u32, core.config().bucket_slots);
        Indices { lost: Mutex::new(Lost::new(core.lba_entries_max())), due: Mutex::new(due), core }
    }

    /// Maps an address: at once for all who look for it, who wait as long as this is not done.
    pub fn map(self: &Arc<Self>, lba: Lba, fingerprint: &Fingerprint) -> Deferred {
        let (indices, fp_key) = (self.clone(), self.core.key_of_content(fingerprint));
        let mut bucket = self.core.hold(lba);
        Deferred::new(move || indices.map_held(&mut bucket, fp_key))
    }

    /// As [`Indices::map`], done when this returns.
    pub fn map_now(&self, lba: Lba, fingerprint: &Fingerprint) {
        self.map_held(&mut self.core.hold(lba), self.core.key_of_content(fingerprint));
    }

    fn map_held(&self, bucket: &mut HeldBucket, fp_key: Key) {
        let change = self.core.map_held(bucket, fp_key);
        self.note(bucket.lba_key(), &change);
    }

    /// As [`Indices::map_now`], to a run wherever it is: [`Austere::reserve`].
    pub fn reserve(&self, lba: Lba, first: u32, slots: u32) {
        let change = self.core.reserve(lba, first, slots);
        self.note(self.core.key_of_lba(lba), &change);
    }

    /// What lost references when `lba_key` was mapped: the index has lost what left for another address, and either content may be the
    /// next to go of its bucket, if it is still there.
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

    /// Notes that the entry of an address, if there is one, is about to be lost. It may be that of another address with its LBA-hash.
    pub fn note_lost(&self, lba: Lba) {
        let key = self.core.key_of_lba(lba);
        if self.core.has_entry(key) {
            self.lost.lock().add(key.0);
        }
    }

    /// All entries are lost.
    pub fn lose_all(&self) {
        self.lost.lock().add_all();
        self.core.forget_all();
    }

    /// Whether a crash now could bring back what the indices have, or had, of an address.
    pub fn may_come_back(&self, lba: Lba) -> bool {
        let key = self.core.key_of_lba(lba);
        self.core.has_entry(key) || self.lost.lock().has(key.0)
    }
}
