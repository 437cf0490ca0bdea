//! The entries of CAFTL's tables (section 3.3.1): where a content is, and how many refer to it.
//!
//! Invariants: a location is a page, a VBA, or none, in 32 bits.
//!
//! It does not hold the tables.

use crate::geometry::Ppa;

/// The bit that tells a VBA from a PBA.
const VIRTUAL: u32 = 1 << 31;

/// The place of a content: a PBA, a VBA, or nowhere, in 32 bits.
///
/// The topmost bit tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location(u32);

/// A virtual page: the secondary table's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vba(pub u32);

/// A [`Location`], taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// On this page, which one logical page has for itself.
    Page(Ppa),
    /// On the page of this VBA in the secondary table.
    Virtual(Vba),
}

impl Location {
    /// Nowhere.
    pub const NONE: Location = Location(u32::MAX);

    /// Makes the location of a PBA.
    pub fn page(ppa: Ppa) -> Location {
        debug_assert!(ppa.0 < VIRTUAL);
        Location(ppa.0)
    }

    /// Makes the location of a VBA.
    pub fn shared(vba: Vba) -> Location {
        debug_assert!(vba.0 < VIRTUAL - 1);
        Location(vba.0 | VIRTUAL)
    }

    /// Takes the location apart; `None` is nowhere.
    pub fn at(self) -> Option<At> {
        match self {
            Location::NONE => None,
            Location(raw) if raw & VIRTUAL == 0 => Some(At::Page(Ppa(raw))),
            Location(raw) => Some(At::Virtual(Vba(raw & !VIRTUAL))),
        }
    }
}

/// An entry of the secondary table. Without references it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPage {
    /// The page with the content.
    pub ppa: Ppa,
    /// Logical pages that refer to it.
    pub references: u32,
}

/// A VBA that is free.
pub const FREE: SharedPage = SharedPage { ppa: Ppa::NONE, references: 0 };
