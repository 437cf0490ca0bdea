//! Metadata slots in memory: recently read ones, and changed ones that are not written yet.
//!
//! The list of a slot has the addresses of its chunk. After a crash it is trusted for every address
//! that the indices lead to it. An address therefore joins the list on flash only when the log has
//! its mapping, or the origin durably has the same content. Otherwise, after a crash, a logged
//! address with the same LBA-hash could lead there, and a lost write would be found. Until then the
//! address is *held*: the list in memory has it, and [settling](Entries::settle) it adds it to the
//! list on flash. An address that leaves a list leaves it on flash at once.
//!
//! The first address of a run is on flash at once, *early*: while it is the only one, no other log
//! entry names the run. If an unsettled address joins, the early one leaves the list on flash until
//! it is settled.
//!
//! Invariants: an entry here equals the flash after all writes and all settling, or is known to be
//! unreadable there. An entry stays until it is written and nothing of it is held. An address is
//! held for at most one slot.
//!
//! It does not read or write the region, and leaves durability to the caller.

use crate::{
    region::{ListChange, RegionEntry, RunMetadata},
    types::{Lba, SlotId},
};
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Maximum number of remembered entries.
const READ_MAX: usize = 256;

/// Bytes of those, and of the list of them.
pub const READ_BYTES_MAX: u64 = (READ_MAX * (size_of::<RegionEntry>() + size_of::<KnownEntry>())
    + 2 * READ_MAX * size_of::<(u64, SlotId)>()) as u64;

/// The use of a slot's known entry for a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// The lookup has to read it.
    Unread,
    /// It was read for one lookup, which uses it up.
    Fresh,
    /// It differs from the flash, so no lookup reads it.
    Unwritten,
}

/// The condition for settling a held address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The log has all entries before this number.
    Committed(u64),
    /// The caller reports that the origin durably has its content.
    Told,
}

/// The known entry of a slot.
#[derive(Default)]
struct KnownEntry {
    /// `None` if it is unreadable, or another content's.
    entry: Option<Arc<RegionEntry>>,
    /// True if it was read for a lookup that is still to come.
    is_fresh: bool,
    /// The entry to write, if the flash has another.
    to_write: Option<Arc<RegionEntry>>,
    /// The list without held addresses, and the number of held ones, if there are any.
    settled: Option<(Box<RunMetadata>, usize)>,
    /// Its number in [`Entries::read`]: the newest for its slot.
    read: u64,
}

impl KnownEntry {
    /// Returns whether it differs from the flash.
    fn is_unwritten(&self) -> bool {
        self.to_write.is_some() || self.settled.is_some()
    }
}

/// A held or early address.
#[derive(Clone, Copy)]
struct HeldAddress {
    slot: SlotId,
    until: Until,
}

/// See the module.
#[derive(Default)]
pub struct Entries {
    known: HashMap<SlotId, KnownEntry>,
    /// Entries that were read, numbered, oldest first; a stale one may be among them.
    read: VecDeque<(u64, SlotId)>,
    reads: u64,
    /// Changed entries that no writer has taken, in order of their change.
    changed: VecDeque<SlotId>,
    /// The same slots as a set.
    is_changed: BTreeSet<SlotId>,
    /// Held and early addresses.
    held: BTreeMap<Lba, HeldAddress>,
    /// Addresses among them that wait for a commit.
    by_commit: BTreeSet<(u64, Lba)>,
    /// Number of those that are not early, and keep their slot's entry in memory.
    joining: usize,
    /// Early addresses in the list of their run, even if they have left it for another.
    early: BTreeMap<SlotId, Lba>,
}

impl Entries {
    /// Returns the entry of `slot`, if it is known; `Some(None)` if it is unreadable.
    pub fn get(&self, slot: SlotId) -> Option<Option<&Arc<RegionEntry>>> {
        self.known.get(&slot).map(|known| known.entry.as_ref())
    }

    /// Returns the use of the entry for a lookup.
    pub fn state(&self, slot: SlotId) -> EntryState {
        match self.known.get(&slot) {
            Some(known) if known.is_unwritten() => EntryState::Unwritten,
            Some(known) if known.is_fresh => EntryState::Fresh,
            _ => EntryState::Unread,
        }
    }

    /// Notes that a lookup used the entry.
    pub fn use_up(&mut self, slot: SlotId) {
        if let Some(known) = self.known.get_mut(&slot) {
            known.is_fresh = false;
        }
    }

    /// Notes an entry from flash. An entry that is not written yet is newer.
    pub fn read(&mut self, slot: SlotId, entry: Option<Arc<RegionEntry>>) {
        let known = self.known.entry(slot).or_default();
        known.is_fresh = true;
        if !known.is_unwritten() {
            known.entry = entry;
            // A new read moves it to the end of the remembered entries.
            self.remember(slot);
        }
    }

    /// Replaces the entry of a new chunk, which must be written.
    pub fn change(&mut self, slot: SlotId, entry: RegionEntry) {
        self.remove(slot);
        let entry = Arc::new(entry);
        let to_write = Some(entry.clone());
        self.known.insert(slot, KnownEntry { entry: Some(entry), to_write, ..KnownEntry::default() });
        self.push_changed(slot);
    }

    /// Lists `lba` early for its new run in `slot`, until it is settled.
    pub fn list_early(&mut self, slot: SlotId, lba: Lba, until: Until) {
        self.early.insert(slot, lba);
        self.hold(lba, HeldAddress { slot, until });
    }

    /// Adds `lba` to the list of `slot`, whose entry is known; on flash after it is settled.
    ///
    /// `change` returns the effect of adding it to a list.
    pub fn share(&mut self, slot: SlotId, lba: Lba, until: Until, change: impl Fn(&RunMetadata) -> ListChange) {
        let early = self.early.get(&slot).copied().filter(|&early| early != lba);
        let Some(known) = self.known.get_mut(&slot) else { return };
        let Some(now) = &known.entry else { return };
        let in_memory = change(&now.metadata);
        if in_memory == ListChange::Present && known.settled.is_none() {
            // The flash has it; an early one waits again.
            if self.early.get(&slot) == Some(&lba) {
                self.hold(lba, HeldAddress { slot, until });
            }
            return;
        }
        let mut entry = RegionEntry::clone(now);
        let (mut settled, mut count) = known.settled.take().unwrap_or_else(|| (Box::new(entry.metadata.clone()), 0));
        entry.metadata.apply(lba, in_memory);
        if let ListChange::Replaces(old) | ListChange::Overflows(old) = in_memory
            && self.held_at(old) == Some(slot)
        {
            self.unhold(old);
            let was_joining = usize::from(early != Some(old));
            count -= was_joining;
            self.joining -= was_joining;
        }
        // An address leaves the list on flash before the log can map `lba` to this run.
        let on_flash = change(&settled);
        let mut leaves = early.is_some_and(|early| settled.remove(early));
        if let ListChange::Replaces(sibling) = on_flash {
            leaves |= settled.remove(sibling);
        }
        let to_write = leaves.then(|| Arc::new(RegionEntry { place: entry.place, metadata: (*settled).clone() }));
        let is_held = on_flash != ListChange::Present;
        let mut joins = usize::from(is_held);
        if let Some(early) = early {
            self.early.remove(&slot);
            // The early address comes back, unless it has other content by now.
            joins += usize::from(self.held_at(early) == Some(slot));
        }
        count += joins;
        self.joining += joins;
        let known = self.known.entry(slot).or_default();
        known.entry = Some(Arc::new(entry));
        known.settled = Some((settled, count));
        known.is_fresh = false;
        if to_write.is_some() {
            known.to_write = to_write;
            self.push_changed(slot);
        }
        match is_held {
            true => self.hold(lba, HeldAddress { slot, until }),
            false => self.end_if_settled(slot),
        }
    }

    /// Returns the slot whose list has `lba` held or early.
    pub fn held_at(&self, lba: Lba) -> Option<SlotId> {
        self.held.get(&lba).map(|held| held.slot)
    }

    /// Counts the held addresses that are not early.
    pub fn held(&self) -> usize {
        self.joining
    }

    /// Adds a held `lba` to the list on flash. `change` is as for [`Entries::share`].
    pub fn settle(&mut self, lba: Lba, change: impl Fn(&RunMetadata) -> ListChange) {
        let Some(slot) = self.unhold(lba) else { return };
        if self.early.get(&slot) == Some(&lba) {
            // The flash has it.
            self.early.remove(&slot);
            return;
        }
        let Some(known) = self.known.get_mut(&slot) else { return };
        let (Some((settled, count)), Some(entry)) = (&mut known.settled, &known.entry) else { return };
        *count -= 1;
        self.joining -= 1;
        if entry.metadata.has(lba) {
            settled.apply(lba, change(settled));
            known.to_write = Some(Arc::new(RegionEntry { place: entry.place, metadata: (**settled).clone() }));
            self.push_changed(slot);
        }
        self.end_if_settled(slot);
    }

    /// Ends the hold of `lba`, which has other content by now, or none.
    pub fn drop_held(&mut self, lba: Lba) {
        let is_early = self.held_at(lba).is_some_and(|slot| self.early.get(&slot) == Some(&lba));
        if is_early {
            // It stays early in the list, and the next address that joins removes it.
            self.unhold(lba);
            return;
        }
        let Some(slot) = self.unhold(lba) else { return };
        if let Some((_, count)) = self.known.get_mut(&slot).and_then(|known| known.settled.as_mut()) {
            *count -= 1;
            self.joining -= 1;
        }
        self.end_if_settled(slot);
    }

    /// Ends holds as [`Entries::drop_held`], for a run of addresses.
    pub fn drop_held_run(&mut self, first: Lba, end: Lba) {
        let held: Vec<Lba> = self.held.range(first..end).map(|(&lba, _)| lba).collect();
        held.into_iter().for_each(|lba| self.drop_held(lba));
    }

    /// Returns an address that waits for a commit below `upto`, if there is any.
    pub fn next_committed(&self, upto: u64) -> Option<Lba> {
        self.by_commit.first().filter(|&&(seq, _)| seq < upto).map(|&(_, lba)| lba)
    }

    /// Returns the next entry that the caller must write.
    pub fn next_changed(&mut self) -> Option<Arc<RegionEntry>> {
        while let Some(slot) = self.changed.pop_front() {
            self.is_changed.remove(&slot);
            if let Some(entry) = self.to_write(slot) {
                return Some(entry);
            }
        }
        None
    }

    /// Returns the entry to write for `slot`, if the flash has another.
    pub fn to_write(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.known.get(&slot).and_then(|known| known.to_write.clone())
    }

    /// Returns the entry of `slot`, if it differs from the flash.
    pub fn unwritten(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.known.get(&slot).filter(|known| known.is_unwritten()).and_then(|known| known.entry.clone())
    }

    /// Notes that `entry` was written.
    pub fn written(&mut self, entry: &Arc<RegionEntry>) {
        let slot = entry.place.slot;
        if let Some(known) = self.known.get_mut(&slot)
            && known.to_write.as_ref().is_some_and(|now| Arc::ptr_eq(now, entry))
        {
            known.to_write = None;
            if !known.is_unwritten() {
                self.remember(slot);
            }
        }
    }

    /// Forgets `slot`, whose chunk is gone.
    pub fn remove(&mut self, slot: SlotId) {
        let early = self.early.remove(&slot);
        let known = self.known.remove(&slot);
        self.joining -= known.iter().filter_map(|known| known.settled.as_ref()).map(|(_, count)| count).sum::<usize>();
        // The list in memory has all held addresses.
        let list = known.iter().filter(|known| known.settled.is_some()).filter_map(|known| known.entry.as_ref());
        let held = list.flat_map(|entry| entry.metadata.lbas()).chain(early);
        for lba in held.filter(|lba| self.held_at(*lba) == Some(slot)).collect::<Vec<_>>() {
            self.unhold(lba);
        }
    }

    /// Returns the bytes that it has allocated.
    pub fn ram_bytes(&self) -> usize {
        let lists = self.known.values().filter(|known| known.settled.is_some()).count();
        self.known.len() * (size_of::<RegionEntry>() + size_of::<KnownEntry>())
            + lists * size_of::<RunMetadata>()
            + self.read.capacity() * size_of::<(u64, SlotId)>()
            + self.changed.capacity() * size_of::<SlotId>()
            // B-trees that are half full.
            + 2 * self.is_changed.len() * size_of::<SlotId>()
            + 2 * self.held.len() * size_of::<(Lba, HeldAddress)>()
            + 2 * self.by_commit.len() * size_of::<(u64, Lba)>()
            + 2 * self.early.len() * size_of::<(SlotId, Lba)>()
    }

    fn hold(&mut self, lba: Lba, held: HeldAddress) {
        self.held.insert(lba, held);
        if let Until::Committed(seq) = held.until {
            self.by_commit.insert((seq, lba));
        }
    }

    /// Ends the hold of `lba`; returns its slot.
    fn unhold(&mut self, lba: Lba) -> Option<SlotId> {
        let held = self.held.remove(&lba)?;
        if let Until::Committed(seq) = held.until {
            self.by_commit.remove(&(seq, lba));
        }
        Some(held.slot)
    }

    fn push_changed(&mut self, slot: SlotId) {
        if self.is_changed.insert(slot) {
            self.changed.push_back(slot);
        }
    }

    /// Takes the list on flash for the whole list if nothing is held any more.
    fn end_if_settled(&mut self, slot: SlotId) {
        let Some(known) = self.known.get_mut(&slot) else { return };
        let Some((settled, _)) = known.settled.take_if(|(_, count)| *count == 0) else { return };
        let place = known.entry.as_ref().map(|entry| entry.place);
        known.entry = match &known.to_write {
            Some(to_write) => Some(to_write.clone()),
            None => place.map(|place| Arc::new(RegionEntry { place, metadata: *settled })),
        };
        if !known.is_unwritten() {
            self.remember(slot);
        }
    }

    fn remember(&mut self, slot: SlotId) {
        self.reads += 1;
        if let Some(known) = self.known.get_mut(&slot) {
            known.read = self.reads;
        }
        self.read.push_back((self.reads, slot));
        while self.read.len() > READ_MAX {
            let Some((read, oldest)) = self.read.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|known| !known.is_unwritten() && known.read == read) {
                self.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Fingerprint, Place};

    const SLOT: SlotId = SlotId(8);

    /// Addresses whose numbers differ by tens are siblings.
    fn change(lba: u64) -> impl Fn(&RunMetadata) -> ListChange {
        move |list| list.change(Lba(lba), |other| other.0 % 10 == lba % 10)
    }

    /// Returns entries with a run that was stored for address 1.
    fn entries() -> Entries {
        let mut metadata = RunMetadata::EMPTY;
        metadata.reset(Fingerprint([7; 16]), 100, Lba(1));
        let place = Place { slot: SLOT, generation: 3, offset: 0, stored_len: 100, crc: 0, encoding: 0 };
        let mut entries = Entries::default();
        entries.change(SLOT, RegionEntry { place, metadata });
        entries
    }

    /// Ends the next write of the metadata slot; returns the addresses that it names.
    fn written(entries: &mut Entries) -> Option<Vec<u64>> {
        let entry = entries.next_changed()?;
        entries.written(&entry);
        Some(entry.metadata.lbas().map(|lba| lba.0).collect())
    }

    fn in_memory(entries: &Entries) -> Vec<u64> {
        let entry = entries.get(SLOT).flatten().expect("it is known");
        entry.metadata.lbas().map(|lba| lba.0).collect()
    }

    #[test]
    fn an_address_is_named_on_flash_when_it_is_settled() {
        let mut entries = entries();
        assert_eq!(written(&mut entries), Some(vec![1]));
        entries.share(SLOT, Lba(2), Until::Committed(5), change(2));
        assert_eq!((written(&mut entries), in_memory(&entries)), (None, vec![1, 2]));
        assert_eq!((entries.state(SLOT), entries.held_at(Lba(2))), (EntryState::Unwritten, Some(SLOT)));
        assert_eq!((entries.next_committed(5), entries.next_committed(6)), (None, Some(Lba(2))));
        entries.settle(Lba(2), change(2));
        assert_eq!((written(&mut entries), entries.held()), (Some(vec![1, 2]), 0));
        assert_eq!(entries.state(SLOT), EntryState::Unread);
        // It is there already.
        entries.share(SLOT, Lba(2), Until::Committed(7), change(2));
        assert_eq!((written(&mut entries), entries.held()), (None, 0));
    }

    #[test]
    fn a_sibling_leaves_at_once() {
        let mut entries = entries();
        entries.share(SLOT, Lba(11), Until::Committed(5), change(11));
        assert_eq!((written(&mut entries), in_memory(&entries)), (Some(vec![]), vec![11]));
        // The other way round, before it was settled.
        entries.share(SLOT, Lba(21), Until::Told, change(21));
        assert_eq!((written(&mut entries), in_memory(&entries), entries.held()), (None, vec![21], 1));
        entries.settle(Lba(21), change(21));
        assert_eq!((written(&mut entries), in_memory(&entries)), (Some(vec![21]), vec![21]));
    }

    #[test]
    fn who_is_early_leaves_until_he_is_settled_when_another_joins() {
        let mut entries = entries();
        entries.list_early(SLOT, Lba(1), Until::Told);
        assert_eq!(written(&mut entries), Some(vec![1]));
        entries.share(SLOT, Lba(2), Until::Committed(5), change(2));
        assert_eq!((written(&mut entries), in_memory(&entries)), (Some(vec![]), vec![1, 2]));
        entries.settle(Lba(2), change(2));
        assert_eq!(written(&mut entries), Some(vec![2]));
        entries.settle(Lba(1), change(1));
        assert_eq!((written(&mut entries), entries.held()), (Some(vec![2, 1]), 0));
    }

    #[test]
    fn who_was_early_and_left_is_not_named_any_more() {
        let mut entries = entries();
        entries.list_early(SLOT, Lba(1), Until::Told);
        assert_eq!(written(&mut entries), Some(vec![1]));
        entries.drop_held(Lba(1));
        entries.share(SLOT, Lba(2), Until::Committed(5), change(2));
        assert_eq!(written(&mut entries), Some(vec![]));
        entries.settle(Lba(2), change(2));
        assert_eq!((written(&mut entries), in_memory(&entries), entries.held()), (Some(vec![2]), vec![2], 0));
    }

    #[test]
    fn who_settles_alone_was_there() {
        let mut entries = entries();
        entries.list_early(SLOT, Lba(1), Until::Told);
        assert_eq!(written(&mut entries), Some(vec![1]));
        entries.settle(Lba(1), change(1));
        assert_eq!((written(&mut entries), entries.held()), (None, 0));
        entries.share(SLOT, Lba(2), Until::Told, change(2));
        assert_eq!(written(&mut entries), None, "nobody leaves");
    }

    #[test]
    fn who_has_other_content_joins_no_list() {
        let mut entries = entries();
        assert_eq!(written(&mut entries), Some(vec![1]));
        entries.share(SLOT, Lba(2), Until::Committed(5), change(2));
        entries.share(SLOT, Lba(3), Until::Committed(6), change(3));
        entries.drop_held(Lba(2));
        entries.settle(Lba(2), change(2));
        assert_eq!(written(&mut entries), None);
        entries.settle(Lba(3), change(3));
        assert_eq!((written(&mut entries), in_memory(&entries)), (Some(vec![1, 3]), vec![1, 3]));
        // A freed run holds nothing.
        entries.share(SLOT, Lba(4), Until::Committed(9), change(4));
        entries.remove(SLOT);
        assert_eq!((entries.held(), entries.next_committed(u64::MAX), entries.next_changed()), (0, None, None));
    }
}
