//! The answers of an operator to an origin that changed, and to a client's TRIM.
//!
//! Invariants: each has one default.
//!
//! It does not carry them out.

/// The action of an opening when another program changed the origin since the last orderly end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginChanged {
    /// The cache is not opened.
    #[default]
    Refuse,
    /// The cache durably forgets its clean chunks, and lays its dirty data over the origin as it is
    /// now.
    Drop,
    /// The cache trusts the content of the flash.
    Keep,
}

/// The treatment of a TRIM. A request to write zeroes always zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrimPolicy {
    /// The origin gets zeroes.
    #[default]
    Zero,
    /// The origin gets a plain discard if it promises zeroes after one, else zeroes.
    Pass,
    /// The cache keeps the trim from the origin while it has room, and ignores the rest.
    Keep,
}
