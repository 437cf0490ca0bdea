//! The reach of a destage, and its urgency.
//!
//! Invariants: they only describe.
//!
//! It does not destage.

/// The extent of a destage of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All data that the origin is owed.
    Owed,
    /// The trims that the cache keeps, too.
    All,
}

/// How soon dirty data is to be destaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The low watermark is not passed.
    Not,
    /// At the destage rate.
    AtRate,
    /// As fast as the origin takes it.
    Now,
}
