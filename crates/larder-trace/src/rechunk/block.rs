//! One block that a trace reads or writes, and its known content: [`Block`].
//!
//! Invariants: a block always takes [`BLOCK_BYTES`] of memory. A block of zeroes has the
//! fingerprint [`zero::XXH3_4K`], under every hash of a trace.
//!
//! It does not stand for a block that is only trimmed, or not touched at all.

use crate::{
    record::{CONTENT_BYTES_MAX, ContentId, Provenance, TraceContent},
    zero,
};

/// Bytes of memory of a block.
pub(super) const BLOCK_BYTES: usize = size_of::<Block>();
const _: () = assert!(BLOCK_BYTES == 28, "the documents say 28");

/// The knowledge of a block's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The first access does not tell the content before it.
    Nothing,
    Zero,
    Content,
}

/// See the module. Packed, since padding would take as much as a size does.
#[derive(Clone, Copy)]
#[repr(Rust, packed(4))]
pub(super) struct Block {
    number: u64,
    fingerprint: ContentId,
    /// The size or [`NO_SIZE`], [`Provenance`] and [`Known`], and a bit for each other block of the
    /// page. Provenance and knowledge have two bits each.
    rest: u32,
}

/// The exponent of the number of consecutive blocks in a page.
pub(super) const PAGE_SHIFT: u32 = 3;

/// A size that the trace does not give.
const NO_SIZE: u32 = (1 << SIZE_BITS) - 1;
/// Beyond all sizes of blocks and chunks, so that the cut of a larger size makes no difference.
const SIZE_MAX: u32 = NO_SIZE - 1;
/// Sizes are [`CONTENT_BYTES_MAX`] at most.
const SIZE_BITS: u32 = 21;
const _: () = assert!(SIZE_MAX as u64 > CONTENT_BYTES_MAX);
const KNOWN_SHIFT: u32 = SIZE_BITS + 2;
const PAGE_BITS_SHIFT: u32 = SIZE_BITS + 4;
const _: () = assert!(u32::BITS - PAGE_BITS_SHIFT >= (1 << PAGE_SHIFT) - 1, "a bit for each other block of a page");

impl Block {
    /// Makes a block, the `number`th of the disk, with this content.
    #[inline]
    pub fn of(number: u64, content: &TraceContent) -> Block {
        let size = content.stored_bytes.map_or(NO_SIZE, |bytes| bytes.min(SIZE_MAX));
        let (fingerprint, known) = match content.is_zero {
            true => (zero::XXH3_4K, 1),
            false => (content.fingerprint, 2),
        };
        let provenance = match content.provenance {
            Provenance::Recorded => 0,
            Provenance::SizeMade => 1,
            Provenance::Made => 2,
        };
        Block { number, fingerprint, rest: size | provenance << SIZE_BITS | known << KNOWN_SHIFT }
    }

    /// Makes a block of unknown content.
    pub fn unknown(number: u64) -> Block {
        Block { number, fingerprint: zero::XXH3_4K, rest: NO_SIZE }
    }

    /// Makes a block that a trim made zeroes.
    pub fn trimmed(number: u64) -> Block {
        Block { number, fingerprint: zero::XXH3_4K, rest: NO_SIZE | 1 << KNOWN_SHIFT }
    }

    /// Marks a block of the same page in this one. False if it was marked before, or is this one.
    #[inline]
    pub fn mark(&mut self, number: u64) -> bool {
        let distance = number.wrapping_sub(self.number) & ((1 << PAGE_SHIFT) - 1);
        let Some(at) = distance.checked_sub(1) else { return false };
        let before = self.rest;
        self.rest |= 1 << (PAGE_BITS_SHIFT + at as u32);
        self.rest != before
    }

    /// Returns the block's number on the disk.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    pub fn fingerprint(&self) -> ContentId {
        self.fingerprint
    }

    /// Returns the compressed size if the trace gives it.
    #[inline]
    pub fn stored_bytes(&self) -> Option<u32> {
        let size = self.rest & NO_SIZE;
        (size != NO_SIZE).then_some(size)
    }

    #[inline]
    pub fn known(&self) -> Known {
        match self.rest >> KNOWN_SHIFT & 3 {
            0 => Known::Nothing,
            1 => Known::Zero,
            _ => Known::Content,
        }
    }

    #[inline]
    pub fn provenance(&self) -> Provenance {
        match self.rest >> SIZE_BITS & 3 {
            0 => Provenance::Recorded,
            1 => Provenance::SizeMade,
            _ => Provenance::Made,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_what_it_is_told() {
        let number = (1 << 51) - 1;
        for stored_bytes in [None, Some(0), Some(4096), Some(1 << 20)] {
            for provenance in [Provenance::Recorded, Provenance::SizeMade, Provenance::Made] {
                for is_zero in [false, true] {
                    let content = TraceContent { fingerprint: ContentId([5, 6]), stored_bytes, is_zero, provenance };
                    let block = Block::of(number, &content);
                    assert_eq!((block.number(), block.stored_bytes()), (number, stored_bytes));
                    assert_eq!((block.provenance(), block.known() == Known::Zero), (provenance, is_zero));
                    let fingerprint = if is_zero { zero::XXH3_4K } else { content.fingerprint };
                    assert_eq!(block.fingerprint(), fingerprint);
                }
            }
        }
        let content = TraceContent {
            fingerprint: ContentId([5, 6]),
            stored_bytes: None,
            is_zero: true,
            provenance: Provenance::Made,
        };
        let mut marked = Block::of(19, &content);
        for other in 16..24 {
            assert_eq!((marked.mark(other), marked.mark(other)), (other != 19, false), "{other}");
        }
        assert_eq!((marked.number(), marked.known(), marked.stored_bytes()), (19, Known::Zero, None));
        assert_eq!(marked.provenance(), Provenance::Made);
        let (unknown, trimmed) = (Block::unknown(7), Block::trimmed(7));
        assert_eq!((unknown.known(), unknown.stored_bytes()), (Known::Nothing, None));
        assert_eq!((trimmed.known(), trimmed.stored_bytes()), (Known::Zero, None));
    }
}
