//! What a disk held before a trace, as pass 1 finds out: [`First`].
//!
//! Only what is touched is kept: a [`Block`] for each block that is read or written, in the order of their first accesses,
//! and the runs of blocks that trims cover. All that has to be found again is whether a block was touched. The first of
//! a page of 8 that follow one another is in a table, and has a bit for each of the others.
//!
//! Invariants: a block keeps what its first access told. Memory is 28 bytes a block, a sixteenth more while it grows, and a
//! table slot of 5 bytes a page, of which 44 to 87% are full: 33 to 42 bytes where each page has one block only, and 47 in
//! the moment in which the table grows; 28 to 32 where pages are touched whole. Sorting is in place, and the table goes
//! before.
//!
//! What it does not do: know of chunks.

use std::ops::Range;

use hashbrown::{HashTable, hash_table::Entry};

use super::block::{BLOCK_BYTES, Block, PAGE_SHIFT};
use crate::{
    rng::mix,
    runs::{RUN_BYTES_MAX, Runs},
};

/// See the module.
#[derive(Default)]
pub(super) struct First {
    /// Where in `blocks` the first of a page is.
    table: HashTable<u32>,
    blocks: Vec<Block>,
    /// The page that was found last, and where its first is: requests are of blocks that follow one another.
    last: Option<(u64, usize)>,
    /// Blocks that trims made zeroes, whatever else is done with them.
    trimmed: Runs,
    /// Numbers near the last that was looked for in `trimmed`, none of which is in it.
    untrimmed: Range<u64>,
}

impl First {
    /// Takes an access of a block. `make` tells what it held before, if no access came earlier. `None` where 32 bits do
    /// not count the blocks.
    #[inline]
    pub fn touch(&mut self, number: u64, make: impl FnOnce() -> Block) -> Option<()> {
        let page = number >> PAGE_SHIFT;
        let known = match self.last {
            Some((last, at)) if last == page => Some(at),
            _ => self.find(page)?,
        };
        let is_new = match known.and_then(|at| self.blocks.get_mut(at)) {
            Some(first) => first.mark(number),
            None => true,
        };
        if is_new {
            u32::try_from(self.blocks.len()).ok()?;
            // What it held before a trim is not asked after it, so what is read then does not tell it.
            let block = if self.is_trimmed(number) { Block::unknown(number) } else { make() };
            self.push(block);
        }
        Some(())
    }

    /// Where the first block of a page is. If there is none, the next that is pushed is taken for it.
    fn find(&mut self, page: u64) -> Option<Option<usize>> {
        let blocks = &self.blocks;
        // Each place of the table has its block.
        let page_of = |at: u32| blocks.get(at as usize).map_or(0, |block| block.number() >> PAGE_SHIFT);
        let (at, known) = match self.table.entry(mix(page), |&at| page_of(at) == page, |&at| mix(page_of(at))) {
            Entry::Occupied(entry) => (*entry.get() as usize, true),
            Entry::Vacant(entry) => {
                entry.insert(u32::try_from(blocks.len()).ok()?);
                (blocks.len(), false)
            }
        };
        self.last = Some((page, at));
        Some(known.then_some(at))
    }

    fn push(&mut self, block: Block) {
        // Memory counts more than time here.
        if self.blocks.len() == self.blocks.capacity() {
            self.blocks.reserve_exact((self.blocks.len() / 16).max(64));
        }
        self.blocks.push(block);
    }

    fn is_trimmed(&mut self, number: u64) -> bool {
        if !self.untrimmed.contains(&number) {
            self.untrimmed = self.trimmed.gap(number);
        }
        self.untrimmed.is_empty()
    }

    /// Takes a trim of these blocks.
    pub fn trim(&mut self, blocks: Range<u64>) {
        self.trimmed.add(blocks);
        self.untrimmed = 0..0;
    }

    /// All blocks that were read or written, sorted by their numbers.
    pub fn into_sorted(self) -> Vec<Block> {
        let First { table, mut blocks, trimmed, .. } = self;
        drop((table, trimmed));
        blocks.sort_unstable_by_key(Block::number);
        blocks
    }

    /// Bytes of memory that are held.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES + self.table.allocation_size() + self.trimmed.len() * RUN_BYTES_MAX
    }
}
