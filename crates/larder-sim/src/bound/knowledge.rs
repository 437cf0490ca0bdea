//! The knowledge of a cache about its origin.
//!
//! It does not bound anything.

/// The knowledge of a cache about addresses that no request touched before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// It knows the contents of the addresses that were read, written or trimmed.
    Addresses,
    /// It knows the content of each address: its origin reveals it.
    Contents,
}
