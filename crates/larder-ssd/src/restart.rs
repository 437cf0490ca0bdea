//! A [`Space`] after a loss of power: the state that flash shows, and room to begin from.
//!
//! Role: [`Space::find_again`] forgets RAM's state of the blocks and looks at the flash. A block
//! without programmed pages is free, one that is programmed in part is open, one that is full is
//! closed. [`Space::place_in_need`] has room for the pages that a capacitor still saves, without
//! collection. [`Space::restore_room`] ends a collection that the loss of power interrupted.
//!
//! Invariants: a plane has no more blocks that are programmed in part than streams, because it
//! opens none while one with room is left. In the midst of a collection, at any loss of power, a
//! plane has room for at least one block less than it keeps free. So a layer can collect again if
//! it keeps two blocks free, and as many as the capacitor fills
//! ([`SpaceOptions::free_blocks_min`](super::space::SpaceOptions)).
//!
//! A block's erasures are taken to be beside its pages, as drives keep them. The stream of an open
//! block is forgotten: it may take any.
//!
//! It does not know valid pages: the user of the space finds them in the content that it
//! programmed.

use super::{
    blocks::{FreeBlocks, Victims},
    geometry::{BlockId, PlaneId},
    op::{Cause, Sink},
    space::{Place, Relocate, STREAMS, Space, Stream},
};

impl Space {
    /// Finds the free, open and closed blocks, as flash has them.
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

    /// Finds a place for a page, with no page moved for it: on the plane with the most room.
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

    /// Collects until each plane has again the free blocks that it keeps.
    ///
    /// It stops earlier if no closed block of the plane has an invalid page.
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

    /// Takes an open block of any stream, which has none then.
    pub(super) fn take_open(&mut self, plane: PlaneId) -> Option<BlockId> {
        let array = self.flash.array();
        let open = self.open[plane.0 as usize].iter_mut();
        let roomiest = open.max_by_key(|block| block.map_or(0, |block| array.free(block)))?;
        roomiest.take()
    }

    /// Counts the free pages of a plane.
    fn room(&self, plane: PlaneId) -> u32 {
        let array = self.flash.array();
        let open: u32 = self.open[plane.0 as usize].iter().flatten().map(|&block| array.free(block)).sum();
        open + self.free.len(plane) * array.geometry().pages_per_block
    }
}
