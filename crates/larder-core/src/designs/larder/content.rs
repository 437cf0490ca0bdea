//! The state of a content, packed.
//!
//! A stored content is a [`ContentRecord`]. Once its record is gone, an address may still name it:
//! it is [`Remembered`] then.
//!
//! Invariants: 36 bytes and 17 bytes. A flash may hold hundreds of millions, so no bit is wasted:
//! slot and generation are those of all records of a block.

use super::{ages::Stamp, class::Class};
use crate::{
    lba_index::{LEN_BITS, OFFSET_BITS},
    types::{Fingerprint, Lba, Place, SlotId},
};

/// References that a content counts by itself. More of them are counted elsewhere.
pub const REFS_MAX: u8 = u8::MAX;
/// No address: the highest number of 40 bits, which no chunk has.
const NOBODY: Lba = Lba((1 << 40) - 1);
const ENCODING_SHIFT: u32 = OFFSET_BITS;
const ENCODING_MASK: u32 = (1 << 7) - 1;
const KNOWN: u32 = 1 << 29;
const KEPT: u32 = 1 << 30;
const SHARED: u32 = 1 << 31;
const CLASS_SHIFT: u32 = LEN_BITS;
const CLASS_MASK: u32 = (1 << 6) - 1;
const OWNER_SHIFT: u32 = 24;
const REFS_SHIFT: u32 = 24;

/// A stored content.
#[derive(Clone, Copy, Debug)]
pub struct ContentRecord {
    fingerprint: [u8; 16],
    crc: u32,
    /// Offset (22 bits), encoding (7), known by its fingerprint (1), kept (1), shared before (1).
    at: u32,
    /// Stored length (18 bits), class (6), high bits of the owner (8).
    form: u32,
    owner_low: u32,
    /// Time of the last use (24 bits), references (8).
    uses: u32,
}

/// A content that is not stored: its fingerprint, or zeroes for none, and its references.
#[derive(Clone, Copy, Debug)]
pub struct Remembered {
    pub fingerprint: [u8; 16],
    pub refs: u8,
}

impl ContentRecord {
    /// Makes a record at a place. It has no owner, no class and no references yet.
    pub fn new(place: &Place) -> ContentRecord {
        debug_assert!(place.offset >> OFFSET_BITS == 0 && place.stored_len >> LEN_BITS == 0);
        debug_assert!(u32::from(place.encoding) <= ENCODING_MASK);
        let mut record = ContentRecord {
            fingerprint: [0; 16],
            crc: place.crc,
            at: u32::from(place.encoding) << ENCODING_SHIFT | place.offset,
            form: place.stored_len,
            owner_low: 0,
            uses: 0,
        };
        record.set_owner(NOBODY);
        record.set_class(Class::live(0, false, 0.0));
        record
    }

    /// Returns its place in a slot.
    #[inline]
    pub fn place(&self, slot: SlotId, generation: u32) -> Place {
        Place {
            slot,
            generation,
            offset: self.offset(),
            stored_len: self.stored_len(),
            crc: self.crc,
            encoding: (self.at >> ENCODING_SHIFT & ENCODING_MASK) as u8,
        }
    }

    /// Returns its offset in its slot.
    pub fn offset(&self) -> u32 {
        self.at & ((1 << OFFSET_BITS) - 1)
    }

    /// Returns its bytes.
    pub fn stored_len(&self) -> u32 {
        self.form & ((1 << LEN_BITS) - 1)
    }

    /// Returns whether it was stored for this address.
    pub fn is_of(&self, lba: Lba) -> bool {
        self.owner() == Some(lba)
    }

    /// Returns the address that it was stored for; none after a restart that knows no such one.
    pub fn owner(&self) -> Option<Lba> {
        Some(Lba(u64::from(self.form >> OWNER_SHIFT) << 32 | u64::from(self.owner_low)))
            .filter(|&owner| owner != NOBODY)
    }

    /// Notes the address that it was stored for.
    pub fn set_owner(&mut self, owner: Lba) {
        self.owner_low = owner.0 as u32;
        self.form = self.form & ((1 << OWNER_SHIFT) - 1) | (owner.0 >> 32 << OWNER_SHIFT) as u32;
    }

    /// Returns its class.
    #[inline]
    pub fn class(&self) -> Class {
        Class::of_index((self.form >> CLASS_SHIFT & CLASS_MASK) as usize)
    }

    /// Gives it a class.
    pub fn set_class(&mut self, class: Class) {
        self.form = self.form & !(CLASS_MASK << CLASS_SHIFT) | (class.index() as u32) << CLASS_SHIFT;
    }

    /// Returns the time of its last use.
    #[inline]
    pub fn used_at(&self) -> Stamp {
        Stamp(self.uses & ((1 << REFS_SHIFT) - 1))
    }

    /// Gives it a time of last use.
    pub fn use_at(&mut self, time: Stamp) {
        self.uses = self.uses & !((1 << REFS_SHIFT) - 1) | time.0;
    }

    /// Counts the addresses that name it, up to [`REFS_MAX`].
    #[inline]
    pub fn refs(&self) -> u8 {
        (self.uses >> REFS_SHIFT) as u8
    }

    /// Notes the count of the addresses that name it.
    pub fn set_refs(&mut self, refs: u8) {
        self.uses = self.uses & ((1 << REFS_SHIFT) - 1) | u32::from(refs) << REFS_SHIFT;
    }

    /// Returns its fingerprint, if it is found by one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.is_known().then_some(Fingerprint(self.fingerprint))
    }

    /// Returns whether it is found by its fingerprint.
    pub fn is_known(&self) -> bool {
        self.at & KNOWN != 0
    }

    /// Has it found by a fingerprint.
    pub fn know(&mut self, fingerprint: &Fingerprint) {
        self.fingerprint = fingerprint.0;
        self.at |= KNOWN;
    }

    /// Has it found by none.
    pub fn unknow(&mut self) {
        self.at &= !KNOWN;
    }

    /// Returns whether it is to be stored again once its slot ends, for it is worth more.
    pub fn is_kept(&self) -> bool {
        self.at & KEPT != 0
    }

    /// Notes whether it is to be stored again.
    pub fn keep(&mut self, is_kept: bool) {
        self.at = if is_kept { self.at | KEPT } else { self.at & !KEPT };
    }

    /// Returns whether several addresses have this content, some by another number.
    pub fn is_shared(&self) -> bool {
        self.is_elsewhere() || self.refs() > 1
    }

    /// Returns whether other addresses had this content by another number.
    pub fn is_elsewhere(&self) -> bool {
        self.at & SHARED != 0
    }

    /// Notes whether other addresses have this content by another number.
    pub fn share(&mut self, is_elsewhere: bool) {
        self.at = if is_elsewhere { self.at | SHARED } else { self.at & !SHARED };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::larder::class::CLASSES;

    #[test]
    fn records_are_36_bytes_and_keep_every_field() {
        assert_eq!((size_of::<ContentRecord>(), size_of::<Remembered>()), (36, 17));
        assert!(CLASSES <= CLASS_MASK as usize + 1);
        let (slot, offset, stored_len) = (SlotId(u32::MAX - 1), (1 << OFFSET_BITS) - 1, (1 << LEN_BITS) - 1);
        let place = Place { slot, generation: 7, offset, stored_len, crc: u32::MAX, encoding: 127 };
        let mut record = ContentRecord::new(&place);
        assert_eq!((record.place(slot, 7), record.owner(), record.class().index()), (place, None, 0));
        let lba = Lba((1 << 40) - 2);
        record.know(&Fingerprint([9; 16]));
        record.keep(true);
        record.share(true);
        record.set_owner(lba);
        record.set_class(Class::of_index(CLASSES - 1));
        record.use_at(Stamp((1 << 24) - 1));
        record.set_refs(REFS_MAX);
        assert_eq!((record.place(slot, 7), record.owner(), record.refs()), (place, Some(lba), REFS_MAX));
        assert_eq!((record.class().index(), record.used_at()), (CLASSES - 1, Stamp((1 << 24) - 1)));
        assert_eq!(record.fingerprint(), Some(Fingerprint([9; 16])));
        record.set_refs(0);
        record.use_at(Stamp(0));
        assert!(record.is_kept() && record.is_shared() && record.is_of(lba) && record.refs() == 0);
        record.keep(false);
        record.unknow();
        assert_eq!((record.fingerprint(), record.is_kept(), record.place(slot, 7)), (None, false, place));
    }
}
