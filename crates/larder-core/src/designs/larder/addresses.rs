//! An entry of the address index: the content that an address has.
//!
//! An entry has the number of times that its content was stored by then. If the content is stored
//! still, and that number is the same, the entry is a *mapping*. Else it is a *belief*: the address
//! has this content, and the cache lacks it or stored it again since.
//!
//! Invariants: 12 bytes. Storings are compared modulo 2^20. After so many storings of one content,
//! a belief looks like a mapping. It is true all the same: the address has that content.
//!
//! It does not know the state of the content.

use crate::{lba_index::Addressed, types::Lba};

/// The number of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentNumber(pub u32);

/// The storings of a content, modulo 2^20.
pub const STORINGS_MASK: u32 = (1 << 20) - 1;
const TRANSIENT: u32 = 1 << 20;
const KIND_SHIFT: u32 = 21;
const DIRTY: u32 = 1 << 23;
const HIGH_SHIFT: u32 = 24;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A chunk of zeroes, without a content.
    Zero,
    /// A whole chunk.
    Chunk,
    /// Some sectors of a chunk. No other address has this content.
    Fragment,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    lba_low: u32,
    /// High bits of the address (8), dirty (1), kind (2), transient (1), storings (20).
    rest: u32,
    content: u32,
}

impl Addressed for Address {
    #[inline]
    fn lba(&self) -> Lba {
        Lba(u64::from(self.rest >> HIGH_SHIFT) << 32 | u64::from(self.lba_low))
    }
}

impl Address {
    /// Returns an entry. `content` and `storings` have no meaning for zeroes.
    pub fn new(lba: Lba, kind: Kind, content: ContentNumber, storings: u32, is_dirty: bool) -> Address {
        debug_assert!(lba.0 >> 40 == 0);
        let mut rest = (lba.0 >> 32 << HIGH_SHIFT) as u32 | (kind as u32) << KIND_SHIFT | storings & STORINGS_MASK;
        if is_dirty {
            rest |= DIRTY;
        }
        Address { lba_low: lba.0 as u32, rest, content: content.0 }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        match self.rest >> KIND_SHIFT & 3 {
            0 => Kind::Zero,
            1 => Kind::Chunk,
            _ => Kind::Fragment,
        }
    }

    /// Returns the content; none of zeroes.
    pub fn content(&self) -> Option<ContentNumber> {
        (self.kind() != Kind::Zero).then_some(ContentNumber(self.content))
    }

    /// Returns the number of storings of the content at the time of the entry.
    pub fn storings(&self) -> u32 {
        self.rest & STORINGS_MASK
    }

    /// Returns whether the origin lacks the data.
    pub fn is_dirty(&self) -> bool {
        self.rest & DIRTY != 0
    }

    /// Returns whether neither log nor checkpoint has the mapping.
    pub fn is_transient(&self) -> bool {
        self.rest & TRANSIENT != 0
    }

    /// Leaves the mapping out of log and checkpoints.
    pub fn make_transient(&mut self) {
        self.rest |= TRANSIENT;
    }

    /// Notes that the origin has the data.
    pub fn clean(&mut self) {
        self.rest &= !DIRTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_12_bytes_and_keep_every_field() {
        assert_eq!(size_of::<Address>(), 12);
        for kind in [Kind::Zero, Kind::Chunk, Kind::Fragment] {
            for is_dirty in [false, true] {
                let lba = Lba((1 << 40) - 1);
                let mut entry = Address::new(lba, kind, ContentNumber(u32::MAX - 1), STORINGS_MASK + 8, is_dirty);
                assert_eq!((entry.lba(), entry.kind(), entry.is_dirty()), (lba, kind, is_dirty));
                assert_eq!(entry.storings(), 7);
                assert_eq!(entry.content(), (kind != Kind::Zero).then_some(ContentNumber(u32::MAX - 1)));
                assert!(!entry.is_transient());
                entry.make_transient();
                entry.clean();
                assert!(entry.is_transient() && !entry.is_dirty() && entry.lba() == lba);
                assert_eq!((entry.kind(), entry.storings()), (kind, 7));
            }
        }
    }
}
