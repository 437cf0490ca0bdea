//! The state of a content, packed.
//!
//! Invariants: 48 bytes. A flash may hold hundreds of millions, so no bit is wasted: a place has no
//! generation, for all records of a slot have that of the slot.
//!
//! It does not know which contents there are.

use super::{addresses::STORINGS_MASK, class::Class};
use crate::{
    lba_index::{LEN_BITS, OFFSET_BITS},
    types::{Fingerprint, Lba, Place, SlotId},
};

/// No slot.
const NOWHERE: u32 = u32::MAX;
/// No address: the highest number of 40 bits, which no chunk has.
const NOBODY: Lba = Lba((1 << 40) - 1);
const ENCODING_SHIFT: u32 = OFFSET_BITS;
const KNOWN: u32 = 1 << 30;
const KEPT: u32 = 1 << 31;
const CLASS_SHIFT: u32 = LEN_BITS;
const CLASS_MASK: u32 = (1 << 6) - 1;
const OWNER_SHIFT: u32 = 24;
const EXPORT_SHIFT: u32 = 20;

/// A content.
#[derive(Clone, Copy, Debug)]
pub struct ContentState {
    fingerprint: [u8; 16],
    slot: u32,
    crc: u32,
    /// Offset (22 bits), encoding (8), known by its fingerprint (1), kept (1).
    at: u32,
    /// Stored length (18 bits), class (6), high bits of the owner (8).
    form: u32,
    /// Storings (20 bits), and the export after which it was stored (12), both modulo.
    times: u32,
    owner_low: u32,
    /// Addresses that name it.
    pub refs: u32,
    /// The request that used it last.
    pub used_at: u32,
}

impl ContentState {
    /// Makes a content that is not stored, and that no address names.
    ///
    /// `storings` goes on from the last content under its number: entries that are left of it are
    /// no mappings then.
    pub fn new(storings: u32) -> ContentState {
        let mut fresh = ContentState {
            fingerprint: [0; 16],
            slot: NOWHERE,
            crc: 0,
            at: 0,
            form: 0,
            times: storings & STORINGS_MASK,
            owner_low: 0,
            refs: 0,
            used_at: 0,
        };
        fresh.set_class(Class::live(0, false, 0.0));
        fresh
    }

    /// Returns its place, if it is stored. `generation` is that of its slot.
    #[inline]
    pub fn place(&self, generation: u32) -> Option<Place> {
        self.is_stored().then_some(Place {
            slot: SlotId(self.slot),
            generation,
            offset: self.offset(),
            stored_len: self.stored_len(),
            crc: self.crc,
            encoding: (self.at >> ENCODING_SHIFT) as u8,
        })
    }

    /// Returns whether it is stored.
    #[inline]
    pub fn is_stored(&self) -> bool {
        self.slot != NOWHERE
    }

    /// Returns the slot that it is stored in.
    pub fn slot(&self) -> Option<SlotId> {
        self.is_stored().then_some(SlotId(self.slot))
    }

    /// Returns the offset of its last record in its slot.
    pub fn offset(&self) -> u32 {
        self.at & ((1 << OFFSET_BITS) - 1)
    }

    /// Returns how often it was stored.
    pub fn storings(&self) -> u32 {
        self.times & STORINGS_MASK
    }

    /// Returns whether it was stored after this export began.
    ///
    /// Exports count modulo 2^12. One export in 4,096 leaves a content out that it should have.
    pub fn is_newer_than(&self, export: u32) -> bool {
        self.times >> EXPORT_SHIFT == export & (u32::MAX >> EXPORT_SHIFT)
    }

    /// Returns the bytes of its last record.
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
    pub fn class(&self) -> Class {
        Class::of_index((self.form >> CLASS_SHIFT & CLASS_MASK) as usize)
    }

    /// Gives it a class.
    pub fn set_class(&mut self, class: Class) {
        self.form = self.form & !(CLASS_MASK << CLASS_SHIFT) | (class.index() as u32) << CLASS_SHIFT;
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

    /// Returns whether it is to be stored again, for it left with its slot and was worth more.
    pub fn is_kept(&self) -> bool {
        self.at & KEPT != 0
    }

    /// Notes whether it is to be stored again.
    pub fn keep(&mut self, is_kept: bool) {
        self.at = if is_kept { self.at | KEPT } else { self.at & !KEPT };
    }

    /// Notes that it is stored at a place, during or after an export. It has no owner yet.
    pub fn store(&mut self, place: &Place, export: u32) {
        debug_assert!(place.offset >> OFFSET_BITS == 0 && place.stored_len >> LEN_BITS == 0);
        debug_assert!(!self.is_stored());
        (self.slot, self.crc) = (place.slot.0, place.crc);
        self.at = self.at & KNOWN | u32::from(place.encoding) << ENCODING_SHIFT | place.offset;
        self.form = self.form & !((1 << LEN_BITS) - 1) | place.stored_len;
        self.times = (self.storings() + 1) & STORINGS_MASK | export << EXPORT_SHIFT;
        self.set_owner(NOBODY);
    }

    /// Notes that it is stored no more.
    pub fn leave(&mut self) {
        self.slot = NOWHERE;
    }

    /// Returns the number by which a table finds it.
    pub fn hash(&self) -> u64 {
        hash_of(&self.fingerprint)
    }
}

/// Returns the number by which a table finds a fingerprint.
pub fn hash_of(fingerprint: &[u8; 16]) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&fingerprint[..8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::larder::class::CLASSES;

    #[test]
    fn states_are_48_bytes_and_keep_every_field() {
        assert_eq!(size_of::<ContentState>(), 48);
        assert!(CLASSES <= CLASS_MASK as usize + 1);
        let mut content = ContentState::new(STORINGS_MASK);
        assert!(!content.is_stored() && content.owner() == Some(Lba(0)) && content.class().index() == 0);
        let (slot, offset, stored_len) = (SlotId(u32::MAX - 1), (1 << OFFSET_BITS) - 1, (1 << LEN_BITS) - 1);
        let place = Place { slot, generation: 7, offset, stored_len, crc: u32::MAX, encoding: u8::MAX };
        content.know(&Fingerprint([9; 16]));
        content.keep(true);
        content.store(&place, (3 << 12) + 5);
        assert_eq!((content.place(7), content.slot(), content.owner()), (Some(place), Some(slot), None));
        assert!(!content.is_kept() && content.storings() == 0);
        assert!(content.is_newer_than(5) && !content.is_newer_than(6));
        content.set_owner(Lba((1 << 40) - 2));
        content.set_class(Class::of_index(CLASSES - 1));
        content.keep(true);
        assert_eq!((content.place(7), content.owner()), (Some(place), Some(Lba((1 << 40) - 2))));
        assert_eq!((content.class().index(), content.fingerprint()), (CLASSES - 1, Some(Fingerprint([9; 16]))));
        content.unknow();
        content.leave();
        assert_eq!((content.fingerprint(), content.place(7), content.is_kept()), (None, None, true));
        assert_eq!((content.stored_len(), content.class().index()), (stored_len, CLASSES - 1));
    }
}
