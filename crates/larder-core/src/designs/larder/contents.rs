//! The contents that the cache stores, or that an address has.
//!
//! A content has a place while it is stored. It is kept while an address names it, or while it is
//! stored and a search finds it by its fingerprint. Each storing gives it another number: addresses
//! that named it before find it by its fingerprint.
//!
//! Invariants: each place belongs to one content. A search finds at most one stored content by a
//! fingerprint, and one that is not stored. The records of a slot are listed by offset.
//!
//! It does not choose.

use super::{
    addresses::ContentNumber,
    ages::Stamp,
    blocks::{ContentBlocks, ContentMut, ContentView},
    by_number::ByNumber,
    class::Class,
    content::{ContentRecord, REFS_MAX, Remembered},
};
use crate::{
    fp_index::hash_of,
    sharded::Sharded,
    types::{Fingerprint, Lba, Place, SlotId, mix},
};

/// Returns the number by which contents are sampled.
///
/// It is that of the fingerprint, or of the address of a content without one.
pub fn sample_key(lba: Lba, fingerprint: Option<&Fingerprint>) -> u64 {
    fingerprint.map_or(mix(lba.0), content_key)
}

/// Returns the number by which a content with a fingerprint is sampled.
pub fn content_key(fingerprint: &Fingerprint) -> u64 {
    mix(hash_of(&fingerprint.0))
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

/// The records of a slot.
#[derive(Default)]
struct SlotRecords {
    /// With ascending offsets.
    all: Vec<ContentNumber>,
    generation: u32,
    /// The block that takes the next record.
    open: Option<u32>,
}

/// See the module.
pub struct Contents {
    blocks: ContentBlocks,
    found: Sharded<u32>,
    slots: Vec<SlotRecords>,
    record_capacity: usize,
    /// Stored contents that are found by a fingerprint.
    known_stored: usize,
    /// The references of contents that have many.
    refs: ByNumber<u32, u32>,
    /// Contents that are to be stored again, with the knowledge of their last record.
    kept: ByNumber<u32, (Class, Stamp)>,
    export: u32,
}

impl Contents {
    /// Returns no content, for so many slots and contents; it does not refuse more contents.
    pub fn new(slot_count: u32, contents_max: u64) -> Contents {
        Contents {
            blocks: ContentBlocks::default(),
            found: Sharded::new(contents_max),
            slots: (0..slot_count).map(|_| SlotRecords::default()).collect(),
            record_capacity: 0,
            known_stored: 0,
            refs: ByNumber::default(),
            kept: ByNumber::default(),
            export: 0,
        }
    }

    /// Returns the record of a content, if it is stored.
    #[inline]
    pub fn record(&self, id: ContentNumber) -> Option<&ContentRecord> {
        match self.blocks.get(id) {
            ContentView::Stored(_, record) => Some(record),
            ContentView::Remembered(_) => None,
        }
    }

    /// Returns the record of a content, to change it.
    #[inline]
    pub fn record_mut(&mut self, id: ContentNumber) -> Option<&mut ContentRecord> {
        match self.blocks.get_mut(id) {
            ContentMut::Stored(record) => Some(record),
            ContentMut::Remembered(_) => None,
        }
    }

    /// Returns whether a content is stored.
    #[inline]
    pub fn is_stored(&self, id: ContentNumber) -> bool {
        self.record(id).is_some()
    }

    /// Returns the slot of a content, if it is stored.
    #[inline]
    pub fn slot(&self, id: ContentNumber) -> Option<SlotId> {
        match self.blocks.get(id) {
            ContentView::Stored(slot, _) => Some(slot),
            ContentView::Remembered(_) => None,
        }
    }

    /// Returns the place of a content, if it is stored.
    #[inline]
    pub fn place(&self, id: ContentNumber) -> Option<Place> {
        self.place_and_record(id).map(|(place, _)| place)
    }

    /// Returns the place of a content and its record, if it is stored.
    #[inline]
    pub fn place_and_record(&self, id: ContentNumber) -> Option<(Place, &ContentRecord)> {
        match self.blocks.get(id) {
            ContentView::Stored(slot, record) => {
                Some((record.place(slot, self.slots[slot.0 as usize].generation), record))
            }
            ContentView::Remembered(_) => None,
        }
    }

    /// Returns the fingerprint of a content, if it has one.
    pub fn fingerprint(&self, id: ContentNumber) -> Option<Fingerprint> {
        match self.blocks.get(id) {
            ContentView::Stored(_, record) => record.fingerprint(),
            ContentView::Remembered(content) => {
                Some(Fingerprint(content.fingerprint)).filter(|known| known.0 != [0; 16])
            }
        }
    }

    /// Counts the addresses that name a content.
    pub fn refs(&self, id: ContentNumber) -> u32 {
        let refs = match self.blocks.get(id) {
            ContentView::Stored(_, record) => record.refs(),
            ContentView::Remembered(content) => content.refs,
        };
        if refs == REFS_MAX { self.refs.get(&id.0).copied().unwrap_or(refs.into()) } else { refs.into() }
    }

    fn set_refs(&mut self, id: ContentNumber, refs: u32) {
        let own = refs.min(REFS_MAX.into()) as u8;
        match self.blocks.get_mut(id) {
            ContentMut::Stored(record) => record.set_refs(own),
            ContentMut::Remembered(content) => content.refs = own,
        }
        if own == REFS_MAX {
            self.refs.insert(id.0, refs);
        } else if own == REFS_MAX - 1 {
            self.refs.remove(&id.0);
        }
    }

    /// Names a content once more.
    pub fn name(&mut self, id: ContentNumber) {
        self.set_refs(id, self.refs(id) + 1);
    }

    /// Names a content once less.
    pub fn release(&mut self, id: ContentNumber) -> Left {
        let refs = self.refs(id) - 1;
        self.set_refs(id, refs);
        match refs {
            0 if self.drop_if_useless(id) => Left::Gone,
            0 => Left::Unnamed,
            _ => Left::Named,
        }
    }

    /// Looks whether other addresses still have a content by another number, if they had.
    pub fn review_sharing(&mut self, id: ContentNumber) {
        let known = self.record(id).filter(|record| record.is_elsewhere()).and_then(ContentRecord::fingerprint);
        if known.is_some_and(|known| self.find_remembered(&known).is_none())
            && let Some(record) = self.record_mut(id)
        {
            record.share(false);
        }
    }

    /// Counts the stored contents that are found by a fingerprint.
    pub fn known_stored(&self) -> usize {
        self.known_stored
    }

    /// Counts the stored contents.
    #[cfg(test)]
    pub fn stored(&self) -> usize {
        self.slots.iter().map(|slot| slot.all.len()).sum()
    }

    /// Counts the contents that are not stored.
    pub fn unstored(&self) -> usize {
        self.blocks.remembered()
    }

    fn hash(blocks: &ContentBlocks, id: u32) -> u64 {
        match blocks.get(ContentNumber(id)) {
            ContentView::Stored(_, record) => record.fingerprint().map_or(0, |known| hash_of(&known.0)),
            ContentView::Remembered(content) => hash_of(&content.fingerprint),
        }
    }

    fn find_where(&self, fingerprint: &Fingerprint, is_stored: bool) -> Option<ContentNumber> {
        let is_it = |&id: &u32| match self.blocks.get(ContentNumber(id)) {
            ContentView::Stored(_, record) => is_stored && record.fingerprint().as_ref() == Some(fingerprint),
            ContentView::Remembered(content) => !is_stored && content.fingerprint == fingerprint.0,
        };
        self.found.find(hash_of(&fingerprint.0), is_it).map(|&id| ContentNumber(id))
    }

    /// Returns the stored content of this fingerprint.
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<ContentNumber> {
        self.find_where(fingerprint, true)
    }

    /// Returns the content of this fingerprint that is not stored, if addresses name one.
    pub fn find_remembered(&self, fingerprint: &Fingerprint) -> Option<ContentNumber> {
        self.find_where(fingerprint, false)
    }

    fn lead_to(&mut self, id: ContentNumber, fingerprint: &Fingerprint) {
        let blocks = &self.blocks;
        self.found.insert(hash_of(&fingerprint.0), id.0, |&id| Self::hash(blocks, id));
    }

    /// Ends the search that leads to a content.
    fn mislay(&mut self, id: ContentNumber, fingerprint: &Fingerprint) {
        self.found.remove(hash_of(&fingerprint.0), |&known| known == id.0);
    }

    /// Returns the content that is stored at a place.
    pub fn at(&self, place: &Place) -> Option<ContentNumber> {
        let slot = self.slots.get(place.slot.0 as usize).filter(|slot| slot.generation == place.generation)?;
        let found = slot.all.get(self.position(slot, place.offset)).copied();
        found.filter(|&id| self.offset(id) == place.offset)
    }

    fn offset(&self, id: ContentNumber) -> u32 {
        self.record(id).map_or(0, ContentRecord::offset)
    }

    /// Returns the position of the first record of a slot that does not lie before an offset.
    fn position(&self, slot: &SlotRecords, offset: u32) -> usize {
        match slot.all.last() {
            Some(&last) if self.offset(last) < offset => slot.all.len(),
            _ => slot.all.partition_point(|&id| self.offset(id) < offset),
        }
    }

    /// Adds a content that is not stored. A search finds it, and no other such one.
    pub fn remember(&mut self, fingerprint: &Fingerprint) -> ContentNumber {
        if let Some(other) = self.find_remembered(fingerprint) {
            self.mislay(other, fingerprint);
        }
        let id = self.blocks.remember(Remembered { fingerprint: fingerprint.0, refs: 0 });
        self.lead_to(id, fingerprint);
        id
    }

    /// Has a stored content found by a fingerprint, and no other stored one.
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
        if let Some(record) = self.record_mut(id) {
            record.know(fingerprint);
            self.known_stored += 1;
            self.lead_to(id, fingerprint);
        }
    }

    /// Has no search find a stored content.
    pub fn unknow(&mut self, id: ContentNumber) {
        let Some(record) = self.record_mut(id) else { return };
        let Some(fingerprint) = record.fingerprint() else { return };
        self.mislay(id, &fingerprint);
        self.known_stored -= 1;
        if let Some(record) = self.record_mut(id) {
            record.unknow();
        }
    }

    /// Adds a content that is stored at a place. It has no owner and no fingerprint yet.
    pub fn store(&mut self, place: &Place) -> ContentNumber {
        let slot = &mut self.slots[place.slot.0 as usize];
        debug_assert!(slot.all.is_empty() || slot.generation == place.generation);
        slot.generation = place.generation;
        let id = self.blocks.store(slot.open, place.slot, self.export, ContentRecord::new(place));
        slot.open = Some(ContentBlocks::block_of(id));
        let at = self.position(&self.slots[place.slot.0 as usize], place.offset);
        let all = &mut self.slots[place.slot.0 as usize].all;
        let before = all.capacity();
        all.insert(at, id);
        self.record_capacity += all.capacity() - before;
        id
    }

    /// Gives back the room of a slot that gets no more records.
    pub fn seal(&mut self, slot: SlotId) {
        let slot = &mut self.slots[slot.0 as usize];
        let before = slot.all.capacity();
        slot.all.shrink_to_fit();
        self.record_capacity -= before - slot.all.capacity();
        if let Some(open) = slot.open.take() {
            self.blocks.shrink(open);
        }
    }

    /// Returns the contents that are stored in a slot.
    pub fn in_slot(&self, slot: SlotId) -> impl Iterator<Item = (ContentNumber, &ContentRecord)> + '_ {
        self.slots[slot.0 as usize].all.iter().filter_map(|&id| Some((id, self.record(id)?)))
    }

    fn in_slot_mut(&mut self, slot: SlotId, mut change: impl FnMut(&mut ContentRecord)) {
        let Contents { blocks, slots, .. } = self;
        for &id in &slots[slot.0 as usize].all {
            if let ContentMut::Stored(record) = blocks.get_mut(id) {
                change(record);
            }
        }
    }

    /// Gives all stored contents the same time of last use.
    pub fn use_all_at(&mut self, time: Stamp) {
        (0..self.slots.len() as u32).for_each(|slot| self.in_slot_mut(SlotId(slot), |record| record.use_at(time)));
    }

    /// Takes back that records of a slot are to be stored again.
    pub fn keep_none_of(&mut self, slot: SlotId) {
        self.in_slot_mut(slot, |record| record.keep(false));
    }

    /// Returns whether a content is to be stored again.
    pub fn is_kept(&self, id: ContentNumber) -> bool {
        self.record(id).map_or_else(|| self.kept.contains_key(&id.0), ContentRecord::is_kept)
    }

    /// Returns the knowledge of a content that is to be stored again, for it is now.
    pub fn take_kept(&mut self, id: ContentNumber) -> Option<(Class, Stamp)> {
        self.kept.remove(&id.0)
    }

    /// Ends all places in a slot. Contents that no address names are gone.
    pub fn empty(&mut self, slot: SlotId) {
        let slot = &mut self.slots[slot.0 as usize];
        let records = std::mem::take(&mut slot.all);
        slot.open = None;
        self.record_capacity -= records.capacity();
        // The last storing is the one that a search finds.
        for &id in &records {
            let known = self.fingerprint(id);
            self.known_stored -= usize::from(known.is_some());
            if let Some(known) = known {
                let found = if self.refs(id) > 0 { self.find_remembered(&known) } else { Some(id) };
                found.into_iter().for_each(|found| self.mislay(found, &known));
            }
        }
        let mut blocks: Vec<u32> = records.into_iter().map(ContentBlocks::block_of).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let kept = &mut self.kept;
        for block in blocks {
            self.blocks.end(block, |id, record| {
                if record.refs() > 0 && record.is_kept() {
                    kept.insert(id.0, (record.class(), record.used_at()));
                }
                let fingerprint = record.fingerprint().map_or([0; 16], |known| known.0);
                (record.refs() > 0).then_some(Remembered { fingerprint, refs: record.refs() })
            });
        }
    }

    /// Removes a content that neither an address names nor a search finds in a slot. Returns
    /// whether it did.
    pub fn drop_if_useless(&mut self, id: ContentNumber) -> bool {
        if self.refs(id) > 0 {
            return false;
        }
        match self.place_and_record(id) {
            Some((_, record)) if record.is_known() => return false,
            Some((place, _)) => {
                let from = self.position(&self.slots[place.slot.0 as usize], place.offset);
                let all = &mut self.slots[place.slot.0 as usize].all;
                if all.get(from) == Some(&id) {
                    all.remove(from);
                }
            }
            None => {
                if let Some(fingerprint) = self.fingerprint(id) {
                    self.mislay(id, &fingerprint);
                }
                self.kept.remove(&id.0);
            }
        }
        self.blocks.remove(id);
        true
    }

    /// Begins an export: contents that are stored from now on are none of it.
    pub fn begin_export(&mut self) {
        self.export = self.export.wrapping_add(1);
    }

    /// Returns whether a stored content came before the last export began.
    pub fn is_exported(&self, id: ContentNumber) -> bool {
        self.blocks.export_of(id) != self.export
    }

    /// Returns all known contents with their places.
    pub fn all_known(&self) -> impl Iterator<Item = (Fingerprint, Place)> + '_ {
        let all = (0..self.blocks.count()).flat_map(|block| self.blocks.stored_in(block));
        all.filter_map(|(id, record)| Some((record.fingerprint()?, self.place(id)?)))
    }

    /// Makes room for so many known contents.
    pub fn reserve(&mut self, contents: u64) {
        let blocks = &self.blocks;
        self.found.reserve(contents, |&id| Self::hash(blocks, id));
    }

    /// Returns the bytes that the search by fingerprint has allocated.
    pub fn search_ram_bytes(&self) -> usize {
        self.found.ram_bytes()
    }

    /// Returns the other allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.blocks.ram_bytes()
            + self.slots.capacity() * size_of::<SlotRecords>()
            + self.record_capacity * size_of::<ContentNumber>()
            + self.refs.allocation_size()
            + self.kept.allocation_size()
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

    fn add(contents: &mut Contents, fingerprint: u8, at: &Place) -> ContentNumber {
        let id = contents.store(at);
        contents.know(id, &fp(fingerprint));
        id
    }

    #[test]
    fn a_content_is_found_while_it_is_stored_or_named() {
        let mut contents = Contents::new(4, 0);
        let id = add(&mut contents, 1, &place(2, 500));
        contents.name(id);
        assert_eq!(contents.find(&fp(1)), Some(id));
        assert_eq!((contents.at(&place(2, 500)), contents.at(&place(2, 501))), (Some(id), None));
        assert_eq!(contents.place(id), Some(place(2, 500)));
        assert!(contents.at(&Place { generation: 2, ..place(2, 500) }).is_none(), "an older generation");
        contents.empty(SlotId(2));
        assert_eq!((contents.find(&fp(1)), contents.place(id), contents.unstored()), (None, None, 1));
        assert_eq!((contents.find_remembered(&fp(1)), contents.fingerprint(id)), (Some(id), Some(fp(1))));
        let again = add(&mut contents, 1, &place(1, 0));
        assert!(again != id && contents.find(&fp(1)) == Some(again) && contents.find_remembered(&fp(1)) == Some(id));
        assert_eq!((contents.release(id), contents.find_remembered(&fp(1))), (Left::Gone, None));
        assert_eq!((contents.unstored(), contents.known_stored(), contents.stored()), (0, 1, 1));
    }

    #[test]
    fn a_fingerprint_leads_to_its_newest_content() {
        let mut contents = Contents::new(4, 0);
        let [old, new] = [0, 1].map(|slot| {
            let id = add(&mut contents, 7, &place(slot, 64));
            contents.name(id);
            id
        });
        assert_eq!((contents.find(&fp(7)), contents.known_stored()), (Some(new), 1));
        assert_eq!(contents.fingerprint(old), None);
        assert!(contents.is_stored(old));
        // Both are remembered, and one has a fingerprint.
        (0..2).for_each(|slot| contents.empty(SlotId(slot)));
        assert_eq!((contents.find_remembered(&fp(7)), contents.fingerprint(old)), (Some(new), None));
        let third = contents.remember(&fp(7));
        assert_eq!((contents.find_remembered(&fp(7)), contents.fingerprint(new)), (Some(third), Some(fp(7))));
    }

    #[test]
    fn records_are_in_order_however_they_come() {
        let mut contents = Contents::new(1, 0);
        for offset in [300, 100, 200, 400] {
            contents.store(&place(0, offset));
        }
        let offsets: Vec<u32> = contents.in_slot(SlotId(0)).map(|(_, record)| record.offset()).collect();
        assert_eq!(offsets, [100, 200, 300, 400]);
    }

    #[test]
    fn references_are_exact_however_many() {
        let mut contents = Contents::new(1, 0);
        let id = add(&mut contents, 1, &place(0, 0));
        (0..1000).for_each(|_| contents.name(id));
        (0..500).for_each(|_| assert_eq!(contents.release(id), Left::Named));
        contents.empty(SlotId(0));
        (0..499).for_each(|_| assert_eq!(contents.release(id), Left::Named));
        assert_eq!((contents.refs(id), contents.refs.len()), (1, 0));
        assert_eq!(contents.release(id), Left::Gone);
    }

    #[test]
    fn a_kept_content_hands_its_knowledge_on_once() {
        let mut contents = Contents::new(2, 0);
        let id = add(&mut contents, 1, &place(0, 0));
        contents.name(id);
        let class = Class::live(2, true, 0.9);
        let record = contents.record_mut(id).expect("it is stored");
        record.set_class(class);
        record.use_at(Stamp(77));
        record.keep(true);
        assert!(contents.is_kept(id));
        contents.empty(SlotId(0));
        assert!(contents.is_kept(id));
        assert_eq!((contents.take_kept(id), contents.take_kept(id)), (Some((class, Stamp(77))), None));
    }

    #[test]
    fn an_export_has_the_contents_that_came_before_it() {
        let mut contents = Contents::new(2, 0);
        let old: Vec<_> = (0..100).map(|i| add(&mut contents, i, &place(0, u32::from(i)))).collect();
        contents.begin_export();
        let new = [add(&mut contents, 250, &place(0, 1000)), add(&mut contents, 251, &place(1, 0))];
        assert!(old.iter().all(|&id| contents.is_exported(id)) && !new.iter().any(|&id| contents.is_exported(id)));
        contents.begin_export();
        assert!(new.iter().all(|&id| contents.is_exported(id)));
    }

    #[test]
    fn numbers_are_used_again_and_ram_goes_with_the_contents() {
        let mut contents = Contents::new(8, 0);
        let mut named = Vec::new();
        for round in 0..200u32 {
            let slot = round % 8;
            contents.empty(SlotId(slot));
            for i in 0..100 {
                let id = contents.store(&place(slot, i));
                contents.name(id);
                named.push(id);
            }
            contents.seal(SlotId(slot));
            if named.len() > 1600 {
                named.drain(..100).for_each(|id| _ = contents.release(id));
            }
        }
        assert!(contents.blocks.count() < 64, "{} blocks", contents.blocks.count());
        let each = contents.ram_bytes() as f64 / 800.0;
        assert!(each < 80.0, "{each} bytes a stored content, with one more that is remembered");
        named.into_iter().for_each(|id| _ = contents.release(id));
        assert_eq!((contents.stored(), contents.unstored()), (0, 0));
    }
}
