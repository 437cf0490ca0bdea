//! Flash as a log a plane: the place of the next page, and the making of room for it.
//!
//! Role: [`Space`] appends pages to open blocks, one a plane and [`WriteStream`], plane after plane
//! (full striping, CAFTL Table 1). It collects and levels wear when a plane's free blocks run out
//! (`collect.rs`). It ignores the meaning of pages: each has an owner, a word of the space's user,
//! and [`Relocate`] hears of its moves. So the page-mapped layer is a space and a table, and CAFTL
//! a space and two tables.
//!
//! Invariants:
//! - A plane takes pages for the host only while collection can still make room in it. Its valid
//!   pages have to be fewer than those of its blocks less the free ones that collection keeps and
//!   the open ones ([`Space::plane_pages_max`]). Then one of its closed blocks has an invalid page.
//!   As the drive's logical pages are fewer than those of all planes together, some plane always
//!   takes one.
//! - At least one block of each plane is free, so that collection has room to copy to.
//!
//! It does not know logical pages, or move pages from plane to plane.

use super::{
    array::FlashArray,
    blocks::{ClosedBlocks, FreeBlocks},
    flash::CountedFlash,
    geometry::{BlockId, DriveGeometry, OutOfRange, PlaneId, Ppa},
    op::{Cause, OpSink, PageSource},
};

/// Pages that are appended side by side, so that pages that die together lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStream {
    /// Pages that the host writes.
    Host,
    /// Pages that collection moves.
    Collected,
    /// The layer's own pages: metadata, journal, tables.
    Internal,
    /// Pages that static wear levelling moves, onto worn blocks.
    Still,
}

/// The number of streams.
pub(super) const STREAMS: usize = 4;

/// The user of a space, which hears of moved pages.
pub trait Relocate {
    /// Notes that the content of page `from`, of `owner`, is on page `to` now.
    fn moved(&mut self, owner: u32, from: Ppa, to: Ppa);

    /// Prefetches the entries for a move of page `from` with this owner.
    ///
    /// See `table::prefetch`.
    fn prefetch_move(&self, _owner: u32, _from: Ppa) {}

    /// Returns true if the tables for moves on a drive of so many pages are worth a prefetch.
    ///
    /// A layer keeps at least four bytes of each page. With those, a processor's nearest caches
    /// hold the table of a smaller drive than this.
    fn looks_far(&self, pages: u32) -> bool {
        const FAR_PAGES_MIN: u32 = 1 << 19;
        pages >= FAR_PAGES_MIN
    }

    /// Returns true if an own page has to be programmed before a block may be erased.
    ///
    /// It has to if flash does not know yet of pages that left the block.
    fn owes_page(&self) -> bool {
        false
    }

    /// Puts the owed content on page `at`, which is programmed next, and returns its owner.
    ///
    /// It is called only while a page is owed.
    fn pay_page(&mut self, at: Ppa) -> u32 {
        panic!("no page is owed, and {} is not wanted", at.0)
    }
}

/// The place of the page that is programmed next.
#[derive(Clone, Copy, Debug)]
pub struct PagePlace {
    pub(super) plane: PlaneId,
    pub(super) stream: WriteStream,
    pub(super) block: BlockId,
}

/// The options of a space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceOptions {
    /// Share of free blocks at or below which a plane collects, in percent; one block at least.
    ///
    /// CAFTL Table 1: 5%.
    pub collection_threshold_percent: f64,
    /// True if collected pages go to blocks of their own, apart from those that the host writes.
    ///
    /// Under uniform random writes both are the same: a copied page is as likely to be written next
    /// as any other. Under others, old pages live longer.
    pub separate_collected: bool,
    /// Lead of a plane's most-worn block beyond which static wear levelling moves a block.
    ///
    /// In erasures. It moves the least-worn one; `None`: never.
    pub wear_spread_max: Option<u32>,
    /// The most own pages of the layer that are valid at a time, over the whole drive.
    pub internal_pages_max: u32,
    /// Free blocks at or below which a plane collects, if the threshold is less; one at least.
    pub free_blocks_min: u32,
    /// The most pages that are [owed](Relocate::owes_page) for an erased block.
    ///
    /// A victim has more invalid ones.
    pub owed_pages_max: u32,
}

impl SpaceOptions {
    /// Lists the streams that are written.
    pub(super) fn streams(&self) -> impl Iterator<Item = WriteStream> + use<> {
        let is_used = [true, self.separate_collected, self.internal_pages_max > 0, self.wear_spread_max.is_some()];
        let all = [WriteStream::Host, WriteStream::Collected, WriteStream::Internal, WriteStream::Still];
        all.into_iter().zip(is_used).filter(|(_, is_used)| *is_used).map(|(stream, _)| stream)
    }
}

impl Default for SpaceOptions {
    /// Returns CAFTL Table 1's threshold, separate streams, and wear levelling beyond 100 erasures.
    ///
    /// The last is ours: a few percent of the erasures that any profile's blocks stand.
    fn default() -> Self {
        SpaceOptions {
            collection_threshold_percent: 5.0,
            separate_collected: true,
            wear_spread_max: Some(100),
            internal_pages_max: 0,
            free_blocks_min: 1,
            owed_pages_max: 0,
        }
    }
}

/// The space; see the module.
#[derive(Debug)]
pub struct Space {
    pub(super) flash: CountedFlash,
    pub(super) free: FreeBlocks,
    pub(super) victims: ClosedBlocks,
    pub(super) options: SpaceOptions,
    /// A plane collects when it has no more free blocks than this.
    pub(super) free_min: u32,
    /// Open blocks, by plane and [`WriteStream`].
    pub(super) open: Vec<[Option<BlockId>; STREAMS]>,
    /// Erasures of each plane since the last look at wear.
    pub(super) since_look: Vec<u32>,
    plane_pages_max: u32,
    pub(super) next_plane: u32,
}

impl Space {
    /// Makes new flash.
    ///
    /// # Errors
    /// If the geometry is unsound or lacks the spare blocks, or an option is out of its range.
    pub fn new(geometry: DriveGeometry, options: SpaceOptions) -> Result<Self, OutOfRange> {
        geometry.check()?;
        let percent = options.collection_threshold_percent;
        if !(0.0..100.0).contains(&percent) {
            return Err(OutOfRange::new("collection_threshold_percent", percent, "from 0 to below 100"));
        }
        if options.wear_spread_max == Some(0) {
            return Err(OutOfRange::new("wear_spread_max", 0, "at least 1, or none"));
        }
        let blocks = f64::from(geometry.blocks_per_plane);
        let free_min = ((blocks * percent / 100.0).ceil() as u32).max(options.free_blocks_min.max(1));
        let streams = options.streams().count() as u32;
        // The new copy of a page is programmed before the old one is given up: one page more.
        let pages = u64::from(geometry.logical_pages()) + u64::from(options.internal_pages_max) + 1;
        let blocks_max = u64::from(geometry.blocks_per_plane).saturating_sub(u64::from(free_min + streams));
        let block_pages_max = geometry.pages_per_block.saturating_sub(options.owed_pages_max);
        let plane_pages_max = blocks_max * u64::from(block_pages_max);
        if pages > plane_pages_max * u64::from(geometry.planes()) {
            let beyond = pages.div_ceil(u64::from(geometry.planes())).div_ceil(u64::from(block_pages_max.max(1)));
            let free_max = u64::from(geometry.blocks_per_plane).saturating_sub(beyond + u64::from(streams));
            // More is kept free than by default, and less would suffice: the refusal names that.
            if percent > SpaceOptions::default().collection_threshold_percent && free_max > 0 {
                let range = format!(
                    "so little that beside the {beyond} blocks that a plane's data fills, and {streams} open, at most \
                     {free_max} of {} stay free",
                    geometry.blocks_per_plane
                );
                return Err(OutOfRange::new("collection_threshold_percent", percent, range));
            }
            let range = format!(
                "so much that beside the {beyond} blocks that a plane's data fills, {free_min} stay free and {streams} \
                 open; a plane has {} (or give it more, smaller ones)",
                geometry.blocks_per_plane
            );
            return Err(OutOfRange::new("over_provisioning_percent", geometry.over_provisioning_percent, range));
        }
        Ok(Space {
            flash: CountedFlash::new(geometry),
            free: FreeBlocks::all(&geometry),
            victims: ClosedBlocks::new(&geometry),
            options,
            free_min,
            open: vec![[None; STREAMS]; geometry.planes() as usize],
            since_look: vec![0; geometry.planes() as usize],
            plane_pages_max: plane_pages_max as u32,
            next_plane: 0,
        })
    }

    /// Appends a page to the next plane that takes one, after making room if needed.
    pub fn append(
        &mut self,
        stream: WriteStream,
        owner: u32,
        source: PageSource,
        cause: Cause,
        relocate: &mut dyn Relocate,
        sink: &mut dyn OpSink,
    ) -> Ppa {
        let place = self.make_room(stream, relocate, sink);
        self.program(place, owner, source, cause, sink)
    }

    /// Finds the place of a stream's next page, on the next plane that takes one.
    ///
    /// It makes room before if needed.
    pub fn make_room(&mut self, stream: WriteStream, relocate: &mut dyn Relocate, sink: &mut dyn OpSink) -> PagePlace {
        let plane = self.take_plane();
        let block = self.block_for(plane, stream, relocate, sink);
        PagePlace { plane, stream, block }
    }

    /// Returns the page that [`Space::program`] programs there.
    pub fn page_at(&self, place: PagePlace) -> Ppa {
        let array = self.flash.array();
        array.geometry().ppa(place.block, array.written(place.block))
    }

    /// Programs a page in the room that was made.
    pub fn program(
        &mut self,
        PagePlace { plane, stream, block }: PagePlace,
        owner: u32,
        source: PageSource,
        cause: Cause,
        sink: &mut dyn OpSink,
    ) -> Ppa {
        let ppa = self.flash.program(block, owner, source, cause, sink);
        self.close_full(plane, stream, block);
        ppa
    }

    /// Makes `ppa` invalid.
    ///
    /// # Panics
    /// If it is not valid.
    pub fn invalidate(&mut self, ppa: Ppa) {
        let (block, left) = self.flash.invalidate(ppa);
        self.victims.set(block, left);
    }

    /// Makes the invalid `ppa` valid again.
    ///
    /// # Panics
    /// If it is free or valid.
    pub fn revalidate(&mut self, ppa: Ppa) {
        let (block, now) = self.flash.revalidate(ppa);
        self.victims.set(block, now);
    }

    /// Returns the flash: to read it, to count, and to change owners.
    pub fn flash_mut(&mut self) -> &mut CountedFlash {
        &mut self.flash
    }

    /// Returns the physical state.
    pub fn array(&self) -> &FlashArray {
        self.flash.array()
    }

    /// Returns the flash.
    pub fn flash(&self) -> &CountedFlash {
        &self.flash
    }

    /// Returns the free blocks that each plane keeps for collection.
    pub fn free_blocks_min(&self) -> u32 {
        self.free_min
    }

    /// Returns the valid pages at which a plane takes no more for the host.
    pub fn plane_pages_max(&self) -> u32 {
        self.plane_pages_max
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let planes = self.open.capacity() * size_of::<[Option<BlockId>; STREAMS]>() + self.since_look.capacity() * 4;
        self.flash.ram_bytes() + self.free.ram_bytes() + self.victims.ram_bytes() + planes as u64
    }

    /// Checks that each block is free, open or closed, and that the buckets know its valid pages.
    ///
    /// # Panics
    /// If not.
    pub fn check(&self) {
        let array = self.flash.array();
        assert_eq!(array.totals(), array.recount(), "the totals are those of the pages");
        let geometry = array.geometry();
        for plane in (0..geometry.planes()).map(PlaneId) {
            let open = self.open[plane.0 as usize].iter().flatten().count() as u32;
            let blocks = (0..geometry.blocks_per_plane).map(|index| geometry.block_in_plane(plane, index));
            let closed = blocks.filter(|&block| self.victims.has(block)).count() as u32;
            let free = self.free.len(plane);
            assert_eq!(free + open + closed, geometry.blocks_per_plane, "plane {}: free, open or closed", plane.0);
            assert!(free >= 1, "plane {} has a free block", plane.0);
        }
        self.victims.check(array);
    }

    /// Finds the next plane in turn that takes a page.
    fn take_plane(&mut self) -> PlaneId {
        let planes = self.open.len() as u32;
        for _ in 0..planes {
            let plane = PlaneId(self.next_plane);
            self.next_plane += 1;
            if self.next_plane == planes {
                self.next_plane = 0;
            }
            if self.flash.array().plane_valid(plane) < self.plane_pages_max {
                return plane;
            }
        }
        panic!("more valid pages than the drive has logical ones");
    }

    /// Returns the open block of a stream, and opens one if there is none.
    fn block_for(
        &mut self,
        plane: PlaneId,
        stream: WriteStream,
        relocate: &mut dyn Relocate,
        sink: &mut dyn OpSink,
    ) -> BlockId {
        if let Some(block) = self.open[plane.0 as usize][stream as usize] {
            return block;
        }
        self.collect(plane, relocate, sink);
        // Collection may have opened it, if it shares the stream.
        self.open_block(plane, stream)
    }

    /// Returns the open block of a stream, without making room: collection's own way.
    pub(super) fn open_block(&mut self, plane: PlaneId, stream: WriteStream) -> BlockId {
        if let Some(block) = self.open[plane.0 as usize][stream as usize] {
            return block;
        }
        let block = match stream {
            WriteStream::Still => self.free.take_most_worn(plane),
            _ => self.free.take_least_worn(plane),
        };
        let block = block.or_else(|| self.take_open(plane));
        let Some(block) = block else { panic!("plane {} has no free block", plane.0) };
        self.open[plane.0 as usize][stream as usize] = Some(block);
        block
    }

    /// Takes an open block of any stream, which has none then.
    fn take_open(&mut self, plane: PlaneId) -> Option<BlockId> {
        let array = self.flash.array();
        let open = self.open[plane.0 as usize].iter_mut();
        let roomiest = open.max_by_key(|block| block.map_or(0, |block| array.free(block)))?;
        roomiest.take()
    }

    /// Closes an open block once its last page is programmed.
    pub(super) fn close_full(&mut self, plane: PlaneId, stream: WriteStream, block: BlockId) {
        let array = self.flash.array();
        if array.free(block) == 0 {
            self.victims.insert(block, array.valid(block));
            self.open[plane.0 as usize][stream as usize] = None;
        }
    }
}
