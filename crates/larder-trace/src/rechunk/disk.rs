//! The disk as pass 2 sees it, request by request, and the content of its chunks: [`Disk`].
//!
//! It keeps only blocks that the trace reads or writes, sorted by number, so that the blocks of one
//! chunk lie together. A table finds the first of each chunk. The content of a chunk's other blocks
//! is made up when the chunk is asked for. They are unknown, or zeroes if a trim covered them. They
//! stay so, since no request touches them.
//!
//! Invariants: blocks are neither added nor moved. Memory is the blocks of pass 1 (28 bytes a
//! block, a sixteenth more at most), a table, and the trimmed runs. The table has a slot of 5 bytes
//! a chunk, and 44 to 87% of its slots are full.
//!
//! It does not know the bounds of requests.

use std::ops::Range;

use hashbrown::HashTable;

use super::{
    block::{BLOCK_BYTES, Block},
    compose::{Composer, Rules},
};
use crate::{
    record::TraceContent,
    rng::mix,
    runs::{RUN_BYTES_MAX, Runs},
};

/// See the module.
pub(super) struct Disk {
    /// Sorted by number.
    blocks: Vec<Block>,
    /// The place in `blocks` of each chunk's first block.
    groups: HashTable<u32>,
    /// The exponent of the number of blocks in a chunk.
    chunk_shift: u32,
    /// Blocks that trims made zeroes. It decides only for blocks that are not in `blocks`.
    trimmed: Runs,
    /// The fingerprints of a chunk's blocks, one after the other.
    scratch: Vec<u8>,
}

impl Disk {
    /// Makes the disk of `blocks`, which are sorted by number, 2^32 at most.
    pub fn new(blocks: Vec<Block>, chunk_shift: u32) -> Disk {
        let chunk = |block: &Block| block.number() >> chunk_shift;
        let chunks = blocks.chunk_by(|a, b| chunk(a) == chunk(b)).count();
        let mut groups = HashTable::with_capacity(chunks);
        let mut at = 0;
        for group in blocks.chunk_by(|a, b| chunk(a) == chunk(b)) {
            // There is room, so no other is hashed anew.
            groups.insert_unique(mix(group.first().map_or(0, chunk)), at, |_| 0);
            at += group.len() as u32;
        }
        Disk { blocks, groups, chunk_shift, trimmed: Runs::default(), scratch: Vec::new() }
    }

    /// Returns the place of a chunk's blocks, if it has any.
    #[inline]
    pub fn group(&self, chunk: u64) -> Option<usize> {
        let is_this =
            |&at: &u32| self.blocks.get(at as usize).is_some_and(|block| block.number() >> self.chunk_shift == chunk);
        self.groups.find(mix(chunk), is_this).map(|&at| at as usize)
    }

    /// Sets the content of a block of the chunk at `group`. `None` if there is no such block.
    #[inline]
    pub fn set(&mut self, group: usize, block: Block) -> Option<()> {
        let number = block.number();
        // In a chunk that has all its blocks the number gives the place. In others the block is
        // nearer to the beginning.
        let at = (number & ((1 << self.chunk_shift) - 1)) as usize;
        let blocks = self.blocks.get_mut(group..)?;
        let kept = match blocks.get(at).is_some_and(|kept| kept.number() == number) {
            true => blocks.get_mut(at),
            false => {
                let most = at.min(blocks.len());
                let before = blocks.get(..most)?.partition_point(|kept| kept.number() < number);
                blocks.get_mut(before).filter(|kept| kept.number() == number)
            }
        };
        *kept? = block;
        Some(())
    }

    /// Makes these blocks zeroes.
    pub fn trim(&mut self, blocks: Range<u64>) {
        let first = self.blocks.partition_point(|block| block.number() < blocks.start);
        let kept = self.blocks.get_mut(first..).unwrap_or_default().iter_mut();
        for block in kept.take_while(|block| block.number() < blocks.end) {
            *block = Block::trimmed(block.number());
        }
        self.trimmed.add(blocks);
    }

    /// Returns the current content of a chunk, whose blocks begin at `group`.
    pub fn compose(&mut self, chunk: u64, group: usize, rules: &Rules) -> TraceContent {
        let first = chunk << self.chunk_shift;
        let end = first + (1 << self.chunk_shift);
        let mut composer = Composer::new(rules, std::mem::take(&mut self.scratch));
        let mut trimmed = self.trimmed.parts(first..end).peekable();
        let mut next = first;
        let kept = self.blocks.get(group..).unwrap_or_default().iter();
        for block in kept.take_while(|block| block.number() < end) {
            composer.absent(next..block.number(), &mut trimmed);
            composer.block(block);
            next = block.number() + 1;
        }
        composer.absent(next..end, &mut trimmed);
        let (content, scratch) = composer.finish();
        self.scratch = scratch;
        content
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES + self.groups.allocation_size() + self.trimmed.len() * RUN_BYTES_MAX
    }
}
