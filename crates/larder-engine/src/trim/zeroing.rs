//! The kind of a request for zeroes.
//!
//! Invariants: a client's TRIM alone is advisory.
//!
//! It does not zero.

use larder_device::ZeroFlags;

/// The method that zeroes a range of the origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeroing {
    /// The flags of the client's request.
    pub flags: ZeroFlags,
    /// The request is a TRIM, which may be passed on as one.
    pub advisory: bool,
}
