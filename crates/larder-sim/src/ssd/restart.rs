//! A [`Space`] after the power went: what flash shows of it, and room to begin from.
//!
//! Role: [`Space::find_again`] forgets what RAM had of the blocks and looks at the flash: a block of which nothing is
//! programmed is free, one that is programmed in part is open, one that is full is closed. [`Space::place_in_need`] has
//! pages for what a capacitor still saves, without collecting. [`Space::restore_room`] collects what collection had not
//! ended when the power went.
//!
//! Invariants: no more blocks of a plane are programmed in part than there are streams: none is opened while one is left
//! that has room. In the midst of a collection a plane has room for at least one block less than it keeps free, wherever
//! the power goes; so who keeps two blocks free, and as many as the capacitor fills
//! ([`SpaceOptions::free_blocks_min`](super::space::SpaceOptions)), can collect again.
//!
//! How often a block was erased is taken to be beside its pages, as drives keep it. Which stream an open block had is
//! forgotten: it may take any.
//!
//! What it does not do: know which pages are valid: who uses the space finds that in what it programmed.

use super::{
    blocks::{FreeBlocks, Victims},
    geometry::{BlockId, PlaneId},
    op::{Cause, Sink},
    space::{Place, Relocate, STREAMS, Space, Stream},
};

impl Space {
    /// Which blocks are free, open and closed, as flash has them.
    pub fn find_again(&mut self) {
        let array = self.flash.array();
        let geometry = *array.geometry();
        self.free = FreeBlocks::found(array);
        self.victims = Victims::new(&geometry);
        self.open.fill([None; STREAMS]);
        self.since_look.fill(0);
        self.next_plane = 0;
        for block in (0..geometry.blocks()).map(BlockId).filter(|&block| array.written(block) > 0) {
            if array.free(block) == 0 {
                self.victims.insert(block, array.valid(block));
                continue;
            }
            let plane = geometry.plane_of(block);
            let open = &mut self.open[plane.0 as usize];
            let stream = self.options.streams().find(|&stream| open[stream as usize].is_none());
            let Some(stream) = stream else { panic!("plane {} has more open blocks than streams", plane.0) };
            open[stream as usize] = Some(block);
        }
    }

    /// Where a page goes without any being moved for it: on the plane with the most room.
    pub fn place_in_need(&mut self) -> Place {
        let room = |plane: &PlaneId| (self.room(*plane), u32::MAX - plane.0);
        let Some(plane) = (0..self.open.len() as u32).map(PlaneId).max_by_key(room) else { panic!("no plane") };
        let stream = Stream::Internal;
        if let Some(block) = self.open[plane.0 as usize][stream as usize] {
            return Place { plane, stream, block };
        }
        let block = self.take_open(plane).or_else(|| self.free.take_least_worn(plane));
        let Some(block) = block else { panic!("plane {} has no room", plane.0) };
        self.open[plane.0 as usize][stream as usize] = Some(block);
        Place { plane, stream, block }
    }

    /// Each plane has again the free blocks that it keeps, as far as one of its closed blocks has an invalid page.
    pub fn restore_room(&mut self, relocate: &mut dyn Relocate, sink: &mut dyn Sink) {
        let pages_per_block = self.flash.geometry().pages_per_block;
        for plane in (0..self.open.len() as u32).map(PlaneId) {
            while self.free.len(plane) < self.free_min
                && let Some((victim, valid)) = self.victims.fewest(plane)
                && valid < pages_per_block
            {
                let stream = if self.options.separate_collected { Stream::Collected } else { Stream::Host };
                self.empty(victim, stream, Cause::Collection, relocate, sink);
            }
        }
    }

    /// An open block of any stream, which has none then.
    pub(super) fn take_open(&mut self, plane: PlaneId) -> Option<BlockId> {
        let array = self.flash.array();
        let open = self.open[plane.0 as usize].iter_mut();
        let roomiest = open.max_by_key(|block| block.map_or(0, |block| array.free(block)))?;
        roomiest.take()
    }

    /// Free pages of a plane.
    fn room(&self, plane: PlaneId) -> u32 {
        let array = self.flash.array();
        let open: u32 = self.open[plane.0 as usize].iter().flatten().map(|&block| array.free(block)).sum();
        open + self.free.len(plane) * array.geometry().pages_per_block
    }
}
