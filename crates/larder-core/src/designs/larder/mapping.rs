//! The addresses of [`Larder`].
//!
//! Time passes with each request: a look-up, a postponed use, an overwrite. The request of a
//! content is noted as soon as the content is known: at the look-up of a mapping, or when an
//! address is mapped.
//!
//! Invariants: those of [`Mapping`].

use super::{
    CHECKPOINT, ENTRIES_SHARE, Larder, REGION_SHARE, UNSTORED_SHARE,
    addresses::{Address, ContentNumber, Kind},
    class::Class,
    contents::{Left, content_key, sample_key},
    heat::Heat,
    region::Mark,
};
use crate::{
    design::{Hit, Lookup, Mapping, NewMapping, Use},
    limits::TRIMMED_AT_ONCE,
    named::CheckpointShares,
    types::{Fingerprint, Lba, Place},
};

/// Beliefs that leave a full index at once.
const BELIEFS_AT_ONCE: usize = 32;
/// Unused regions that are looked at for beliefs, and regions that are passed for each.
const REGIONS_LOOKED_AT: usize = 16;
const REGIONS_PASSED: usize = 32;

impl Mapping for Larder {
    fn lookup(&mut self, lba: Lba) -> Lookup {
        self.sample.tick(true);
        if !self.has_region_for(lba) {
            return Lookup::Miss;
        }
        let (Some(entry), heat) = self.index.read(lba) else { return Lookup::Miss };
        let Some(found) = self.interpret(&entry) else { return Lookup::Miss };
        if let (Some(id), Lookup::Chunk { .. }) = (entry.content(), &found) {
            self.request(id, lba, heat, true);
        }
        found
    }

    fn peek(&self, lba: Lba) -> Lookup {
        self.index.get(lba).and_then(|entry| self.interpret(&entry)).unwrap_or(Lookup::Miss)
    }

    fn hit(&self, lba: Lba) -> Option<Hit> {
        let Some(Lookup::Chunk { place, .. }) = self.interpret(&self.index.get(lba)?) else { return None };
        Some(Hit { place, used: Use { lba, slot: place.slot, number: 0 } })
    }

    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        self.stored_duplicate(fingerprint)
    }

    fn map(&mut self, lba: Lba, new: NewMapping, dirty: bool) {
        if dirty && !self.restoring {
            self.note_write(lba);
        }
        let mut at = |place, fingerprint| self.stored_at(place, fingerprint, Some(lba));
        let (kind, stored) = match &new {
            NewMapping::Zero => (Kind::Zero, None),
            NewMapping::Unique { place, fingerprint } => (Kind::Chunk, Some(at(place, fingerprint.as_ref()))),
            NewMapping::Duplicate { place } => (Kind::Chunk, Some(at(place, None))),
            NewMapping::Fragment { place, .. } => (Kind::Fragment, Some(at(place, None))),
        };
        let id = stored.map(|(id, _)| id);
        // The new reference comes first, for the old one may be the last of the same content.
        if let Some(id) = id {
            self.contents.name(id);
            let is_owner = !matches!(new, NewMapping::Duplicate { .. });
            if let Some(record) = self.contents.record_mut(id).filter(|_| is_owner) {
                record.set_owner(lba);
            }
        }
        let mut entry = Address::new(lba, kind, id.unwrap_or(ContentNumber(0)), dirty);
        entry.is_transient = kind == Kind::Chunk && !dirty && self.may_be_transient(lba);
        self.make_room_for(lba);
        if let Some(old) = self.index.insert(entry) {
            self.forget(&old);
        }
        self.live += 1;
        if dirty {
            self.checkpoint_room.add_dirty();
        }
        let Some(id) = id else {
            self.zeroes += 1;
            self.clean_zeroes += u64::from(!dirty);
            return;
        };
        if let NewMapping::Fragment { sectors, .. } = new {
            self.fragments.insert(lba.0, sectors);
        }
        if let Some(slot) = self.contents.slot(id) {
            self.slots.add_ref(slot, dirty);
            if dirty && self.slots.remember(slot, lba, None) {
                self.compact_back(slot);
            }
            self.bound_back_pointers();
        }
        if kind == Kind::Chunk && !self.restoring && !stored.is_some_and(|(_, survives)| survives) {
            self.request(id, lba, self.index.heat(lba), !dirty);
        }
    }

    fn mark_clean(&mut self, lba: Lba) {
        let Some(entry) = self.index.get(lba) else { return };
        if entry.kind == Kind::Fragment {
            self.unmap(lba);
            return;
        }
        if entry.is_dirty {
            self.checkpoint_room.drop_dirty();
        }
        self.index.mark(lba, Mark::Dirty, false);
        match entry.content().and_then(|id| self.contents.slot(id)) {
            Some(slot) => self.slots.clean_ref(slot),
            None => self.clean_zeroes += 1,
        }
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.index.get(lba).is_some_and(|entry| entry.is_dirty)
    }

    fn unmap(&mut self, lba: Lba) -> bool {
        self.index.remove(lba).is_some_and(|entry| self.forget(&entry))
    }

    fn suspend(&mut self, lba: Lba) -> bool {
        self.note_write(lba);
        self.unmap(lba)
    }

    fn unmap_run(&mut self, first: Lba, count: u64) {
        self.unmap_each(first, count, &|_| true);
        self.index.forget_heat(first, count);
    }

    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.index.in_run(first, count)
    }

    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        let entries = self.index.in_run(first, count).into_iter().filter_map(|lba| self.index.get(lba));
        entries.into_iter().any(|entry| self.may_be_logged(&entry))
    }

    fn trim_span(&self, first: Lba, count: u64) -> u64 {
        self.index.span(first, count, TRIMMED_AT_ONCE as usize)
    }

    fn has_room(&self, count: u64) -> bool {
        // A full index has a quarter of beliefs, so that one is found soon if it has to go.
        let has_regions = self.live + count <= self.regions_max() / 4 * 3
            || self.index.occupied() as u64 + count <= self.regions_max();
        let has_entries = self.live + count <= self.entries_max() / 4 * 3;
        has_regions && has_entries && self.checkpoint_room.has_room(count)
    }
}

impl Larder {
    /// Notes a request of a content through an address. A read counts as a hit if the address was
    /// requested before.
    fn request(&mut self, id: ContentNumber, lba: Lba, heat: Heat, is_read: bool) {
        let now = self.sample.stamp();
        self.contents.review_sharing(id);
        let Some(record) = self.contents.record_mut(id) else { return };
        let class = Class::live(heat.own, record.is_shared(), heat.rate);
        record.set_class(class);
        record.use_at(now);
        let (len, key) = (record.stored_len(), sample_key(lba, record.fingerprint().as_ref()));
        let may_switch = self.may_switch();
        self.sample.observe(key, class, is_read && heat.is_reread, len, may_switch);
    }

    fn note_write(&mut self, lba: Lba) {
        self.sample.tick(false);
        if self.has_region_for(lba) {
            self.index.write(lba);
        }
    }

    /// Returns the place of stored content that may take another reference.
    pub(super) fn stored_duplicate(&self, fingerprint: &Fingerprint) -> Option<Place> {
        let place = self.contents.place(self.contents.find(fingerprint)?)?;
        (self.slots.generation_for_new(place.slot) == Some(place.generation)).then_some(place)
    }

    /// Returns whether the entry of an address names a content.
    pub(super) fn names(&self, lba: Lba, id: ContentNumber) -> bool {
        self.index.get(lba).and_then(|entry| entry.content()) == Some(id)
    }

    /// Returns the contents of a fingerprint: the stored one, and the one that is not.
    pub(super) fn contents_of(&self, fingerprint: &Fingerprint) -> [Option<ContentNumber>; 2] {
        [self.contents.find(fingerprint), self.contents.find_remembered(fingerprint)]
    }

    /// Counts the addresses beside `lba` that name these contents.
    pub(super) fn others(&self, lba: Lba, known: [Option<ContentNumber>; 2]) -> u32 {
        known.into_iter().flatten().map(|id| self.contents.refs(id) - u32::from(self.names(lba, id))).sum()
    }

    /// Returns the content at a place, and whether it survived its last slot. It is new if none is
    /// known there. `lba` is the address for which it is stored.
    pub(super) fn stored_at(
        &mut self,
        place: &Place,
        fingerprint: Option<&Fingerprint>,
        lba: Option<Lba>,
    ) -> (ContentNumber, bool) {
        if let Some(id) = self.contents.at(place) {
            self.know(id, fingerprint);
            return (id, false);
        }
        let gone = fingerprint.and_then(|known| self.contents.find_remembered(known));
        let kept = gone.and_then(|gone| self.contents.take_kept(gone));
        let is_shared = lba.is_some_and(|lba| self.others(lba, [gone, None]) > 0);
        let id = self.contents.store(place);
        if let Some(record) = self.contents.record_mut(id) {
            record.share(is_shared);
            if let Some((class, used_at)) = kept {
                record.set_class(class);
                record.use_at(used_at);
            }
        }
        self.know(id, fingerprint);
        // The miniature caches begin empty at a restart, and want as long a time as at first.
        if !self.restoring {
            self.written += u64::from(place.stored_len);
        }
        let end = u64::from(place.offset) + u64::from(place.stored_len);
        if end > self.slot_bytes {
            self.slot_bytes = end;
            self.sample.set_capacity(end * u64::from(self.config.slot_count));
        }
        (id, kept.is_some())
    }

    /// Has a stored content found by its fingerprint, while there is room for more.
    pub(super) fn know(&mut self, id: ContentNumber, fingerprint: Option<&Fingerprint>) {
        let Some(fingerprint) = fingerprint.filter(|_| self.config.fp_entries_max > 0) else { return };
        self.contents.know(id, fingerprint);
        // A history has room for so many.
        if self.contents.known_stored() as u64 > self.known_max() {
            self.contents.unknow(id);
        }
    }

    /// Notes that an address has a content that is not stored by the number that it gets.
    pub(super) fn believe(&mut self, lba: Lba, fingerprint: &Fingerprint) {
        if self.index.len() as u64 >= self.entries_max() && self.index.get(lba).is_none() || !self.has_region_for(lba) {
            return;
        }
        let id = match self.contents.find_remembered(fingerprint) {
            Some(known) => known,
            None if self.contents_are_many() => return,
            None => self.contents.remember(fingerprint),
        };
        self.contents.name(id);
        if let Some(old) = self.index.insert(Address::new(lba, Kind::Chunk, id, false)) {
            self.forget(&old);
        }
    }

    /// Returns whether a clean mapping of `lba` is left out of log and checkpoints.
    ///
    /// In a rewritten region a write is likely to replace it. The log would hold up that write. A
    /// mapping that the log may have is replaced by one that it has.
    fn may_be_transient(&self, lba: Lba) -> bool {
        !self.restoring
            && !self.persists_all
            && self.index.is_rewritten(lba)
            && !self.index.get(lba).is_some_and(|entry| self.may_be_logged(&entry))
    }

    /// Returns whether an entry is a mapping that the log may have.
    fn may_be_logged(&self, entry: &Address) -> bool {
        Self::is_live(&self.contents, entry) && !self.stays_transient(entry)
    }

    /// Makes the clean mappings of a region transient, if it has no other ones and `may` says so.
    /// Returns whether it did.
    pub(super) fn retreats(&mut self, (first, count): (Lba, u64), may: &dyn Fn(Lba, u64) -> bool) -> bool {
        if self.persists_all || !may(first, count) {
            return false;
        }
        let mapped = self.index.in_run(first, count);
        let stays = |entry: Address| entry.is_dirty || entry.kind == Kind::Fragment;
        if mapped.iter().filter_map(|&lba| self.index.get(lba)).any(stays) {
            return false;
        }
        mapped.into_iter().for_each(|lba| self.index.mark(lba, Mark::Transient, true));
        true
    }

    /// Returns whether log and checkpoints lack a mapping.
    pub(super) fn stays_transient(&self, entry: &Address) -> bool {
        entry.is_transient && !self.persists_all
    }

    /// Settles the counts for an entry that left the index. Returns whether it was a mapping that
    /// the log may have.
    pub(super) fn forget(&mut self, entry: &Address) -> bool {
        if entry.kind == Kind::Fragment {
            self.fragments.remove(entry.lba.0);
        }
        if entry.is_dirty {
            self.checkpoint_room.drop_dirty();
        }
        let Some(id) = entry.content() else {
            self.zeroes -= 1;
            self.clean_zeroes -= u64::from(!entry.is_dirty);
            self.live -= 1;
            return !self.stays_transient(entry);
        };
        let slot = self.contents.slot(id);
        if let Some(slot) = slot {
            self.slots.drop_ref(slot, entry.is_dirty);
            self.live -= 1;
        }
        let fingerprint = self.contents.fingerprint(id);
        let left = self.contents.release(id);
        if let Some(fingerprint) = fingerprint.filter(|_| left != Left::Named) {
            self.note_unnamed(&fingerprint);
        }
        slot.is_some() && !self.stays_transient(entry)
    }

    /// Notes that no address names a content any more by one of its numbers. It is dead, unless one
    /// names it by another.
    fn note_unnamed(&mut self, fingerprint: &Fingerprint) {
        let known = self.contents_of(fingerprint);
        if known.into_iter().flatten().any(|id| self.contents.refs(id) > 0) {
            return;
        }
        let now = self.sample.stamp();
        if let Some(record) = known[0].and_then(|stored| self.contents.record_mut(stored)) {
            record.set_class(record.class().dead());
            record.use_at(now);
        }
        self.sample.lose(content_key(fingerprint));
    }

    /// Counts the contents at most that are found by a fingerprint.
    ///
    /// They are those of a history, or fewer if the ratio of the FP index is smaller.
    fn known_max(&self) -> u64 {
        let CheckpointShares { mappings_per_chunk, chunks_per_fingerprint, .. } = CHECKPOINT;
        let chunks = self.config.fp_entries_max.saturating_mul(chunks_per_fingerprint);
        chunks.saturating_mul(mappings_per_chunk).min(self.config.mappings_max)
    }

    /// Counts the entries of the index at most: mappings, and beliefs.
    fn entries_max(&self) -> u64 {
        self.config.mappings_max.saturating_mul(ENTRIES_SHARE)
    }

    /// Counts the regions of addresses at most.
    fn regions_max(&self) -> u64 {
        self.config.mappings_max.saturating_mul(REGION_SHARE)
    }

    /// Returns whether no content may be added that is not stored.
    fn contents_are_many(&self) -> bool {
        self.contents.unstored() as u64 >= self.config.mappings_max.saturating_mul(UNSTORED_SHARE)
    }

    /// Has room in the index for an entry of `lba`, and among the contents: beliefs go.
    fn make_room_for(&mut self, lba: Lba) {
        let is_full = self.index.len() as u64 >= self.entries_max() && self.index.get(lba).is_none();
        if is_full || self.contents_are_many() {
            self.drop_beliefs(BELIEFS_AT_ONCE);
        }
        self.has_region_for(lba);
    }

    /// Returns whether `lba` has a region, or may have one. A region without mappings goes for it.
    fn has_region_for(&mut self, lba: Lba) -> bool {
        let has_room = |this: &Larder| (this.index.regions() as u64) < this.regions_max();
        if has_room(self) || self.index.has_region(lba) {
            return true;
        }
        self.drop_beliefs(usize::MAX);
        has_room(self)
    }

    /// Drops `wanted` beliefs of regions that were not used for long, as far as a short look finds
    /// some. A region without mappings goes, and ends the look.
    fn drop_beliefs(&mut self, wanted: usize) {
        let mut dropped = 0;
        for _ in 0..REGIONS_LOOKED_AT {
            let Some((place, entries)) = self.index.next_unused(REGIONS_PASSED) else { continue };
            let (mapped, beliefs): (Vec<_>, Vec<_>) =
                entries.into_iter().partition(|entry| Self::is_live(&self.contents, entry));
            dropped += beliefs.len();
            beliefs.into_iter().for_each(|entry| _ = self.unmap(entry.lba));
            if mapped.is_empty() {
                self.index.remove_region(place);
            }
            if dropped >= wanted || mapped.is_empty() {
                return;
            }
        }
    }
}
