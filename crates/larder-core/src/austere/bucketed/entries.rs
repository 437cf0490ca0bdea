//! Metadata slots in memory: those that were read a short while ago, and those that are not written yet.
//!
//! Invariants: what is here is what the flash has, or will have once all writes are done, or is known to be unreadable there. An
//! entry stays until it is written.
//!
//! What it does not do: read or write the region.

use super::super::metadata::MetadataSlot;
use crate::types::{Place, SlotId};
use hashbrown::{HashMap, HashSet};
use std::{collections::VecDeque, sync::Arc};

/// Entries that were read and are remembered.
const READ_MAX: usize = 256;

/// Bytes of those, and of the list of them.
pub const READ_BYTES_MAX: u64 =
    (READ_MAX * (size_of::<RegionEntry>() + size_of::<Known>()) + 2 * READ_MAX * size_of::<(u64, SlotId)>()) as u64;

/// What the metadata region says of the chunk that begins in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// Where the chunk's record is.
    pub place: Place,
    /// Its content, and who shares it.
    pub metadata: MetadataSlot,
}

/// What a lookup may do with what is known of a slot's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// It has to read it.
    Unread,
    /// It was read for one lookup, which uses it up.
    Fresh,
    /// It differs from what is on flash, so nothing is read.
    Unwritten,
}

/// What is known of a slot's entry.
struct Known {
    /// `None`: it could not be read, or is another content's.
    entry: Option<Arc<RegionEntry>>,
    /// It was read for a lookup that is still to come.
    is_fresh: bool,
    /// It differs from what is on flash.
    is_unwritten: bool,
    /// Which of those in [`Entries::read`] it is: the last that was put there for its slot.
    read: u64,
}

/// See the module.
#[derive(Default)]
pub struct Entries {
    known: HashMap<SlotId, Known>,
    /// Those that were read, oldest first and numbered; one that is not known any more, or was read again, may be among them.
    read: VecDeque<(u64, SlotId)>,
    reads: u64,
    /// Those that nobody has taken to write them, in order of their change.
    changed: VecDeque<SlotId>,
    /// The same.
    is_changed: HashSet<SlotId>,
}

impl Entries {
    /// The entry of `slot`, if it is known: `Some(None)` where it cannot be read.
    pub fn get(&self, slot: SlotId) -> Option<Option<&Arc<RegionEntry>>> {
        self.known.get(&slot).map(|known| known.entry.as_ref())
    }

    /// What a lookup may do with it.
    pub fn state(&self, slot: SlotId) -> EntryState {
        match self.known.get(&slot) {
            Some(known) if known.is_unwritten => EntryState::Unwritten,
            Some(known) if known.is_fresh => EntryState::Fresh,
            _ => EntryState::Unread,
        }
    }

    /// A lookup used it.
    pub fn use_up(&mut self, slot: SlotId) {
        if let Some(known) = self.known.get_mut(&slot) {
            known.is_fresh = false;
        }
    }

    /// It was read from flash. What is not written yet is newer.
    pub fn read(&mut self, slot: SlotId, entry: Option<Arc<RegionEntry>>) {
        if let Some(known) = self.known.get_mut(&slot) {
            known.is_fresh = true;
            if !known.is_unwritten {
                known.entry = entry;
                // It is wanted now: its place among those that are remembered is a new one.
                self.remember(slot);
            }
            return;
        }
        self.known.insert(slot, Known { entry, is_fresh: true, is_unwritten: false, read: 0 });
        self.remember(slot);
    }

    /// It has to be written.
    pub fn change(&mut self, slot: SlotId, entry: RegionEntry) {
        let known = Known { entry: Some(Arc::new(entry)), is_fresh: false, is_unwritten: true, read: 0 };
        self.known.insert(slot, known);
        if self.is_changed.insert(slot) {
            self.changed.push_back(slot);
        }
    }

    /// The next one to be written, which the caller does.
    pub fn next_changed(&mut self) -> Option<Arc<RegionEntry>> {
        while let Some(slot) = self.changed.pop_front() {
            self.is_changed.remove(&slot);
            if let Some(Known { entry: Some(entry), is_unwritten: true, .. }) = self.known.get(&slot) {
                return Some(entry.clone());
            }
        }
        None
    }

    /// The entry of `slot`, if it differs from what is on flash.
    pub fn unwritten(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.known.get(&slot).filter(|known| known.is_unwritten).and_then(|known| known.entry.clone())
    }

    /// `entry` was written.
    pub fn written(&mut self, entry: &Arc<RegionEntry>) {
        let slot = entry.place.slot;
        if let Some(known) = self.known.get_mut(&slot)
            && known.entry.as_ref().is_some_and(|now| Arc::ptr_eq(now, entry))
        {
            known.is_unwritten = false;
            self.remember(slot);
        }
    }

    /// The chunk of `slot` is gone.
    pub fn remove(&mut self, slot: SlotId) {
        self.known.remove(&slot);
    }

    /// Bytes that it has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.known.len() * (size_of::<RegionEntry>() + size_of::<Known>())
            + self.read.capacity() * size_of::<(u64, SlotId)>()
            + (self.changed.capacity() + self.is_changed.capacity()) * size_of::<SlotId>()
    }

    fn remember(&mut self, slot: SlotId) {
        self.reads += 1;
        if let Some(known) = self.known.get_mut(&slot) {
            known.read = self.reads;
        }
        self.read.push_back((self.reads, slot));
        while self.read.len() > READ_MAX {
            let Some((read, oldest)) = self.read.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|known| !known.is_unwritten && known.read == read) {
                self.known.remove(&oldest);
            }
        }
    }
}
