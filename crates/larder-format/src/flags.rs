//! Bits that entries of the log and of a checkpoint share, each with one meaning in both.
//!
//! Invariants: a bit of an older format never changes its meaning.
//!
//! It does not say which kinds of entry may carry a bit.

/// The origin lacks the data.
pub const FLAG_DIRTY: u8 = 1;
/// The content was stored before, for another address.
pub const FLAG_DUPLICATE: u8 = 2;
/// Of zeroes: the origin keeps the space allocated.
pub const FLAG_NO_HOLE: u8 = 4;
/// Of zeroes: a client's trim, which the origin need not hear of.
pub const FLAG_ADVISORY: u8 = 8;
