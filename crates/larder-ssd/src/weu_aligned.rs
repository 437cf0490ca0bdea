//! The drive made for write-evict units: Nitro's co-design, WEU-LRU-mod (Nitro sections 4 and 6.1).
//!
//! Role: a write-evict unit (WEU) is whole erase blocks with numbers in a row, so in planes in a
//! row ("aligned allocation of contiguous physical pages for a WEU across multiple planes in
//! aligned blocks"). Its pages go to its blocks in turn. The host writes whole units, and pages
//! leave as a unit: its blocks are erased, and nothing is copied.
//!
//! The cache replacement is the drive's ("we push the cache replacement functionality to the FTL"):
//! the unit that was read or written least recently goes. The cache asks for it
//! ([`Ftl::next_eviction`]), destages and forgets its content, and writes. It writes to the same
//! unit, or to one that is not there, if the host has more units than the flash. Then the drive
//! drops the unit that it named, and says so. A cache that chooses for itself writes over any unit,
//! or trims it.
//!
//! No capacity is reserved ("No space reservation is used for the modified SSD WEU variants"): the
//! host has as many units as the flash, or more or less. Under a cache they are as many, unless the
//! user gives over-provisioning (`larder-sim/src/setup/drive.rs`). Blocks that make no whole unit
//! are left over. A unit that is written over is erased before, as there may be no other place for
//! it.
//!
//! Erasures: of dropped units, for [`Cause::Eviction`]; of units that the host wrote over or
//! trimmed, for [`Cause::Collection`], with no copy either.
//!
//! Wear levelling: the least-worn free place is taken (dynamic). Static levelling compares its
//! erasures with those of the least-worn place with data. If it is too far ahead, the unit there
//! moves to the most-worn free place before, and leaves its own. Those are the only copies.
//!
//! Invariants: a unit is in one place, page `i` of it in block `i % blocks` at `i / blocks`. All
//! blocks of a place are erased together.
//!
//! It does not know dirty pages. A cache that asks before it writes has destaged the unit that
//! goes.

use std::ops::Range;

use super::{
    array::FlashArray,
    blocks::{FreeBlocks, POOL},
    counts::DriveCounts,
    flash::CountedFlash,
    flashtier::address_pages,
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{BlockId, DriveGeometry, Lpn, OutOfRange, Ppa},
    op::{Cause, OpSink, PageSource},
    use_order::UseOrder,
};

/// The default bytes of a unit: Nitro's.
pub const WEU_BYTES_DEFAULT: u64 = 2 << 20;
/// The default minimum of a drive's units, if it has as many blocks.
pub const UNITS_DEFAULT_MIN: u32 = 64;

/// The options of a drive for write-evict units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeuAlignedOptions {
    /// Bytes of a unit, the WEU of the cache: whole erase blocks.
    ///
    /// `None`, for caches without: [`WEU_BYTES_DEFAULT`] in whole blocks, one at least. On a small
    /// drive a unit has so few that there are [`UNITS_DEFAULT_MIN`] units.
    pub weu_bytes: Option<u64>,
    /// The host's addresses, in percent of the flash's pages, in whole units.
    pub address_space_percent: u32,
    /// Lead of the next written place beyond which static wear levelling moves a unit.
    ///
    /// In erasures. It moves the unit in the least-worn place; `None`: never.
    pub wear_spread_max: Option<u32>,
}

impl Default for WeuAlignedOptions {
    /// Returns as many addresses as pages, and the default wear levelling.
    ///
    /// The latter is that of [`SpaceOptions`](super::space::SpaceOptions).
    fn default() -> Self {
        WeuAlignedOptions { weu_bytes: None, address_space_percent: 100, wear_spread_max: Some(100) }
    }
}

impl WeuAlignedOptions {
    /// Computes the erase blocks of a unit.
    ///
    /// # Errors
    /// If the unit has no place on the drive, or is not of whole blocks.
    fn unit_blocks(&self, geometry: &DriveGeometry) -> Result<u32, OutOfRange> {
        let block_bytes = geometry.block_bytes();
        let Some(weu_bytes) = self.weu_bytes else {
            let most = u64::from(geometry.blocks() / UNITS_DEFAULT_MIN).max(1);
            return Ok(WEU_BYTES_DEFAULT.div_ceil(block_bytes).min(most) as u32);
        };
        geometry.check_weu(weu_bytes)?;
        Ok((weu_bytes / block_bytes) as u32)
    }
}

/// No place, in the map.
const NONE: u32 = u32::MAX;

/// The layer; see the module.
///
/// A *place* has room for a unit: `unit_blocks` blocks, numbered from 0.
#[derive(Debug)]
pub struct WeuAligned {
    flash: CountedFlash,
    unit_blocks: u32,
    unit_pages: u32,
    places: u32,
    /// Free places, by their first blocks.
    free: FreeBlocks,
    /// The place of each unit.
    map: Vec<u32>,
    /// The unit in each place.
    holds: Vec<u32>,
    recency: UseOrder,
    wear_spread_max: Option<u32>,
    /// No place was erased less often.
    erases_min: u32,
}

impl WeuAligned {
    /// Makes a new drive.
    ///
    /// # Errors
    /// If the geometry is unsound, or an option is out of its range.
    pub fn new(geometry: DriveGeometry, options: WeuAlignedOptions) -> Result<Self, OutOfRange> {
        geometry.check()?;
        if options.wear_spread_max == Some(0) {
            return Err(OutOfRange::new("wear_spread_max", 0, "at least 1, or none"));
        }
        let unit_blocks = options.unit_blocks(&geometry)?;
        let unit_pages = unit_blocks * geometry.pages_per_block;
        let places = geometry.blocks() / unit_blocks;
        let units = address_pages(places * unit_pages, options.address_space_percent)? / unit_pages;
        if units == 0 {
            let range = format!("so much that the host has a unit of {unit_pages} pages");
            return Err(OutOfRange::new("address_space_percent", options.address_space_percent, range));
        }
        Ok(WeuAligned {
            flash: CountedFlash::new(geometry),
            unit_blocks,
            unit_pages,
            places,
            free: FreeBlocks::pooled((0..places).map(|place| BlockId(place * unit_blocks))),
            map: vec![NONE; units as usize],
            holds: vec![NONE; places as usize],
            recency: UseOrder::new(units),
            wear_spread_max: options.wear_spread_max,
            erases_min: 0,
        })
    }

    /// Counts the units that can be written before one has to go.
    pub fn free_places(&self) -> u32 {
        self.free.len(POOL)
    }

    fn first_block(&self, place: u32) -> u32 {
        place * self.unit_blocks
    }

    /// Returns the block and page for page `at` of a unit in this place.
    fn page_of(&self, place: u32, at: u32) -> (BlockId, u32) {
        (BlockId(self.first_block(place) + at % self.unit_blocks), at / self.unit_blocks)
    }

    fn blocks_of(&self, place: u32) -> impl Iterator<Item = BlockId> + use<> {
        let first = self.first_block(place);
        (first..first + self.unit_blocks).map(BlockId)
    }

    fn place_of(&self, unit: u32) -> Option<u32> {
        let place = self.map[unit as usize];
        (place != NONE).then_some(place)
    }

    /// Returns the physical page of a unit's page, if it was not trimmed.
    fn find(&self, place: u32, at: u32) -> Option<Ppa> {
        let (block, page) = self.page_of(place, at);
        let ppa = self.flash.geometry().ppa(block, page);
        self.flash.array().is_valid(ppa).then_some(ppa)
    }

    /// Writes one unit, its pages in order.
    fn write_unit(&mut self, unit: u32, pages: &[PageWrite], sink: &mut dyn OpSink) {
        if let Some(place) = self.place_of(unit) {
            (0..self.unit_pages).filter_map(|at| self.find(place, at)).collect::<Vec<_>>().into_iter().for_each(
                |ppa| {
                    self.flash.invalidate(ppa);
                },
            );
            self.vacate(place, Cause::Collection, sink);
        } else if self.free.is_empty(POOL) {
            self.evict(sink);
        }
        self.level(sink);
        let place = self.take_place(FreeBlocks::take_least_worn);
        for (at, page) in (0..).zip(pages) {
            let (block, _) = self.page_of(place, at);
            self.flash.program(block, page.lpn.0, PageSource::Host(page.lpn, page.content), Cause::Host, sink);
        }
        self.map_unit(unit, place);
        self.recency.put(unit);
    }

    fn take_place(&mut self, take: fn(&mut FreeBlocks, super::geometry::PlaneId) -> Option<BlockId>) -> u32 {
        let Some(block) = take(&mut self.free, POOL) else { panic!("no place is free") };
        block.0 / self.unit_blocks
    }

    fn map_unit(&mut self, unit: u32, place: u32) {
        self.map[unit as usize] = place;
        self.holds[place as usize] = unit;
    }

    /// Drops the unit that was used least recently.
    fn evict(&mut self, sink: &mut dyn OpSink) {
        let Some(unit) = self.recency.least_recent() else { panic!("a full drive has a unit to drop") };
        let place = self.map[unit as usize];
        for at in 0..self.unit_pages {
            if let Some(ppa) = self.find(place, at) {
                self.flash.invalidate(ppa);
                self.flash.evicted(Lpn(unit * self.unit_pages + at), sink);
            }
        }
        self.vacate(place, Cause::Eviction, sink);
    }

    /// Erases a place without valid pages, and unmaps its unit.
    fn vacate(&mut self, place: u32, cause: Cause, sink: &mut dyn OpSink) {
        let unit = std::mem::replace(&mut self.holds[place as usize], NONE);
        self.map[unit as usize] = NONE;
        self.recency.remove(unit);
        self.erase(place, cause, sink);
    }

    fn erase(&mut self, place: u32, cause: Cause, sink: &mut dyn OpSink) {
        self.blocks_of(place).for_each(|block| self.flash.erase(block, cause, sink));
        self.free.put(BlockId(self.first_block(place)), self.flash.array());
    }

    fn erases(&self, place: u32) -> u32 {
        self.flash.array().erases(BlockId(self.first_block(place)))
    }

    /// Moves the unit in the least-worn place if that is too far behind the next written one.
    ///
    /// A place is free.
    fn level(&mut self, sink: &mut dyn OpSink) {
        let (Some(spread_max), Some(next)) = (self.wear_spread_max, self.free.least_worn(POOL)) else { return };
        let next = self.flash.array().erases(next);
        if next - self.erases_min <= spread_max {
            return;
        }
        let taken = (0..self.places).filter(|&place| self.holds[place as usize] != NONE);
        let Some(from) = taken.min_by_key(|&place| self.erases(place)) else { return };
        self.erases_min = self.erases(from).min(next);
        if next - self.erases_min <= spread_max {
            return;
        }
        let to = self.take_place(FreeBlocks::take_most_worn);
        for at in 0..self.unit_pages {
            let (block, _) = self.page_of(to, at);
            match self.find(from, at) {
                Some(ppa) => drop(self.flash.copy(ppa, block, Cause::WearLevelling, sink)),
                // Trimmed; the pages after it keep their places.
                None => self.flash.pad(block, Cause::MergePadding, sink),
            }
        }
        let unit = std::mem::replace(&mut self.holds[from as usize], NONE);
        self.map_unit(unit, to);
        self.erase(from, Cause::WearLevelling, sink);
    }
}

impl Ftl for WeuAligned {
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        let mut sorted = Vec::new();
        let mut pages = pages;
        if !pages.is_sorted_by_key(|page| page.lpn) {
            sorted.extend_from_slice(pages);
            sorted.sort_unstable_by_key(|page: &PageWrite| page.lpn);
            pages = &sorted;
        }
        for of_unit in pages.chunks(self.unit_pages as usize) {
            let first = of_unit[0].lpn.0;
            let is_whole = first.is_multiple_of(self.unit_pages)
                && of_unit.len() == self.unit_pages as usize
                && (first..).zip(of_unit).all(|(lpn, page)| page.lpn.0 == lpn);
            assert!(is_whole, "a write from page {first} on is not of whole units of {} pages", self.unit_pages);
            let unit = first / self.unit_pages;
            assert!((unit as usize) < self.map.len(), "unit {unit} is beyond the drive");
            self.write_unit(unit, of_unit, sink);
        }
        self.flash.host_counts().host_pages_written += pages.len() as u64;
        WrittenPages { programmed: pages.len() as u32, deduplicated: 0 }
    }

    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        let ppa = self.locate(lpn);
        self.flash.host_counts().host_pages_read += 1;
        match ppa {
            Some(ppa) => {
                self.flash.read(ppa, Cause::Host, sink);
                self.recency.touch(lpn.0 / self.unit_pages);
            }
            None => self.flash.host_counts().unmapped_pages_read += 1,
        }
        ppa.is_some()
    }

    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn OpSink) {
        assert!(pages.end <= self.logical_pages(), "logical page {} is beyond the drive", pages.end);
        self.flash.host_counts().host_pages_trimmed += pages.len() as u64;
        for lpn in pages {
            let unit = lpn / self.unit_pages;
            let Some(place) = self.place_of(unit) else { continue };
            if let Some(ppa) = self.find(place, lpn % self.unit_pages) {
                self.flash.invalidate(ppa);
                if self.blocks_of(place).all(|block| self.flash.array().valid(block) == 0) {
                    self.vacate(place, Cause::Collection, sink);
                }
            }
        }
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        let place = self.place_of(lpn.0 / self.unit_pages)?;
        self.find(place, lpn.0 % self.unit_pages)
    }

    fn logical_pages(&self) -> u32 {
        self.map.len() as u32 * self.unit_pages
    }

    fn write_unit_pages(&self) -> u32 {
        self.unit_pages
    }

    fn takes_trims(&self) -> bool {
        true
    }

    fn next_eviction(&self) -> Option<Range<u32>> {
        let unit = self.recency.least_recent()?;
        Some(unit * self.unit_pages..(unit + 1) * self.unit_pages)
    }

    fn counts(&self) -> &DriveCounts {
        self.flash.counts()
    }

    fn array(&self) -> &FlashArray {
        self.flash.array()
    }

    fn ram_bytes(&self) -> u64 {
        let words = self.map.capacity() + self.holds.capacity();
        self.flash.ram_bytes() + self.free.ram_bytes() + self.recency.ram_bytes() + (words * size_of::<u32>()) as u64
    }

    fn check(&self) {
        let array = self.flash.array();
        assert_eq!(array.totals(), array.recount(), "the totals are those of the pages");
        let mut taken = 0;
        for (unit, place) in (0..self.map.len() as u32).filter_map(|unit| Some((unit, self.place_of(unit)?))) {
            assert_eq!(self.holds[place as usize], unit, "place {place} is its unit's");
            assert!(self.recency.has(unit), "unit {unit} may be dropped");
            taken += 1;
        }
        assert_eq!(self.holds.iter().filter(|&&unit| unit != NONE).count() as u32, taken);
        assert_eq!(self.recency.count(), taken, "what may be dropped is there");
        assert_eq!(taken + self.free_places(), self.places, "a place is taken or free");
        for place in 0..self.places {
            let is_taken = self.holds[place as usize] != NONE;
            assert!(self.erases(place) >= self.erases_min, "place {place} was erased {} times", self.erases_min);
            for block in self.blocks_of(place) {
                assert_eq!(array.erases(block), self.erases(place), "the blocks of place {place} are erased together");
                assert_eq!(array.written(block) > 0, is_taken, "block {} is of a unit", block.0);
            }
            let valid: u32 = self.blocks_of(place).map(|block| array.valid(block)).sum();
            assert_eq!(valid > 0, is_taken, "something of place {place} is there");
            for at in (0..self.unit_pages).filter(|_| is_taken) {
                let lpn = self.holds[place as usize] * self.unit_pages + at;
                assert!(self.find(place, at).is_none_or(|ppa| array.owner(ppa) == lpn), "page {lpn} is at its place");
            }
        }
    }
}
