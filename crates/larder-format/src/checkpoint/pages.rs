//! Design pages: state of a design that no other entry can express, in pieces of a fixed size.
//!
//! Role: an index that keeps parts of hashes cannot be rebuilt from mappings, nor expressed as
//! mappings, so a checkpoint holds its bytes.
//!
//! Invariants: sixteen pages fill a block to its last byte. The bytes behind a page's own are zero.
//!
//! It leaves the meaning of the bytes, and the check for missing pages, to the design.

use super::entries::{STRUCTURE, WireEntry, invalid};
use crate::error::FormatError;
use crate::wire::{Le16, Le32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most bytes of a page.
pub const DESIGN_PAGE_BYTES_MAX: usize = 4084;

/// A piece of a design's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignPage {
    number: u32,
    bytes: Vec<u8>,
}

impl DesignPage {
    /// Size on flash, for any number of bytes in the page.
    pub const BYTES: usize = size_of::<RawPage>();

    /// Makes the page of this number; the design gives the number a meaning.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] for more than [`DESIGN_PAGE_BYTES_MAX`] bytes.
    pub fn new(number: u32, bytes: Vec<u8>) -> Result<DesignPage, FormatError> {
        if bytes.len() > DESIGN_PAGE_BYTES_MAX {
            return Err(FormatError::TooLarge { structure: STRUCTURE, max: DESIGN_PAGE_BYTES_MAX as u64 });
        }
        Ok(DesignPage { number, bytes })
    }

    /// Returns its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawPage {
    number: Le32,
    used: Le16,
    reserved: [u8; 2],
    bytes: [u8; DESIGN_PAGE_BYTES_MAX],
}
crate::wire::assert_wire!(RawPage, 4092, number @ 0, used @ 4, reserved @ 6, bytes @ 8);

impl WireEntry for DesignPage {
    type Raw = RawPage;

    fn to_raw(&self) -> RawPage {
        let mut bytes = [0; DESIGN_PAGE_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(&self.bytes) {
            *to = *from;
        }
        let used = Le16::new(self.bytes.len() as u16);
        RawPage { number: Le32::new(self.number), used, reserved: [0; 2], bytes }
    }

    fn from_raw(raw: &RawPage) -> Result<Self, FormatError> {
        let used = raw.bytes.get(..raw.used.get().into()).ok_or_else(|| invalid("a page of more bytes than it has"))?;
        Ok(DesignPage { number: raw.number.get(), bytes: used.to_vec() })
    }
}
