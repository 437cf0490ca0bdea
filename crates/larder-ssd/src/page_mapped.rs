//! The page-mapped translation layer: a table from logical to physical pages, over a [`Space`].
//!
//! Role: it is a present-day drive, and the base that CAFTL is compared with (CAFTL Table 1: full
//! striping, greedy collection). It takes TRIM or not.
//!
//! Invariants: the owner of a valid page is its logical page, and the table maps that back to it.
//! The table is in RAM alone: a drive's care to keep it over a power loss costs nothing here.
//!
//! It does not deduplicate, or cache parts of the table.

use std::ops::Range;

use super::{
    array::FlashArray,
    counts::DriveCounts,
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{DriveGeometry, Lpn, OutOfRange, Ppa},
    op::{Cause, OpSink, PageSource},
    space::{Relocate, Space, SpaceOptions, WriteStream},
    table,
};

/// The options of a page-mapped layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageMappedOptions {
    /// Options of writing and collection.
    pub space: SpaceOptions,
    /// True if trimmed pages are gone.
    pub takes_trims: bool,
}

/// The table.
#[derive(Debug)]
struct Map(Vec<Ppa>);

impl Relocate for Map {
    fn prefetch_move(&self, owner: u32, _: Ppa) {
        table::prefetch(&self.0, owner as usize);
    }

    fn moved(&mut self, owner: u32, _: Ppa, to: Ppa) {
        self.0[owner as usize] = to;
    }
}

/// The layer; see the module.
#[derive(Debug)]
pub struct PageMapped {
    space: Space,
    map: Map,
    takes_trims: bool,
}

impl PageMapped {
    /// Makes a new drive.
    ///
    /// # Errors
    /// If the geometry is unsound, lacks spare blocks, or an option is out of its range.
    pub fn new(geometry: DriveGeometry, options: PageMappedOptions) -> Result<Self, OutOfRange> {
        let space = Space::new(geometry, options.space)?;
        let map = Map(table::filled(Ppa::NONE, geometry.logical_pages() as usize));
        Ok(PageMapped { space, map, takes_trims: options.takes_trims })
    }

    fn write_page(&mut self, page: &PageWrite, sink: &mut dyn OpSink) {
        let PageWrite { lpn, content } = *page;
        assert!((lpn.0 as usize) < self.map.0.len(), "logical page {} is beyond the drive", lpn.0);
        let source = PageSource::Host(lpn, content);
        let ppa = self.space.append(WriteStream::Host, lpn.0, source, Cause::Host, &mut self.map, sink);
        // The old copy comes last: collection may have moved it.
        let old = std::mem::replace(&mut self.map.0[lpn.0 as usize], ppa);
        if let Some(old) = old.some() {
            self.space.invalidate(old);
        }
    }
}

impl Ftl for PageMapped {
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        for page in pages {
            self.write_page(page, sink);
        }
        self.space.flash_mut().host_counts().host_pages_written += pages.len() as u64;
        WrittenPages { programmed: pages.len() as u32, deduplicated: 0 }
    }

    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        let ppa = self.map.0[lpn.0 as usize].some();
        let counts = self.space.flash_mut().host_counts();
        counts.host_pages_read += 1;
        match ppa {
            Some(ppa) => self.space.flash_mut().read(ppa, Cause::Host, sink),
            None => counts.unmapped_pages_read += 1,
        }
        ppa.is_some()
    }

    fn trim(&mut self, pages: Range<u32>, _: &mut dyn OpSink) {
        assert!(pages.end as usize <= self.map.0.len(), "logical page {} is beyond the drive", pages.end);
        self.space.flash_mut().host_counts().host_pages_trimmed += pages.len() as u64;
        if !self.takes_trims {
            return;
        }
        for lpn in pages {
            if let Some(old) = std::mem::replace(&mut self.map.0[lpn as usize], Ppa::NONE).some() {
                self.space.invalidate(old);
            }
        }
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        self.map.0[lpn.0 as usize].some()
    }

    fn takes_trims(&self) -> bool {
        self.takes_trims
    }

    fn counts(&self) -> &DriveCounts {
        self.space.flash().counts()
    }

    fn array(&self) -> &FlashArray {
        self.space.array()
    }

    fn ram_bytes(&self) -> u64 {
        self.space.ram_bytes() + (self.map.0.capacity() * size_of::<Ppa>()) as u64
    }

    fn check(&self) {
        self.space.check();
        let array = self.space.array();
        let mut mapped = 0;
        for (lpn, ppa) in self.map.0.iter().enumerate() {
            let Some(ppa) = ppa.some() else { continue };
            assert!(array.is_valid(ppa), "logical page {lpn} is on a valid page");
            assert_eq!(array.owner(ppa) as usize, lpn, "page {} is of its logical page", ppa.0);
            mapped += 1;
        }
        assert_eq!(array.totals().valid, mapped, "valid pages are those that are mapped");
    }
}
