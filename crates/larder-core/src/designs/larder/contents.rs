//! The contents that the cache stores, or that an address has.
//!
//! A content has a place while it is stored. It is kept while an address names it, or while it is
//! stored and a search finds it by its fingerprint.
//!
//! Invariants: each place belongs to one content. No two contents are found by one fingerprint.
//! The records of a slot are listed by offset, and each stored content is among those of its slot.
//!
//! It does not choose.

use super::{
    addresses::ContentNumber,
    class::Class,
    content::{ContentState, hash_of},
    growth,
};
use crate::types::{Fingerprint, Lba, Place, SlotId, mix};
use hashbrown::HashTable;

/// Returns the number by which contents are sampled.
///
/// It is that of the fingerprint, or of the address of a content without one.
pub fn sample_key(lba: Lba, fingerprint: Option<&Fingerprint>) -> u64 {
    mix(fingerprint.map_or(lba.0, |fingerprint| hash_of(&fingerprint.0)))
}

/// The state of a content after an address has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Others name it.
    Named,
    /// No address names it, and it is stored.
    Unnamed,
    /// It is gone.
    Gone,
}

/// See the module.
pub struct Contents {
    all: Vec<ContentState>,
    free: Vec<u32>,
    found: HashTable<u32>,
    /// By slot, with ascending offsets.
    records: Vec<Vec<ContentNumber>>,
    /// The generation of each slot's records.
    generations: Vec<u32>,
    record_capacity: usize,
    stored: usize,
    /// Stored contents that are found by a fingerprint.
    known_stored: usize,
    export: u32,
    export_at: usize,
}

impl Contents {
    /// Returns no content, for so many slots.
    pub fn new(slot_count: u32) -> Contents {
        Contents {
            all: Vec::new(),
            free: Vec::new(),
            found: HashTable::new(),
            records: vec![Vec::new(); slot_count as usize],
            generations: vec![0; slot_count as usize],
            record_capacity: 0,
            stored: 0,
            known_stored: 0,
            export: 0,
            export_at: usize::MAX,
        }
    }

    /// Returns a content.
    #[inline]
    pub fn get(&self, id: ContentNumber) -> &ContentState {
        &self.all[id.0 as usize]
    }

    /// Returns a content, to change its counts.
    #[inline]
    pub fn get_mut(&mut self, id: ContentNumber) -> &mut ContentState {
        &mut self.all[id.0 as usize]
    }

    /// Counts the stored contents that are found by a fingerprint.
    pub fn known_stored(&self) -> usize {
        self.known_stored
    }

    /// Counts the stored contents.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// Counts the contents that are not stored.
    pub fn unstored(&self) -> usize {
        self.all.len() - self.free.len() - self.stored
    }

    /// Returns the content of this fingerprint.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<ContentNumber> {
        let is_it = |&id: &u32| self.all[id as usize].fingerprint().as_ref() == Some(fingerprint);
        self.found.find(hash_of(&fingerprint.0), is_it).map(|&id| ContentNumber(id))
    }

    /// Returns the place of a content, if it is stored.
    #[inline]
    pub fn place(&self, id: ContentNumber) -> Option<Place> {
        let content = self.get(id);
        content.place(self.generations[content.slot()?.0 as usize])
    }

    /// Returns the content that is stored at a place.
    pub fn at(&self, place: &Place) -> Option<ContentNumber> {
        let slot = place.slot.0 as usize;
        if *self.generations.get(slot)? != place.generation {
            return None;
        }
        let found = self.records[slot].get(self.position(slot, place.offset)).copied();
        found.filter(|&id| self.get(id).offset() == place.offset)
    }

    /// Returns the position of the first record of a slot that does not lie before an offset.
    fn position(&self, slot: usize, offset: u32) -> usize {
        self.records[slot].partition_point(|&id| self.get(id).offset() < offset)
    }

    /// Adds a content that is not stored, and that no address names.
    pub fn add(&mut self) -> ContentNumber {
        match self.free.pop() {
            Some(id) => {
                let storings = self.all[id as usize].storings();
                self.all[id as usize] = ContentState::new(storings);
                ContentNumber(id)
            }
            None => ContentNumber(growth::push(&mut self.all, ContentState::new(0)) as u32),
        }
    }

    /// Has a content found by a fingerprint, and no other one.
    pub fn know(&mut self, id: ContentNumber, fingerprint: &Fingerprint) {
        match self.find(fingerprint) {
            Some(known) if known == id => return,
            Some(known) => {
                self.unknow(known);
                self.drop_if_useless(known);
            }
            None => {}
        }
        self.unknow(id);
        let content = &mut self.all[id.0 as usize];
        content.know(fingerprint);
        self.known_stored += usize::from(content.is_stored());
        let all = &self.all;
        self.found.insert_unique(hash_of(&fingerprint.0), id.0, |&id| all[id as usize].hash());
    }

    /// Has no search find a content.
    pub fn unknow(&mut self, id: ContentNumber) {
        let content = &mut self.all[id.0 as usize];
        if !content.is_known() {
            return;
        }
        content.unknow();
        self.known_stored -= usize::from(content.is_stored());
        let hash = content.hash();
        if let Ok(entry) = self.found.find_entry(hash, |&known| known == id.0) {
            entry.remove();
        }
    }

    /// Notes that a content is stored at a place. It has no owner yet.
    pub fn store(&mut self, id: ContentNumber, place: &Place) {
        self.stored += 1;
        self.known_stored += usize::from(self.get(id).is_known());
        let export = self.export;
        self.get_mut(id).store(place, export);
        let slot = place.slot.0 as usize;
        debug_assert!(self.records[slot].is_empty() || self.generations[slot] == place.generation);
        self.generations[slot] = place.generation;
        let last = self.records[slot].last().map(|&last| self.get(last).offset());
        let at = match last {
            Some(last) if last > place.offset => self.position(slot, place.offset),
            _ => self.records[slot].len(),
        };
        let records = &mut self.records[slot];
        let before = records.capacity();
        records.insert(at, id);
        self.record_capacity += records.capacity() - before;
    }

    /// Returns the contents that are stored in a slot.
    pub fn in_slot(&self, slot: SlotId) -> impl Iterator<Item = (ContentNumber, &ContentState)> + '_ {
        self.records[slot.0 as usize].iter().map(|&id| (id, self.get(id)))
    }

    /// Gives all stored contents the same time of last use.
    pub fn use_all_at(&mut self, now: u32) {
        self.all.iter_mut().for_each(|content| content.used_at = now);
    }

    /// Gives a content its class and time of last use.
    pub fn restore_use(&mut self, id: ContentNumber, class: Class, used_at: u32) {
        let content = self.get_mut(id);
        content.set_class(class);
        content.used_at = used_at;
    }

    /// Takes back that records of a slot are to be stored again.
    pub fn keep_none_of(&mut self, slot: SlotId) {
        let ids: Vec<ContentNumber> = self.in_slot(slot).map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.get_mut(id).keep(false));
    }

    /// Ends all places in a slot. Contents that no address names are gone.
    pub fn empty(&mut self, slot: SlotId) {
        let records = std::mem::take(&mut self.records[slot.0 as usize]);
        self.record_capacity -= records.capacity();
        for id in records {
            self.leave(id);
            self.drop_if_useless(id);
        }
    }

    /// Names a content once less.
    pub fn release(&mut self, id: ContentNumber) -> Left {
        let content = self.get_mut(id);
        content.refs -= 1;
        if content.refs > 0 {
            return Left::Named;
        }
        if self.drop_if_useless(id) { Left::Gone } else { Left::Unnamed }
    }

    /// Removes a content that neither an address names nor a search finds in a slot. Returns
    /// whether it did.
    pub fn drop_if_useless(&mut self, id: ContentNumber) -> bool {
        let content = self.get(id);
        let is_useless = content.refs == 0 && !(content.is_stored() && content.is_known());
        if is_useless {
            if let Some(slot) = content.slot() {
                let slot = slot.0 as usize;
                let from = self.position(slot, content.offset());
                if self.records[slot].get(from) == Some(&id) {
                    self.records[slot].remove(from);
                }
                self.leave(id);
            }
            self.unknow(id);
            self.free.push(id.0);
        }
        is_useless
    }

    /// Ends the place of a stored content.
    fn leave(&mut self, id: ContentNumber) {
        let content = &mut self.all[id.0 as usize];
        content.leave();
        let was_known = content.is_known();
        self.stored -= 1;
        self.known_stored -= usize::from(was_known);
    }

    /// Begins an export: contents that are stored from now on are left out.
    pub fn begin_export(&mut self) {
        self.export = self.export.wrapping_add(1);
        self.export_at = 0;
    }

    /// Returns the next known contents of the export with their places; `None` at the end.
    pub fn next_exported(&mut self, max: usize) -> Option<Vec<(ContentNumber, Fingerprint, Place)>> {
        let from = self.export_at;
        if from >= self.all.len() {
            self.export_at = usize::MAX;
            return None;
        }
        let end = (from + max).min(self.all.len());
        self.export_at = end;
        let older = (from..end).zip(&self.all[from..end]).filter(|(_, content)| !content.is_newer_than(self.export));
        let told = |(id, content): (usize, &ContentState)| {
            let id = ContentNumber(id as u32);
            Some((id, content.fingerprint()?, self.place(id)?))
        };
        Some(older.filter_map(told).collect())
    }

    /// Returns all known contents with their places.
    pub fn all_known(&self) -> impl Iterator<Item = (Fingerprint, Place)> + '_ {
        let ids = (0..self.all.len() as u32).map(ContentNumber);
        ids.filter_map(|id| Some((self.get(id).fingerprint()?, self.place(id)?)))
    }

    /// Makes room for so many known contents.
    pub fn reserve(&mut self, contents: usize) {
        let all = &self.all;
        self.found.reserve(contents, |&id| all[id as usize].hash());
    }

    /// Returns the bytes that the search by fingerprint has allocated.
    pub fn search_ram_bytes(&self) -> usize {
        self.found.allocation_size()
    }

    /// Returns the other allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.all.capacity() * size_of::<ContentState>()
            + self.free.capacity() * size_of::<u32>()
            + self.records.capacity() * size_of::<Vec<ContentNumber>>()
            + self.record_capacity * size_of::<ContentNumber>()
            + self.generations.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(slot: u32, offset: u32) -> Place {
        Place { slot: SlotId(slot), generation: 3, offset, stored_len: 100, crc: 9, encoding: 1 }
    }

    fn fp(i: u8) -> Fingerprint {
        Fingerprint([i; 16])
    }

    #[test]
    fn a_content_is_found_while_it_is_stored_or_named() {
        let mut contents = Contents::new(4);
        let id = contents.add();
        contents.know(id, &fp(1));
        contents.store(id, &place(2, 500));
        contents.get_mut(id).set_owner(Lba((1 << 40) - 2));
        contents.get_mut(id).refs = 1;
        assert_eq!(contents.find(&fp(1)), Some(id));
        assert_eq!((contents.at(&place(2, 500)), contents.at(&place(2, 501))), (Some(id), None));
        assert_eq!((contents.place(id), contents.get(id).owner()), (Some(place(2, 500)), Some(Lba((1 << 40) - 2))));
        assert!(contents.at(&Place { generation: 2, ..place(2, 500) }).is_none(), "an older generation");
        contents.empty(SlotId(2));
        assert_eq!((contents.find(&fp(1)), contents.place(id)), (Some(id), None));
        assert_eq!((contents.release(id), contents.find(&fp(1))), (Left::Gone, None));
        let again = contents.add();
        assert!(again == id && contents.get(id).refs == 0 && contents.known_stored() == 0);
    }

    #[test]
    fn a_fingerprint_leads_to_its_newest_content() {
        let mut contents = Contents::new(4);
        let (old, new) = (contents.add(), contents.add());
        for (id, at) in [(old, place(0, 64)), (new, place(1, 64))] {
            contents.know(id, &fp(7));
            contents.store(id, &at);
            contents.get_mut(id).refs = 1;
        }
        assert_eq!((contents.find(&fp(7)), contents.known_stored()), (Some(new), 1));
        assert_eq!(contents.get(old).fingerprint(), None);
        assert!(contents.get(old).is_stored());
    }

    #[test]
    fn records_are_in_order_however_they_come() {
        let mut contents = Contents::new(1);
        for offset in [300, 100, 200, 400] {
            let id = contents.add();
            contents.store(id, &place(0, offset));
        }
        let offsets: Vec<u32> = contents.in_slot(SlotId(0)).map(|(_, content)| content.offset()).collect();
        assert_eq!(offsets, [100, 200, 300, 400]);
    }

    #[test]
    fn an_export_tells_each_known_content_once() {
        let mut contents = Contents::new(2);
        for i in 0..10 {
            let id = contents.add();
            contents.know(id, &fp(i));
            contents.store(id, &place(0, u32::from(i)));
        }
        contents.begin_export();
        let late = contents.add();
        contents.know(late, &fp(99));
        contents.store(late, &place(1, 0));
        let mut told = Vec::new();
        while let Some(piece) = contents.next_exported(3) {
            told.extend(piece.into_iter().map(|(_, known, _)| known.0[0]));
        }
        assert_eq!(told, (0..10).collect::<Vec<_>>());
    }
}
