//! Merges of the hybrid layer, its evictions, and its static wear levelling.
//!
//! These move pages or erase blocks.
//!
//! Invariants: a merge begins and ends with at least one free block. A block is erased only when no
//! page in it is valid. A full merge of a logical block leaves none of its pages in the log. So a
//! victim's later pages of it are invalid already.
//!
//! It leaves the time of a merge to `hybrid.rs`.

use super::{Hybrid, Sequential};
use crate::{
    blocks::NO_BLOCK,
    blocks::POOL,
    geometry::{BlockId, Lpn, Ppa},
    op::{Cause, OpSink},
};

impl Hybrid {
    /// Makes the sequential log block, if there is one, the data block of its logical block.
    pub(super) fn end_sequential(&mut self, sink: &mut dyn OpSink) {
        let Some(Sequential { block, of }) = self.sequential.take() else { return };
        // A newer copy of one of its pages would have ended it before, so all missing pages lie
        // behind.
        match self.fill(block, of, Cause::Merge, sink) {
            true => self.merges.partial += 1,
            false => self.merges.switch += 1,
        }
        self.set_data(of, block, sink);
    }

    /// Merges all logical blocks with pages in the oldest random log block, and erases it.
    pub(super) fn merge_oldest(&mut self, sink: &mut dyn OpSink) {
        let Some(&victim) = self.random.front() else { panic!("the log has no block to merge") };
        let pages_per_block = self.flash.geometry().pages_per_block;
        let mut at = 0;
        while let Some(ppa) = self.flash.array().next_valid(victim, at) {
            at = self.flash.geometry().page_in_block(ppa) + 1;
            self.merge(self.flash.array().owner(ppa) / pages_per_block, sink);
            debug_assert!(!self.flash.array().is_valid(ppa));
        }
        if let Some(open) = self.open.iter_mut().find(|open| **open == Some(victim)) {
            *open = None;
        }
        self.random.pop_front();
        self.erase(victim, Cause::Merge, sink);
    }

    /// Brings all pages of a logical block to its data block.
    fn merge(&mut self, logical_block: u32, sink: &mut dyn OpSink) {
        if self.sequential.is_some_and(|sequential| sequential.of == logical_block) {
            return self.end_sequential(sink);
        }
        let old = self.data_block(logical_block);
        if let Some(block) = old
            && self.has_its_first(block, logical_block)
        {
            self.fill(block, logical_block, Cause::Merge, sink);
            self.merges.partial += 1;
            if let Some(eviction) = &mut self.eviction {
                eviction.pages_changed(block, self.flash.array());
            }
            return;
        }
        let target = match old {
            // This is the block that is kept free; the old one is erased soon.
            Some(_) => self.free.take_least_worn(POOL),
            None => self.take_data_block(sink),
        };
        let Some(target) = target else { return self.drop_from_log(logical_block, sink) };
        self.fill(target, logical_block, Cause::Merge, sink);
        self.merges.full += 1;
        self.set_data(logical_block, target, sink);
    }

    /// Returns true if the data block has all pages of its logical block before its free ones.
    fn has_its_first(&self, block: BlockId, logical_block: u32) -> bool {
        let (array, geometry) = (self.flash.array(), self.flash.geometry());
        let first = (logical_block * geometry.pages_per_block) as usize;
        let written = array.written(block) as usize;
        written < geometry.pages_per_block as usize
            && self.pages[first..self.pages.len().min(first + written)]
                .iter()
                .all(|ppa| ppa.some().is_none_or(|ppa| geometry.block_of(ppa) == block))
    }

    /// Fills the free pages of `block` with those of a logical block, up to its last one.
    ///
    /// Returns false if there are none.
    fn fill(&mut self, block: BlockId, logical_block: u32, cause: Cause, sink: &mut dyn OpSink) -> bool {
        let pages_per_block = self.flash.geometry().pages_per_block;
        let first = logical_block * pages_per_block;
        let begin = (first + self.flash.array().written(block)).min(self.logical_pages);
        let end = (first + pages_per_block).min(self.logical_pages);
        let Some(last) = (begin..end).rev().find(|&lpn| self.pages[lpn as usize] != Ppa::NONE) else { return false };
        for lpn in begin..=last {
            match self.pages[lpn as usize].some() {
                Some(from) => self.pages[lpn as usize] = self.flash.copy(from, block, cause, sink),
                None => self.flash.pad(block, Cause::MergePadding, sink),
            }
        }
        true
    }

    /// Drops the pages in a data block, and erases it.
    pub(super) fn evict(&mut self, victim: BlockId, sink: &mut dyn OpSink) {
        let mut at = 0;
        while let Some(ppa) = self.flash.array().next_valid(victim, at) {
            at = self.flash.geometry().page_in_block(ppa) + 1;
            self.drop_page(Lpn(self.flash.array().owner(ppa)), sink);
        }
        self.drop_data(victim, Cause::Eviction, sink);
    }

    /// Drops a clean logical block that has no data block and gets none, as all others are dirty.
    fn drop_from_log(&mut self, logical_block: u32, sink: &mut dyn OpSink) {
        let is_dirty = self.eviction.as_ref().is_none_or(|eviction| eviction.is_dirty(logical_block));
        assert!(!is_dirty, "logical block {logical_block} is dirty, and has no room");
        let first = logical_block * self.flash.geometry().pages_per_block;
        let end = (first + self.flash.geometry().pages_per_block).min(self.logical_pages);
        (first..end).for_each(|lpn| self.drop_page(Lpn(lpn), sink));
    }

    fn drop_page(&mut self, lpn: Lpn, sink: &mut dyn OpSink) {
        if let Some(ppa) = std::mem::replace(&mut self.pages[lpn.0 as usize], Ppa::NONE).some() {
            self.flash.invalidate(ppa);
            self.flash.evicted(lpn, sink);
        }
    }

    /// Moves the least-worn data block if it is too far behind and a look is due.
    pub(super) fn level(&mut self, sink: &mut dyn OpSink) {
        let Some(spread_max) = self.wear_spread_max else { return };
        if self.since_look < spread_max {
            return;
        }
        self.since_look = 0;
        let array = self.flash.array();
        let sequential = self.sequential.map_or(NO_BLOCK, |sequential| sequential.of);
        let (mut most, mut least) = (0, None::<(u32, BlockId, u32)>);
        for (block, (&holds, erases)) in self.holds.iter().zip(array.all_erases()).enumerate() {
            most = erases.max(most);
            // The sequential log block's logical block is merged soon.
            let is_still = holds != NO_BLOCK && holds != sequential;
            if is_still && least.is_none_or(|(fewest, ..)| erases < fewest) {
                least = Some((erases, BlockId(block as u32), holds));
            }
        }
        let Some((erases, old, logical_block)) = least.filter(|(erases, ..)| most - erases > spread_max) else {
            return;
        };
        if array.valid(old) == 0 {
            return self.drop_data(old, Cause::WearLevelling, sink);
        }
        let Some(target) = self.free.take_most_worn(POOL) else { panic!("no block is free") };
        debug_assert!(array.erases(target) >= erases);
        self.fill(target, logical_block, Cause::WearLevelling, sink);
        self.replace_data(logical_block, target, Cause::WearLevelling, sink);
    }
}
