//! How a [`Space`] makes room and spreads wear.
//!
//! Role: greedy collection: of a plane's closed blocks the one with the fewest valid pages is the victim; what is valid
//! is copied within the plane, and the block erased, until more blocks are free than the threshold asks for. Dynamic
//! wear levelling: blocks are opened in the order of their wear, least first. Static wear levelling: when the most-worn
//! block of a plane is too far ahead of its least-worn closed one, that one's pages move onto a worn block, and it goes
//! back among those that are written (CAFTL section 1.1.2 names both).
//!
//! Invariants: collection begins with at least one free block and ends with more than it began with or with as many;
//! each victim has an invalid page, so it ends. Static levelling looks at a plane once in as many erasures as the
//! spread allows, and moves one block. What flash has to know before a block is erased is programmed before
//! ([`Relocate::owes_page`]).
//!
//! What it does not do: collect ahead of need, in idle time, or across planes.

use super::{
    geometry::{BlockId, PlaneId},
    op::{Cause, Sink, Source},
    space::{Place, Relocate, Space, Stream},
};

impl Space {
    /// Collects until `plane` has more free blocks than the threshold.
    pub(super) fn collect(&mut self, plane: PlaneId, relocate: &mut dyn Relocate, sink: &mut dyn Sink) {
        while self.free.len(plane) <= self.free_min {
            let Some((victim, valid)) = self.victims.fewest(plane) else { panic!("plane {} has no victim", plane.0) };
            assert!(
                valid < self.flash.geometry().pages_per_block,
                "plane {}: each victim is valid throughout",
                plane.0
            );
            let stream = if self.options.separate_collected { Stream::Collected } else { Stream::Host };
            self.empty(victim, stream, Cause::Collection, relocate, sink);
            self.level(plane, relocate, sink);
        }
    }

    /// Moves what is valid in a closed block, and erases it.
    pub(super) fn empty(
        &mut self,
        victim: BlockId,
        stream: Stream,
        cause: Cause,
        relocate: &mut dyn Relocate,
        sink: &mut dyn Sink,
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
            let block = self.open_block(plane, Stream::Internal);
            let place = Place { plane, stream: Stream::Internal, block };
            let owner = relocate.pay_page(self.page_at(place));
            self.program(place, owner, Source::Internal, Cause::Journal, sink);
        }
        self.flash.erase(victim, cause, sink);
        self.free.put(victim, self.flash.array());
        self.since_look[plane.0 as usize] += 1;
    }

    /// A page's move is a few looks anywhere in large tables: those of all wait at once.
    fn prefetch_moves(&self, victim: BlockId, relocate: &dyn Relocate) {
        let mut at = 0;
        while let Some(from) = self.flash.array().next_valid(victim, at) {
            at = self.flash.geometry().page_in_block(from) + 1;
            relocate.prefetch_move(self.flash.array().owner(from), from);
        }
    }

    /// Moves the least-worn closed block of `plane` if it lies too far behind, and if it is time to look.
    fn level(&mut self, plane: PlaneId, relocate: &mut dyn Relocate, sink: &mut dyn Sink) {
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
            self.empty(block, Stream::Still, Cause::WearLevelling, relocate, sink);
        }
    }
}
