//! The order in which a hybrid layer drops data: FlashTier's silent eviction.
//!
//! Role: [`Eviction`] knows the logical blocks that have a data block and no dirty page, in the
//! order in which they go.
//!
//! Invariants: a logical block with a page that was told dirty is not evicted, even if others of it
//! are clean. At most `dirty_blocks_max` are dirty, as many as fit beside the largest log and the
//! spare block. So there is always one to evict for a dirty one, and no write of the host is
//! refused.
//!
//! It does not erase, or tell the host.

use crate::{
    array::FlashArray,
    blocks::{ClosedBlocks, NO_BLOCK, POOL},
    geometry::{BlockId, DriveGeometry},
    use_order::UseOrder,
};

/// The order in which data blocks are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimOrder {
    /// The block with the fewest valid pages (FlashTier's SE-Util and SE-Merge).
    FewestValid,
    /// The block whose logical block was read or written least recently.
    ///
    /// Nitro section 6.1: "FlashTier extended to use an LRU policy".
    LeastRecent,
}

#[derive(Debug)]
enum EvictionOrder {
    /// By block.
    FewestValid(ClosedBlocks),
    /// By logical block.
    LeastRecent(UseOrder),
}

/// The clean data blocks; see the module.
#[derive(Debug)]
pub struct Eviction {
    order: EvictionOrder,
    /// A bit a logical page.
    dirty: Vec<u64>,
    /// By logical block.
    dirty_pages: Vec<u32>,
    dirty_blocks: u32,
    dirty_blocks_max: u32,
    reserves_log: bool,
}

impl Eviction {
    /// Makes the state of so many logical pages without data.
    pub(crate) fn new(
        geometry: &DriveGeometry,
        order: VictimOrder,
        logical_pages: u32,
        dirty_blocks_max: u32,
        reserves_log: bool,
    ) -> Self {
        let logical_blocks = logical_pages.div_ceil(geometry.pages_per_block);
        let order = match order {
            VictimOrder::FewestValid => EvictionOrder::FewestValid(ClosedBlocks::pooled(geometry)),
            VictimOrder::LeastRecent => EvictionOrder::LeastRecent(UseOrder::new(logical_blocks)),
        };
        Eviction {
            order,
            dirty: vec![0; logical_pages.div_ceil(64) as usize],
            dirty_pages: vec![0; logical_blocks as usize],
            dirty_blocks: 0,
            dirty_blocks_max,
            reserves_log,
        }
    }

    /// Returns true if dropped blocks make room for data alone, and the log has blocks of its own.
    pub(super) fn reserves_log(&self) -> bool {
        self.reserves_log
    }

    /// Finds the block that goes next.
    pub(super) fn next_victim(&mut self, data: &[u32]) -> Option<BlockId> {
        match &mut self.order {
            EvictionOrder::FewestValid(victims) => victims.fewest(POOL).map(|(block, _)| block),
            EvictionOrder::LeastRecent(recency) => recency.least_recent().map(|of| BlockId(data[of as usize])),
        }
    }

    /// Finds the same block, without a change.
    pub(super) fn peek(&self, data: &[u32]) -> Option<BlockId> {
        match &self.order {
            EvictionOrder::FewestValid(victims) => victims.peek_fewest(POOL),
            EvictionOrder::LeastRecent(recency) => recency.least_recent().map(|of| BlockId(data[of as usize])),
        }
    }

    /// Notes that the host reads or writes a logical block.
    pub(super) fn used(&mut self, logical_block: u32) {
        if let EvictionOrder::LeastRecent(recency) = &mut self.order {
            recency.touch(logical_block);
        }
    }

    /// Notes that the number of a block's valid pages may have changed.
    pub(super) fn pages_changed(&mut self, block: BlockId, array: &FlashArray) {
        if let EvictionOrder::FewestValid(victims) = &mut self.order {
            victims.set(block, array.valid(block));
        }
    }

    /// Notes that a logical block has its data in another block, or is new there.
    pub(super) fn has_data(&mut self, logical_block: u32, old: Option<BlockId>, new: BlockId, array: &FlashArray) {
        if self.is_dirty(logical_block) {
            return;
        }
        match &mut self.order {
            EvictionOrder::FewestValid(victims) => {
                if let Some(old) = old {
                    victims.remove(old);
                }
                victims.insert(new, array.valid(new));
            }
            // A move by a merge is no use.
            EvictionOrder::LeastRecent(recency) if old.is_none() => recency.put(logical_block),
            EvictionOrder::LeastRecent(_) => {}
        }
    }

    /// Notes that a logical block has no data block any longer.
    pub(super) fn has_no_data(&mut self, logical_block: u32, block: BlockId) {
        match &mut self.order {
            EvictionOrder::FewestValid(victims) if victims.has(block) => victims.remove(block),
            EvictionOrder::FewestValid(_) => {}
            EvictionOrder::LeastRecent(recency) => recency.remove(logical_block),
        }
    }

    /// Returns true if a page of a logical block is dirty.
    pub(super) fn is_dirty(&self, logical_block: u32) -> bool {
        self.dirty_pages[logical_block as usize] > 0
    }

    /// Returns the most logical blocks that may have dirty pages.
    pub(super) fn dirty_blocks_max(&self) -> u32 {
        self.dirty_blocks_max
    }

    /// Returns true if a page of a logical block may be told dirty.
    pub(super) fn takes_dirty(&self, logical_block: u32) -> bool {
        self.is_dirty(logical_block) || self.dirty_blocks < self.dirty_blocks_max
    }

    /// Marks a page as dirty or clean.
    pub(super) fn tell_dirty(
        &mut self,
        lpn: u32,
        logical_block: u32,
        is_dirty: bool,
        data: &[u32],
        array: &FlashArray,
    ) {
        let (word, bit) = (&mut self.dirty[lpn as usize / 64], 1 << (lpn % 64));
        if (*word & bit != 0) == is_dirty {
            return;
        }
        *word ^= bit;
        let pages = &mut self.dirty_pages[logical_block as usize];
        let block = BlockId(data[logical_block as usize]);
        let has_data = block.0 != NO_BLOCK;
        if is_dirty {
            *pages += 1;
            if *pages == 1 {
                assert!(self.dirty_blocks < self.dirty_blocks_max, "so much is dirty that page {lpn} has no room");
                self.dirty_blocks += 1;
                if has_data {
                    self.has_no_data(logical_block, block);
                }
            }
        } else {
            *pages -= 1;
            if *pages == 0 {
                self.dirty_blocks -= 1;
                if has_data {
                    self.has_data(logical_block, None, block, array);
                }
            }
        }
    }

    /// Checks that exactly the clean data blocks are there to be evicted.
    ///
    /// # Panics
    /// If not.
    pub(super) fn check(&self, data: &[u32], array: &FlashArray) {
        let mut clean = 0;
        for (logical_block, &block) in data.iter().enumerate().filter(|(_, block)| **block != NO_BLOCK) {
            let is_there = match &self.order {
                EvictionOrder::FewestValid(victims) => victims.has(BlockId(block)),
                EvictionOrder::LeastRecent(recency) => recency.has(logical_block as u32),
            };
            assert_eq!(is_there, !self.is_dirty(logical_block as u32), "logical block {logical_block} may be evicted");
            clean += u32::from(is_there);
        }
        match &self.order {
            EvictionOrder::FewestValid(victims) => {
                victims.check(array);
                let blocks = (0..array.geometry().blocks()).map(BlockId);
                assert_eq!(blocks.filter(|&block| victims.has(block)).count() as u32, clean);
            }
            EvictionOrder::LeastRecent(recency) => assert_eq!(recency.count(), clean),
        }
        let dirty = self.dirty_pages.iter().filter(|&&pages| pages > 0).count() as u32;
        assert_eq!(dirty, self.dirty_blocks);
        assert_eq!(self.dirty_pages.iter().sum::<u32>(), self.dirty.iter().map(|word| word.count_ones()).sum::<u32>());
    }

    /// Returns the allocated bytes.
    pub(super) fn ram_bytes(&self) -> u64 {
        let order = match &self.order {
            EvictionOrder::FewestValid(victims) => victims.ram_bytes(),
            EvictionOrder::LeastRecent(recency) => recency.ram_bytes(),
        };
        order + (self.dirty.capacity() * 8 + self.dirty_pages.capacity() * 4) as u64
    }
}
