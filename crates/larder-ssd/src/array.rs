//! The physical state of a drive's flash, and its rules.
//!
//! Role: [`FlashArray`] keeps each block's programmed pages, valid pages and erasures. It keeps
//! each page's state (free, valid or invalid) and one word about its content (its *owner*).
//!
//! Invariants: a page is programmed once between erasures of its block, and pages of a block in
//! their order (CAFTL section 1.2). A block is erased only when none of its pages is valid. Valid +
//! invalid + free = all pages, by block, plane and drive. A broken rule panics: translation layers
//! are ours, and a layer that breaks one is wrong.
//!
//! Memory: 4 bytes and a bit a page, 12 bytes a block, 4 bytes a plane.
//!
//! It does not choose blocks to write or erase. It leaves causes and the sink to `flash.rs`.

use super::{
    geometry::{BlockId, DriveGeometry, PlaneId, Ppa},
    table,
};

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Not programmed since its block was erased.
    Free,
    /// Programmed, and something depends on it.
    Valid,
    /// Programmed, and nothing depends on it.
    Invalid,
}

/// The number of pages in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTotals {
    /// Programmed, and something depends on them.
    pub valid: u64,
    /// Programmed, and nothing depends on them.
    pub invalid: u64,
    /// Not programmed since their blocks were erased.
    pub free: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Programmed pages: the block's first ones.
    written: u32,
    valid: u32,
    erases: u32,
}

/// The flash. See the module.
#[derive(Debug)]
pub struct FlashArray {
    geometry: DriveGeometry,
    blocks: Vec<Block>,
    /// A bit a page: valid.
    valid: Vec<u64>,
    /// The content of a page, in its translation layer's words. It has a meaning for programmed
    /// pages alone.
    owners: Vec<u32>,
    plane_valid: Vec<u32>,
    totals: PageTotals,
}

impl FlashArray {
    /// Makes flash that was never programmed, of a sound geometry ([`DriveGeometry::check`]).
    ///
    /// # Panics
    /// If the geometry is not sound.
    pub fn new(geometry: DriveGeometry) -> Self {
        if let Err(error) = geometry.check() {
            panic!("no flash of this geometry: {error}");
        }
        let pages = geometry.pages() as usize;
        FlashArray {
            geometry,
            blocks: vec![Block::default(); geometry.blocks() as usize],
            valid: table::zeroed(pages.div_ceil(64)),
            owners: table::zeroed(pages),
            plane_valid: vec![0; geometry.planes() as usize],
            totals: PageTotals { free: pages as u64, ..PageTotals::default() },
        }
    }

    /// Returns the geometry.
    pub fn geometry(&self) -> &DriveGeometry {
        &self.geometry
    }

    /// Programs the next free page of `block` with `owner` beside it; the page is valid then.
    ///
    /// # Panics
    /// If the block is fully programmed.
    pub fn program(&mut self, block: BlockId, owner: u32) -> Ppa {
        let plane = self.geometry.plane_of(block);
        let pages_per_block = self.geometry.pages_per_block;
        let state = &mut self.blocks[block.0 as usize];
        assert!(state.written < pages_per_block, "block {} is fully programmed", block.0);
        let ppa = Ppa(block.0 * pages_per_block + state.written);
        state.written += 1;
        state.valid += 1;
        self.valid[ppa.0 as usize / 64] |= 1 << (ppa.0 % 64);
        self.owners[ppa.0 as usize] = owner;
        self.plane_valid[plane.0 as usize] += 1;
        self.totals.free -= 1;
        self.totals.valid += 1;
        ppa
    }

    /// Makes `ppa` invalid. Returns its block, and the number of its remaining valid pages.
    ///
    /// # Panics
    /// If the page is not valid.
    pub fn invalidate(&mut self, ppa: Ppa) -> (BlockId, u32) {
        assert!(self.is_valid(ppa), "page {} is not valid", ppa.0);
        self.valid[ppa.0 as usize / 64] &= !(1 << (ppa.0 % 64));
        let block = self.geometry.block_of(ppa);
        let state = &mut self.blocks[block.0 as usize];
        state.valid -= 1;
        let left = state.valid;
        self.plane_valid[self.geometry.plane_of(block).0 as usize] -= 1;
        self.totals.valid -= 1;
        self.totals.invalid += 1;
        (block, left)
    }

    /// Prefetches the state of a page that will be invalidated or revalidated soon.
    pub fn prefetch(&self, ppa: Ppa) {
        table::prefetch(&self.valid, ppa.0 as usize / 64);
        table::prefetch(&self.blocks, self.geometry.block_of(ppa).0 as usize);
    }

    /// Makes the invalid page `ppa` valid again: its bytes are still there (CAFTL section 1.3).
    ///
    /// Returns its block, and the new number of its valid pages.
    ///
    /// # Panics
    /// If the page is free or valid.
    pub fn revalidate(&mut self, ppa: Ppa) -> (BlockId, u32) {
        assert!(self.state(ppa) == PageState::Invalid, "page {} is not invalid", ppa.0);
        self.valid[ppa.0 as usize / 64] |= 1 << (ppa.0 % 64);
        let block = self.geometry.block_of(ppa);
        let state = &mut self.blocks[block.0 as usize];
        state.valid += 1;
        let now = state.valid;
        self.plane_valid[self.geometry.plane_of(block).0 as usize] += 1;
        self.totals.invalid -= 1;
        self.totals.valid += 1;
        (block, now)
    }

    /// Makes all pages of `block` free again.
    ///
    /// # Panics
    /// If one of them is valid.
    pub fn erase(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.0 as usize];
        assert!(state.valid == 0, "block {} has {} valid pages", block.0, state.valid);
        self.totals.invalid -= u64::from(state.written);
        self.totals.free += u64::from(state.written);
        state.written = 0;
        state.erases += 1;
    }

    /// Returns the state of `ppa`.
    pub fn state(&self, ppa: Ppa) -> PageState {
        if self.is_valid(ppa) {
            return PageState::Valid;
        }
        match self.geometry.page_in_block(ppa) < self.written(self.geometry.block_of(ppa)) {
            true => PageState::Invalid,
            false => PageState::Free,
        }
    }

    /// Returns true if something depends on `ppa`.
    pub fn is_valid(&self, ppa: Ppa) -> bool {
        self.valid[ppa.0 as usize / 64] >> (ppa.0 % 64) & 1 == 1
    }

    /// Returns the word beside the programmed page `ppa`.
    pub fn owner(&self, ppa: Ppa) -> u32 {
        self.owners[ppa.0 as usize]
    }

    /// Changes the word beside `ppa`.
    ///
    /// Nothing is written on flash: the change stands for one of tables in RAM.
    pub fn set_owner(&mut self, ppa: Ppa, owner: u32) {
        self.owners[ppa.0 as usize] = owner;
    }

    /// Counts the programmed pages of `block`: they are its first.
    pub fn written(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].written
    }

    /// Counts the free pages of `block`.
    pub fn free(&self, block: BlockId) -> u32 {
        self.geometry.pages_per_block - self.written(block)
    }

    /// Counts the valid pages of `block`.
    pub fn valid(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].valid
    }

    /// Counts the erasures of `block`.
    pub fn erases(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].erases
    }

    /// Counts the valid pages of `plane`.
    pub fn plane_valid(&self, plane: PlaneId) -> u32 {
        self.plane_valid[plane.0 as usize]
    }

    /// Finds the first valid page of `block` at `from` or behind it, by its place in the block.
    pub fn next_valid(&self, block: BlockId, from: u32) -> Option<Ppa> {
        let start = block.0 * self.geometry.pages_per_block;
        let end = start + self.written(block);
        let mut at = start + from;
        while at < end {
            let word = self.valid[at as usize / 64] >> (at % 64);
            if word != 0 {
                at += word.trailing_zeros();
                return (at < end).then_some(Ppa(at));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Counts the blocks that are not free.
    ///
    /// They are the occupation of a drive in units of erase blocks (CAFTL Figure 9).
    pub fn blocks_occupied(&self) -> u32 {
        self.blocks.iter().filter(|block| block.written > 0).count() as u32
    }

    /// Returns the number of pages in each state, of the whole drive.
    pub fn totals(&self) -> PageTotals {
        self.totals
    }

    /// Counts [`FlashArray::totals`] again page by page, for tests to compare.
    pub fn recount(&self) -> PageTotals {
        let mut totals = PageTotals::default();
        for page in 0..self.geometry.pages() {
            match self.state(Ppa(page)) {
                PageState::Free => totals.free += 1,
                PageState::Valid => totals.valid += 1,
                PageState::Invalid => totals.invalid += 1,
            }
        }
        totals
    }

    /// Lists the erasures of each block, in the order of the blocks' numbers.
    pub fn all_erases(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().map(|block| block.erases)
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let words = self.valid.capacity() * 8 + (self.owners.capacity() + self.plane_valid.capacity()) * 4;
        (words + self.blocks.capacity() * size_of::<Block>()) as u64
    }
}
