//! The metadata region on flash: for each data slot, a metadata slot that spares RAM its content.
//!
//! A metadata slot has the chunk's fingerprint, its stored length and the addresses that share it
//! (AustereCache §3.1; any design may keep a region). A [`RegionEntry`] is such a slot with the
//! place of its chunk, for the calls between design and engine.
//!
//! A slot has 512 bytes. It holds `(512 - 16 - fingerprint, rounded up to 8) / 8` addresses
//! ([`lbas_max`]): 60 with our fingerprint of 16 bytes, 59 with 20 and 58 with 32. Eight bytes are
//! length, count and the oldest's position; eight are left for the layout on flash. A full list
//! loses its oldest address (FIFO).
//!
//! Invariants: no address twice. A slot belongs to its store; the design looks at it and never
//! holds one.
//!
//! It does not lay out bytes, and leaves the currency of its addresses to the design's index.

use crate::types::{Fingerprint, Lba, Place};

/// Bytes of a slot, the paper's 512.
pub const METADATA_SLOT_BYTES: u32 = 512;
/// Bytes that are neither fingerprint nor addresses.
const HEAD_BYTES: usize = 16;
/// Bytes of an address.
const LBA_BYTES: usize = 8;
/// Addresses in a slot with our fingerprint.
pub const LBAS_MAX: usize = lbas_max(size_of::<Fingerprint>());

/// Returns how many addresses fit into a slot beside a fingerprint of `fingerprint_bytes`.
pub const fn lbas_max(fingerprint_bytes: usize) -> usize {
    (METADATA_SLOT_BYTES as usize - HEAD_BYTES).saturating_sub(fingerprint_bytes.next_multiple_of(LBA_BYTES))
        / LBA_BYTES
}

/// The content of a metadata slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMetadata {
    fingerprint: Fingerprint,
    stored_bytes: u32,
    count: u16,
    /// Position of the oldest address in a full list; 0 in another.
    oldest: u16,
    lbas: [u64; LBAS_MAX],
}

/// The metadata of the chunk that begins in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// The place of the chunk's record.
    pub place: Place,
    /// Its content and addresses.
    pub metadata: RunMetadata,
}

/// The effect of an added address on its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChange {
    /// No change: the list has the address. The slot need not be written.
    Present,
    /// An addition.
    Added,
    /// A replacement of another address with the same LBA-hash, a departure of
    /// [`austere`](crate::austere).
    Replaces(Lba),
    /// A replacement of the oldest address.
    Overflows(Lba),
}

impl RunMetadata {
    /// A slot that was never written.
    pub const EMPTY: RunMetadata =
        RunMetadata { fingerprint: Fingerprint([0; 16]), stored_bytes: 0, count: 0, oldest: 0, lbas: [0; LBAS_MAX] };

    /// Resets the slot to another content, which `lba` refers to.
    pub fn reset(&mut self, fingerprint: Fingerprint, stored_bytes: u32, lba: Lba) {
        (self.fingerprint, self.stored_bytes) = (fingerprint, stored_bytes);
        (self.count, self.oldest) = (1, 0);
        self.lbas[0] = lba.0;
    }

    /// Resets as [`RunMetadata::reset`], to content without an address.
    pub fn reset_unlisted(&mut self, fingerprint: Fingerprint, stored_bytes: u32) {
        self.reset(fingerprint, stored_bytes, Lba(0));
        self.count = 0;
    }

    /// Builds a slot from [`RunMetadata::parts`]; `None` for too many addresses or an invalid
    /// position.
    pub fn from_parts(fingerprint: Fingerprint, stored_bytes: u32, lbas: &[u64], oldest: usize) -> Option<RunMetadata> {
        let mut slot = RunMetadata { fingerprint, stored_bytes, ..RunMetadata::EMPTY };
        slot.lbas.get_mut(..lbas.len())?.copy_from_slice(lbas);
        (slot.count, slot.oldest) = (lbas.len() as u16, oldest as u16);
        (oldest < lbas.len().max(1)).then_some(slot)
    }

    /// Returns the addresses as they lie, and the position of the oldest.
    pub fn parts(&self) -> (&[u64], usize) {
        (&self.lbas[..usize::from(self.count)], self.oldest.into())
    }

    /// Returns the full fingerprint.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the bytes of the compressed chunk.
    pub fn stored_bytes(&self) -> u32 {
        self.stored_bytes
    }

    /// Returns the addresses, the oldest first.
    pub fn lbas(&self) -> impl Iterator<Item = Lba> + '_ {
        let (newer, older) = self.lbas[..usize::from(self.count)].split_at(usize::from(self.oldest));
        older.iter().chain(newer).map(|&lba| Lba(lba))
    }

    /// Returns whether the list has `lba`.
    #[inline]
    pub fn has(&self, lba: Lba) -> bool {
        self.lbas[..usize::from(self.count)].contains(&lba.0)
    }

    /// Returns the effect of adding `lba`; `is_sibling` tells the addresses with its LBA-hash.
    pub fn change(&self, lba: Lba, is_sibling: impl Fn(Lba) -> bool) -> ListChange {
        if self.has(lba) {
            return ListChange::Present;
        }
        match self.lbas().find(|&other| is_sibling(other)) {
            Some(sibling) => ListChange::Replaces(sibling),
            None if usize::from(self.count) < LBAS_MAX => ListChange::Added,
            None => ListChange::Overflows(Lba(self.lbas[usize::from(self.oldest)])),
        }
    }

    /// Removes `lba`; returns whether it was there.
    pub fn remove(&mut self, lba: Lba) -> bool {
        if !self.has(lba) {
            return false;
        }
        let left: Vec<u64> = self.lbas().filter(|&other| other != lba).map(|other| other.0).collect();
        self.lbas[..left.len()].copy_from_slice(&left);
        (self.count, self.oldest) = (left.len() as u16, 0);
        true
    }

    /// Adds `lba` with the effect that [`RunMetadata::change`] told for this slot.
    pub fn apply(&mut self, lba: Lba, change: ListChange) {
        match change {
            ListChange::Present => {}
            ListChange::Added => {
                self.lbas[usize::from(self.count)] = lba.0;
                self.count += 1;
            }
            ListChange::Replaces(old) => {
                for place in self.lbas[..usize::from(self.count)].iter_mut().filter(|place| **place == old.0) {
                    *place = lba.0;
                }
            }
            ListChange::Overflows(_) => {
                self.lbas[usize::from(self.oldest)] = lba.0;
                self.oldest = (self.oldest + 1) % LBAS_MAX as u16;
            }
        }
    }
}

const _: () = assert!(size_of::<RunMetadata>() <= METADATA_SLOT_BYTES as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_addresses_fit() {
        assert_eq!((LBAS_MAX, lbas_max(16), lbas_max(20), lbas_max(32)), (60, 60, 59, 58));
    }

    #[test]
    fn a_full_list_loses_the_oldest_first() {
        let mut slot = RunMetadata::EMPTY;
        slot.reset(Fingerprint([7; 16]), 15_000, Lba(0));
        let add = |slot: &mut RunMetadata, lba| {
            let change = slot.change(Lba(lba), |other| other.0 == lba + 1000);
            slot.apply(Lba(lba), change);
            change
        };
        for lba in 1..60 {
            assert_eq!(add(&mut slot, lba), ListChange::Added);
        }
        for lba in 60..200 {
            assert_eq!(add(&mut slot, lba), ListChange::Overflows(Lba(lba - 60)));
            assert_eq!(add(&mut slot, lba), ListChange::Present);
        }
        // The oldest is in the middle.
        assert!(slot.remove(Lba(170)) && !slot.remove(Lba(170)));
        let left: Vec<Lba> = (140..200).filter(|&lba| lba != 170).map(Lba).collect();
        assert_eq!(slot.lbas().collect::<Vec<_>>(), left);
        assert_eq!(add(&mut slot, 170), ListChange::Added);
        assert_eq!(add(&mut slot, 200), ListChange::Overflows(Lba(140)));
        slot.reset(Fingerprint([8; 16]), 1, Lba(1005));
        assert_eq!(add(&mut slot, 5), ListChange::Replaces(Lba(1005)));
        assert_eq!(slot.lbas().collect::<Vec<_>>(), [Lba(5)]);
    }
}
