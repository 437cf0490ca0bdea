//! Collection and wear levelling of a [`Space`].
//!
//! Role: collection is greedy. The victim is the closed block of a plane with the fewest valid
//! pages. Its valid pages are copied within the plane, and the block is erased. This repeats until
//! more blocks are free than the threshold.
//!
//! Dynamic wear levelling opens blocks in the order of their wear, least first. Static wear
//! levelling acts when the most-worn block of a plane is too far ahead of its least-worn closed
//! one. The pages of the latter move onto a worn block, and it returns to the blocks in use (CAFTL
//! section 1.1.2 names both).
//!
//! Invariants: collection begins with at least one free block and ends with at least as many as it
//! began with. Each victim has an invalid page, so collection ends. Static levelling looks at a
//! plane once in as many erasures as the spread allows, and moves one block. Pages that flash has
//! to hold before an erasure are programmed before it ([`Relocate::owes_page`]).
//!
//! It does not collect ahead of need, in idle time, or across planes.

use super::{
    geometry::{BlockId, PlaneId},
    op::{Cause, OpSink, PageSource},
    space::{PagePlace, Relocate, Space, WriteStream},
};

impl Space {
    /// Collects until `plane` has more free blocks than the threshold.
    pub(super) fn collect(&mut self, plane: PlaneId, relocate: &mut dyn Relocate, sink: &mut dyn OpSink) {
        while self.free.len(plane) <= self.free_min {
            let Some((victim, valid)) = self.victims.fewest(plane) else { panic!("plane {} has no victim", plane.0) };
            assert!(
                valid < self.flash.geometry().pages_per_block,
                "plane {}: each victim is valid throughout",
                plane.0
            );
            let stream = if self.options.separate_collected { WriteStream::Collected } else { WriteStream::Host };
            self.empty(victim, stream, Cause::Collection, relocate, sink);
            self.level(plane, relocate, sink);
        }
    }

    /// Moves the valid pages of a closed block, and erases it.
    pub(super) fn empty(
        &mut self,
        victim: BlockId,
        stream: WriteStream,
        cause: Cause,
        relocate: &mut dyn Relocate,
        sink: &mut dyn OpSink,
    ) {
        self.victims.remove(victim);
        let plane = self.flash.geometry().plane_of(victim);
        if relocate.looks_far(self.flash.geometry().pages()) {
            self.prefetch_moves(victim, relocate);
        }
        let mut at = 0;
        while let Some(from) = self.flash.array().next_valid(victim, at) {
            at = self.flash.geometry().page_in_block(from) + 1;
            let block = self.open_block(plane, stream);
            let to = self.flash.copy(from, block, cause, sink);
            relocate.moved(self.flash.array().owner(to), from, to);
            self.close_full(plane, stream, block);
        }
        while relocate.owes_page() {
            let block = self.open_block(plane, WriteStream::Internal);
            let place = PagePlace { plane, stream: WriteStream::Internal, block };
            let owner = relocate.pay_page(self.page_at(place));
            self.program(place, owner, PageSource::Internal, Cause::Journal, sink);
        }
        self.flash.erase(victim, cause, sink);
        self.free.put(victim, self.flash.array());
        self.since_look[plane.0 as usize] += 1;
    }

    /// Prefetches the table entries of all moves at once.
    ///
    /// A page's move takes a few looks anywhere in large tables.
    fn prefetch_moves(&self, victim: BlockId, relocate: &dyn Relocate) {
        let mut at = 0;
        while let Some(from) = self.flash.array().next_valid(victim, at) {
            at = self.flash.geometry().page_in_block(from) + 1;
            relocate.prefetch_move(self.flash.array().owner(from), from);
        }
    }

    /// Moves the least-worn closed block of `plane` if it is too far behind and a look is due.
    fn level(&mut self, plane: PlaneId, relocate: &mut dyn Relocate, sink: &mut dyn OpSink) {
        let Some(spread_max) = self.options.wear_spread_max else { return };
        if self.since_look[plane.0 as usize] < spread_max {
            return;
        }
        self.since_look[plane.0 as usize] = 0;
        let array = self.flash.array();
        let geometry = *array.geometry();
        let (mut most, mut least) = (0, None);
        for index in 0..geometry.blocks_per_plane {
            let block = geometry.block_in_plane(plane, index);
            let erases = array.erases(block);
            most = erases.max(most);
            if self.victims.has(block) && least.is_none_or(|(fewest, _)| erases < fewest) {
                least = Some((erases, block));
            }
        }
        if let Some((erases, block)) = least
            && most - erases > spread_max
        {
            self.empty(block, WriteStream::Still, Cause::WearLevelling, relocate, sink);
        }
    }
}
