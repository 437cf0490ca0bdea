//! The hybrid translation layer: data blocks mapped by block, and log blocks mapped by page. It
//! follows FAST (Lee et al., A log buffer-based flash translation layer using fully-associative
//! sector translation, ACM TECS 6 (3), 2007). Nitro's simulated drives have it, with 10% of their
//! blocks for the log (Nitro sections 4 and 5.4).
//!
//! Role: a *logical block* is as many logical pages as a block has pages; its *data block* has them
//! at their offsets. A page that has no place there goes to the log. FAST's rules, in this order:
//! 1. A write that continues the *sequential log block* goes there; any other write to that logical
//!    block ends it with a merge first.
//! 2. A write at the first free page of its data block goes there; at offset 0, into a new data
//!    block, if there is none.
//! 3. A write at offset 0 begins a sequential log block; the one that was there is merged.
//! 4. All others go to the *random log blocks*, in any of them (fully associative).
//!
//! If the log needs more than its number of blocks, its oldest is the victim (round robin). Each
//! logical block with pages in it is merged, and the victim is erased (`merge.rs`).
//!
//! | merge | effect |
//! |---|---|
//! | switch | the sequential log block becomes the data block as it is |
//! | partial | a block is filled up with the missing pages behind its last one, and is the data block |
//! | full | the newest pages are copied to a free block, which becomes the data block |
//!
//! A partial merge fills the sequential log block, or the data block itself if the log has only
//! pages behind its last.
//!
//! Ours, where FAST says nothing: pages are programmed in their order. So missing pages before a
//! page are padded, and a write further on in a data block goes to the log. The drive fills as many
//! random log blocks in turn as it has planes, and half the log at most. FAST fills one; the log
//! holds the same pages. Partial and full merges take a page from its newest place, the log
//! included. With TRIM, a data block without valid pages is erased at once, with no copy.
//!
//! Wear levelling: free blocks are taken in the order of their wear, of the whole drive (dynamic).
//! Static levelling looks for the least-worn data block once in as many erasures as the spread
//! allows. If the most-worn block is further ahead than that, the data block is copied to the
//! most-worn free block.
//!
//! Invariants: a logical block has one data block at most, and its pages are at their offsets
//! there. One block is free between requests, which a merge needs before it erases the old data
//! block. Logical capacity is the rest beside the log and this spare, if that is less than the
//! geometry's. With eviction (FlashTier, `flashtier.rs`), there may be more logical blocks than
//! blocks for them: see `eviction.rs`.
//!
//! It does not choose planes: blocks come as their wear has it, so copies pass the bus. Its map is
//! larger than a drive's: it has a table by logical page. A drive has one by logical block, and one
//! by page for the log.

pub mod eviction;
mod merge;

use std::{collections::VecDeque, ops::Range};

use self::eviction::Eviction;
use super::{
    array::FlashArray,
    blocks::{FreeBlocks, NO_BLOCK, POOL},
    counts::DriveCounts,
    flash::CountedFlash,
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{BlockId, DriveGeometry, Lpn, OutOfRange, Ppa},
    op::{Cause, OpSink, PageSource},
    table,
};

/// The options of a hybrid layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HybridOptions {
    /// The log's share of all blocks, in percent, at least two blocks: a sequential and a random
    /// one.
    pub log_share_percent: f64,
    /// True if trimmed pages are gone.
    pub takes_trims: bool,
    /// Lead of the most-worn block beyond which static wear levelling acts; `None`: never.
    pub wear_spread_max: Option<u32>,
}

impl Default for HybridOptions {
    /// Returns Nitro's 10%, without TRIM. Wear levelling is that of
    /// [`SpaceOptions`](super::space::SpaceOptions).
    fn default() -> Self {
        HybridOptions { log_share_percent: 10.0, takes_trims: false, wear_spread_max: Some(100) }
    }
}

/// Merges by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merges {
    /// A log block became a data block as it was.
    pub switch: u64,
    /// A log block or a data block was filled up.
    pub partial: u64,
    /// All was copied to a free block.
    pub full: u64,
}

/// The sequential log block, and its logical block.
#[derive(Clone, Copy, Debug)]
struct Sequential {
    block: BlockId,
    of: u32,
}

/// A drive has two blocks for the log, a spare, and one for data, at least.
const BLOCKS_MIN: u32 = 4;

/// The layer; see the module.
#[derive(Debug)]
pub struct Hybrid {
    flash: CountedFlash,
    free: FreeBlocks,
    logical_pages: u32,
    takes_trims: bool,
    wear_spread_max: Option<u32>,
    /// The page of each logical page's newest copy.
    pages: Vec<Ppa>,
    /// The data block of each logical block.
    data: Vec<u32>,
    /// The logical block of each data block.
    holds: Vec<u32>,
    sequential: Option<Sequential>,
    /// All random log blocks, in the order in which they were opened.
    random: VecDeque<BlockId>,
    /// The random log blocks that are filled in turn.
    open: Vec<Option<BlockId>>,
    next_open: usize,
    /// The most random log blocks before a merge; the sequential one is the log's last.
    random_max: usize,
    /// True if data blocks keep off the blocks that the log may still take.
    log_is_reserved: bool,
    eviction: Option<Eviction>,
    merges: Merges,
    /// Erasures since the last look at wear.
    since_look: u32,
}

/// Computes the log's blocks for a share of all, checked against the drive.
pub(super) fn log_blocks(geometry: &DriveGeometry, percent: f64) -> Result<u32, OutOfRange> {
    let blocks = geometry.blocks();
    // No share suffices there.
    if blocks < BLOCKS_MIN {
        let range = format!(
            "{BLOCKS_MIN} or more, two for the log, a spare and one for data: give the drive a larger capacity, fewer pages_per_block or a \
             smaller page_bytes"
        );
        return Err(OutOfRange::new("blocks", blocks, range));
    }
    let log = (f64::from(blocks) * percent / 100.0).round().max(2.0);
    if percent > 0.0 && log + 2.0 <= f64::from(blocks) {
        return Ok(log as u32);
    }
    let range = format!(
        "above 0, and so little that beside the log, of 2 blocks or more, a spare and a data block are left of the \
         {blocks} that there are"
    );
    Err(OutOfRange::new("log_share_percent", percent, range))
}

impl Hybrid {
    /// Makes a new drive.
    ///
    /// # Errors
    /// If the geometry is unsound or has too few blocks, or an option is out of its range.
    pub fn new(geometry: DriveGeometry, options: HybridOptions) -> Result<Self, OutOfRange> {
        geometry.check()?;
        let log = log_blocks(&geometry, options.log_share_percent)?;
        let left = (geometry.blocks() - log - 1) * geometry.pages_per_block;
        Hybrid::of(geometry, options, geometry.logical_pages().min(left), log, None)
    }

    /// Makes a drive whose log has `log_blocks` at most, and that may drop data.
    pub(super) fn of(
        geometry: DriveGeometry,
        options: HybridOptions,
        logical_pages: u32,
        log_blocks: u32,
        eviction: Option<Eviction>,
    ) -> Result<Self, OutOfRange> {
        if options.wear_spread_max == Some(0) {
            return Err(OutOfRange::new("wear_spread_max", 0, "at least 1, or none"));
        }
        let random_max = log_blocks as usize - 1;
        let open = (geometry.planes() as usize).min(random_max / 2).max(1);
        Ok(Hybrid {
            flash: CountedFlash::new(geometry),
            free: FreeBlocks::pooled((0..geometry.blocks()).map(BlockId)),
            logical_pages,
            takes_trims: options.takes_trims,
            wear_spread_max: options.wear_spread_max,
            pages: table::filled(Ppa::NONE, logical_pages as usize),
            data: vec![NO_BLOCK; logical_pages.div_ceil(geometry.pages_per_block) as usize],
            holds: vec![NO_BLOCK; geometry.blocks() as usize],
            sequential: None,
            random: VecDeque::with_capacity(random_max),
            open: vec![None; open],
            next_open: 0,
            random_max,
            log_is_reserved: eviction.as_ref().is_none_or(Eviction::reserves_log),
            eviction,
            merges: Merges::default(),
            since_look: 0,
        })
    }

    /// Counts the merges of each kind.
    pub fn merges(&self) -> Merges {
        self.merges
    }

    /// Counts the blocks of the log now.
    pub fn log_blocks(&self) -> u32 {
        self.random.len() as u32 + u32::from(self.sequential.is_some())
    }

    fn data_block(&self, logical_block: u32) -> Option<BlockId> {
        let block = self.data[logical_block as usize];
        (block != NO_BLOCK).then_some(BlockId(block))
    }

    fn write_page(&mut self, page: &PageWrite, sink: &mut dyn OpSink) {
        let PageWrite { lpn, content } = *page;
        assert!(lpn.0 < self.logical_pages, "logical page {} is beyond the drive", lpn.0);
        let logical_block = lpn.0 / self.flash.geometry().pages_per_block;
        let block = self.block_for(lpn.0, sink);
        let ppa = self.flash.program(block, lpn.0, PageSource::Host(lpn, content), Cause::Host, sink);
        // The old copy comes last: a merge may have moved it.
        if let Some(old) = std::mem::replace(&mut self.pages[lpn.0 as usize], ppa).some() {
            self.give_up(old);
        }
        if let Some(eviction) = &mut self.eviction {
            eviction.used(logical_block);
            eviction.pages_changed(block, self.flash.array());
        }
        // A sequential log block that is full is switched at once.
        if self.sequential.is_some_and(|sequential| sequential.block == block) && self.flash.array().free(block) == 0 {
            self.end_sequential(sink);
        }
        self.level(sink);
    }

    /// Finds the block whose next page is for `lpn`. See the module for the order.
    fn block_for(&mut self, lpn: u32, sink: &mut dyn OpSink) -> BlockId {
        let pages_per_block = self.flash.geometry().pages_per_block;
        let (logical_block, offset) = (lpn / pages_per_block, lpn % pages_per_block);
        if let Some(Sequential { block, of }) = self.sequential
            && of == logical_block
        {
            if self.flash.array().written(block) == offset {
                return block;
            }
            self.end_sequential(sink);
        }
        match self.data_block(logical_block) {
            Some(block) if self.flash.array().written(block) == offset => return block,
            Some(_) => {}
            None if offset == 0 => {
                if let Some(block) = self.take_data_block(sink) {
                    self.set_data(logical_block, block, sink);
                    return block;
                }
            }
            None => {}
        }
        if offset == 0 {
            self.end_sequential(sink);
            if let Some(block) = self.take_log_block(sink) {
                self.sequential = Some(Sequential { block, of: logical_block });
                return block;
            }
        }
        self.log_block(sink)
    }

    /// Finds the next random log block in turn, with a free page.
    fn log_block(&mut self, sink: &mut dyn OpSink) -> BlockId {
        let slot = self.next_open;
        self.next_open = (slot + 1) % self.open.len();
        if let Some(block) = self.open[slot]
            && self.flash.array().free(block) > 0
        {
            return block;
        }
        let mut taken = None;
        if self.random.len() < self.random_max {
            taken = self.take_log_block(sink);
        }
        let block = match taken {
            Some(block) => block,
            None => {
                self.merge_oldest(sink);
                match self.take_log_block(sink) {
                    Some(block) => block,
                    None => panic!("a merged log block leaves a free one"),
                }
            }
        };
        self.random.push_back(block);
        self.open[slot] = Some(block);
        block
    }

    /// Takes a free block for the log.
    fn take_log_block(&mut self, sink: &mut dyn OpSink) -> Option<BlockId> {
        self.take_block(1, sink)
    }

    /// Takes a free block for a logical block that has no data block.
    fn take_data_block(&mut self, sink: &mut dyn OpSink) -> Option<BlockId> {
        let log_max = self.random_max as u32 + 1;
        self.take_block(if self.log_is_reserved { 1 + log_max - self.log_blocks() } else { 1 }, sink)
    }

    /// Takes a free block and leaves `kept`; drops data for it if the drive may.
    fn take_block(&mut self, kept: u32, sink: &mut dyn OpSink) -> Option<BlockId> {
        while self.free.len(POOL) <= kept {
            let victim = self.eviction.as_mut()?.next_victim(&self.data)?;
            self.evict(victim, sink);
        }
        self.free.take_least_worn(POOL)
    }

    /// Makes `ppa` invalid. Returns its block, and the number of its remaining valid pages.
    fn give_up(&mut self, ppa: Ppa) -> (BlockId, u32) {
        let (block, left) = self.flash.invalidate(ppa);
        if let Some(eviction) = &mut self.eviction {
            eviction.pages_changed(block, self.flash.array());
        }
        (block, left)
    }

    fn erase(&mut self, block: BlockId, cause: Cause, sink: &mut dyn OpSink) {
        self.flash.erase(block, cause, sink);
        self.free.put(block, self.flash.array());
        self.since_look += 1;
    }

    /// Makes `block` the data block of a logical block; the one before is erased.
    fn set_data(&mut self, logical_block: u32, block: BlockId, sink: &mut dyn OpSink) {
        self.replace_data(logical_block, block, Cause::Merge, sink);
    }

    fn replace_data(&mut self, logical_block: u32, block: BlockId, cause: Cause, sink: &mut dyn OpSink) {
        let old = self.data_block(logical_block);
        self.data[logical_block as usize] = block.0;
        self.holds[block.0 as usize] = logical_block;
        if let Some(eviction) = &mut self.eviction {
            eviction.has_data(logical_block, old, block, self.flash.array());
        }
        if let Some(old) = old {
            self.holds[old.0 as usize] = NO_BLOCK;
            self.erase(old, cause, sink);
        }
    }

    /// Erases a data block without valid pages.
    fn drop_data(&mut self, block: BlockId, cause: Cause, sink: &mut dyn OpSink) {
        let logical_block = std::mem::replace(&mut self.holds[block.0 as usize], NO_BLOCK);
        self.data[logical_block as usize] = NO_BLOCK;
        if let Some(eviction) = &mut self.eviction {
            eviction.has_no_data(logical_block, block);
        }
        self.erase(block, cause, sink);
    }

    fn trim_page(&mut self, lpn: u32, sink: &mut dyn OpSink) {
        let Some(old) = std::mem::replace(&mut self.pages[lpn as usize], Ppa::NONE).some() else { return };
        let (block, left) = self.give_up(old);
        if left > 0 {
            return;
        }
        if self.holds[block.0 as usize] != NO_BLOCK {
            self.drop_data(block, Cause::Collection, sink);
        } else if self.sequential.is_some_and(|sequential| sequential.block == block) {
            self.sequential = None;
            self.erase(block, Cause::Collection, sink);
        }
    }
}

impl Ftl for Hybrid {
    fn drops_unasked(&self) -> bool {
        self.eviction.is_some()
    }

    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        for page in pages {
            self.write_page(page, sink);
        }
        self.flash.host_counts().host_pages_written += pages.len() as u64;
        WrittenPages { programmed: pages.len() as u32, deduplicated: 0 }
    }

    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        let ppa = self.pages[lpn.0 as usize].some();
        self.flash.host_counts().host_pages_read += 1;
        match ppa {
            Some(ppa) => self.flash.read(ppa, Cause::Host, sink),
            None => self.flash.host_counts().unmapped_pages_read += 1,
        }
        if let Some(eviction) = self.eviction.as_mut().filter(|_| ppa.is_some()) {
            eviction.used(lpn.0 / self.flash.geometry().pages_per_block);
        }
        ppa.is_some()
    }

    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn OpSink) {
        assert!(pages.end <= self.logical_pages, "logical page {} is beyond the drive", pages.end);
        self.flash.host_counts().host_pages_trimmed += pages.len() as u64;
        if !self.takes_trims {
            return;
        }
        self.tell_dirty(pages.clone(), false);
        pages.for_each(|lpn| self.trim_page(lpn, sink));
        self.level(sink);
    }

    fn tell_dirty(&mut self, pages: Range<u32>, is_dirty: bool) {
        assert!(pages.end <= self.logical_pages, "logical page {} is beyond the drive", pages.end);
        let pages_per_block = self.flash.geometry().pages_per_block;
        let Some(eviction) = &mut self.eviction else { return };
        for lpn in pages {
            eviction.tell_dirty(lpn, lpn / pages_per_block, is_dirty, &self.data, self.flash.array());
        }
    }

    fn takes_dirty(&self, lpn: Lpn) -> bool {
        let logical_block = lpn.0 / self.flash.geometry().pages_per_block;
        self.eviction.as_ref().is_none_or(|eviction| eviction.takes_dirty(logical_block))
    }

    fn dirty_blocks_max(&self) -> Option<u32> {
        self.eviction.as_ref().map(Eviction::dirty_blocks_max)
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        self.pages[lpn.0 as usize].some()
    }

    fn logical_pages(&self) -> u32 {
        self.logical_pages
    }

    fn takes_trims(&self) -> bool {
        self.takes_trims
    }

    /// Returns all pages of the next dropped data block's logical block; pages in the log stay.
    fn next_eviction(&self) -> Option<Range<u32>> {
        let victim = self.eviction.as_ref()?.peek(&self.data)?;
        let pages_per_block = self.flash.geometry().pages_per_block;
        let first = self.holds[victim.0 as usize] * pages_per_block;
        Some(first..(first + pages_per_block).min(self.logical_pages))
    }

    fn counts(&self) -> &DriveCounts {
        self.flash.counts()
    }

    fn array(&self) -> &FlashArray {
        self.flash.array()
    }

    fn ram_bytes(&self) -> u64 {
        let words = self.pages.capacity() + self.data.capacity() + self.holds.capacity() + self.random.capacity();
        let open = self.open.capacity() * size_of::<Option<BlockId>>();
        let eviction = self.eviction.as_ref().map_or(0, Eviction::ram_bytes);
        self.flash.ram_bytes() + self.free.ram_bytes() + (words * size_of::<u32>() + open) as u64 + eviction
    }

    fn check(&self) {
        let array = self.flash.array();
        let geometry = array.geometry();
        assert_eq!(array.totals(), array.recount(), "the totals are those of the pages");
        let mut mapped = 0;
        for (lpn, ppa) in self.pages.iter().enumerate() {
            let Some(ppa) = ppa.some() else { continue };
            assert!(array.is_valid(ppa), "logical page {lpn} is on a valid page");
            assert_eq!(array.owner(ppa) as usize, lpn, "page {} is of its logical page", ppa.0);
            let holds = self.holds[geometry.block_of(ppa).0 as usize];
            let place = holds as usize * geometry.pages_per_block as usize + geometry.page_in_block(ppa) as usize;
            assert!(holds == NO_BLOCK || place == lpn, "logical page {lpn} is at its offset of its data block");
            mapped += 1;
        }
        assert_eq!(array.totals().valid, mapped, "valid pages are those that are mapped");
        let mut data = 0;
        for (block, &holds) in self.holds.iter().enumerate().filter(|(_, holds)| **holds != NO_BLOCK) {
            assert_eq!(self.data[holds as usize] as usize, block, "block {block} is its logical block's data block");
            data += 1;
        }
        assert_eq!(self.data.iter().filter(|&&block| block != NO_BLOCK).count() as u32, data);
        assert_eq!(data + self.log_blocks() + self.free.len(POOL), geometry.blocks(), "data, log or free");
        assert!(self.free.len(POOL) >= 1, "a block is kept free");
        assert!(self.random.len() <= self.random_max, "the log is as large as it may be");
        if let Some(eviction) = &self.eviction {
            eviction.check(&self.data, array);
        }
    }
}
