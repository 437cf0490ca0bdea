//! The content of a disk before a trace, as pass 1 finds it: [`FirstContent`].
//!
//! It keeps only touched blocks: a [`Block`] for each block that is read or written, and the runs
//! of trimmed blocks. Blocks are in the order of their first accesses. A lookup has to find only
//! whether a block was touched. A page is 8 consecutive blocks. A table has the first touched block
//! of each page, and that block has a bit for each of the others.
//!
//! Invariants: a block keeps the content of its first access. Memory is 28 bytes a block, a
//! sixteenth more while it grows, and a table slot of 5 bytes a page. Between 44 and 87% of the
//! slots are full. So a block takes 33 to 42 bytes if each page has one block only, and 47 in the
//! moment in which the table grows. It takes 28 to 32 bytes if pages are touched whole. Sorting is
//! in place, after the table is freed.
//!
//! It does not know about chunks.

use std::ops::Range;

use hashbrown::{HashTable, hash_table::Entry};

use super::block::{BLOCK_BYTES, Block, PAGE_SHIFT};
use crate::{
    rng::mix,
    runs::{RUN_BYTES_MAX, Runs},
};

/// See the module.
#[derive(Default)]
pub(super) struct FirstContent {
    /// The place in `blocks` of each page's first block.
    table: HashTable<u32>,
    blocks: Vec<Block>,
    /// The page found last, and the place of its first block: requests touch consecutive blocks.
    last: Option<(u64, usize)>,
    /// Blocks that trims made zeroes, with or without other accesses.
    trimmed: Runs,
    /// Numbers around the last one looked up in `trimmed`, none of which is in it.
    untrimmed: Range<u64>,
}

impl FirstContent {
    /// Takes an access of a block. `make` gives its content before, if this is the first access.
    /// `None` if 32 bits do not count the blocks.
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
            // A read after a trim does not tell the content before the trim.
            let block = if self.is_trimmed(number) { Block::unknown(number) } else { make() };
            self.push(block);
        }
        Some(())
    }

    /// Returns the place of a page's first block. If there is none, the next pushed block becomes
    /// it.
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

    /// Returns all blocks that were read or written, sorted by number.
    pub fn into_sorted(self) -> Vec<Block> {
        let FirstContent { table, mut blocks, trimmed, .. } = self;
        drop((table, trimmed));
        blocks.sort_unstable_by_key(Block::number);
        blocks
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES + self.table.allocation_size() + self.trimmed.len() * RUN_BYTES_MAX
    }
}
