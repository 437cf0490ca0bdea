//! The content of a chunk from that of its blocks, told one after the other: [`Composer`].
//!
//! Invariants: the fingerprint is XXH3-128 over those of the blocks. A chunk of one block has that
//! block's, and a chunk of zeroes that of zeroes. [`Rules`] say whether an unknown block counts as
//! unique or as zeroes.
//!
//! It does not know the blocks of the disk.

use std::{iter::Peekable, ops::Range};

use twox_hash::XxHash3_128;

use super::block::{Block, Known};
use crate::{
    record::{ContentId, Provenance, TraceContent},
    zero,
};

/// The content that stands for an unknown block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// Content that no other block has (Nitro §5.2).
    #[default]
    Unique,
    /// Zeroes (AustereCache §5.1).
    Zero,
}

/// The rules for all chunks of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub block_bytes: u32,
    pub chunk_bytes: u32,
    pub unknown: Unknown,
    /// True if the trace gives sizes.
    pub has_sizes: bool,
}

/// See the module.
pub(super) struct Composer<'a> {
    rules: &'a Rules,
    /// The fingerprints so far.
    bytes: Vec<u8>,
    last: ContentId,
    is_zero: bool,
    provenance: Provenance,
    sizes: BlockSizes,
}

impl<'a> Composer<'a> {
    /// Begins a chunk; `scratch` is memory for reuse.
    pub fn new(rules: &'a Rules, mut scratch: Vec<u8>) -> Self {
        scratch.clear();
        let (provenance, sizes) = (Provenance::Recorded, BlockSizes::default());
        Composer { rules, bytes: scratch, last: zero::XXH3_4K, is_zero: true, provenance, sizes }
    }

    /// Adds a block that the trace reads or writes.
    #[inline]
    pub fn block(&mut self, block: &Block) {
        self.provenance = self.provenance.max(block.provenance());
        match block.known() {
            Known::Nothing => self.unknown(block.number()),
            Known::Zero => self.zeroes(block.stored_bytes()),
            Known::Content => {
                match block.stored_bytes() {
                    Some(bytes) => self.sizes.add(bytes),
                    None => self.sizes.is_missing = true,
                }
                self.is_zero = false;
                self.push(block.fingerprint());
            }
        }
    }

    /// Adds blocks that the trace neither reads nor writes. `trimmed` are the trimmed runs, in
    /// order, from no later than the first block on.
    #[inline]
    pub fn absent(&mut self, blocks: Range<u64>, trimmed: &mut Peekable<impl Iterator<Item = Range<u64>>>) {
        for block in blocks {
            while trimmed.next_if(|run| run.end <= block).is_some() {}
            match trimmed.peek().is_some_and(|run| run.start <= block) {
                true => self.zeroes(None),
                false => self.unknown(block),
            }
        }
    }

    fn unknown(&mut self, block: u64) {
        match self.rules.unknown {
            Unknown::Zero => self.zeroes(None),
            Unknown::Unique => {
                self.sizes.unknown += 1;
                self.is_zero = false;
                self.push(unique(block));
            }
        }
    }

    fn zeroes(&mut self, stored_bytes: Option<u32>) {
        self.sizes.add(stored_bytes.unwrap_or(zeroes_stored_bytes(self.rules.block_bytes)));
        self.push(zero::XXH3_4K);
    }

    #[inline]
    fn push(&mut self, fingerprint: ContentId) {
        self.last = fingerprint;
        self.bytes.extend(fingerprint.to_u128().to_be_bytes());
    }

    /// Returns the content, and the memory that was lent.
    pub fn finish(self) -> (TraceContent, Vec<u8>) {
        let Composer { rules, bytes, last, is_zero, provenance, sizes } = self;
        let fingerprint = match bytes.len() {
            _ if is_zero => zero::XXH3_4K,
            one if one == size_of::<ContentId>() => last,
            _ => ContentId::from_u128(XxHash3_128::oneshot(&bytes)),
        };
        let stored_bytes = rules.has_sizes.then(|| sizes.total(rules.block_bytes, rules.chunk_bytes)).flatten();
        (TraceContent { fingerprint, stored_bytes, is_zero, provenance }, bytes)
    }
}

/// The compressed sizes of a chunk's blocks.
#[derive(Default)]
struct BlockSizes {
    sum: u64,
    known: u64,
    unknown: u64,
    /// True if a known block lacks a size: then the chunk has none.
    is_missing: bool,
}

impl BlockSizes {
    fn add(&mut self, bytes: u32) {
        self.sum += u64::from(bytes);
        self.known += 1;
    }

    fn total(&self, block_bytes: u32, chunk_bytes: u32) -> Option<u32> {
        let unknown = match self.known {
            0 => self.unknown * u64::from(block_bytes),
            known => (self.sum * self.unknown).div_ceil(known),
        };
        let total = (self.sum + unknown).min(u64::from(chunk_bytes));
        (!self.is_missing).then_some(total as u32)
    }
}

/// Returns LZ4's size of `bytes` zeroes.
fn zeroes_stored_bytes(bytes: u32) -> u32 {
    bytes.div_ceil(255) + 9
}

/// Returns content that no other block has: a hash of the block's number that no trace's hash
/// gives.
fn unique(block: u64) -> ContentId {
    ContentId::from_u128(XxHash3_128::oneshot_with_seed(u64::from_be_bytes(*b"unwritte"), &block.to_be_bytes()))
}
