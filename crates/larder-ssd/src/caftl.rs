//! CAFTL: a translation layer that deduplicates written pages.
//!
//! Source: Chen, Luo and Zhang, CAFTL: A Content-Aware Flash Translation Layer, FAST 2011.
//!
//! Role: [`Caftl`] is a [`Space`], two maps and a store of fingerprints. It fingerprints a written
//! page. If the store knows the content, the maps refer to its page, and nothing is programmed. Its
//! baseline is the page-mapped layer with TRIM (`page-trim`), over the same space.
//!
//! | file | content |
//! |---|---|
//! | [`digest`] | stand-ins for a page's SHA-1, CRC32 and sample bytes |
//! | [`store`], `segment.rs`, `bucket.rs` | the fingerprint store: segments, buckets, the ways to find sooner (section 3.2.3) |
//! | [`maps`] | the two-level mapping (section 3.3.1) |
//! | [`journal`] | tables in flash, journal and log (section 3.3.2) |
//! | [`pages`] | fingerprints of pages, and metadata pages (section 3.3.3) |
//! | `books.rs` | all of that, and its updates for a moved page |
//! | `in_line.rs` | writes: sampling, pre-hashing, references (sections 3.1 and 3.4) |
//! | `out_of_line.rs` | idle time: fingerprinting, external merging (section 3.5) |
//! | `own.rs` | contents of the layer's own pages, and those that a start goes by |
//! | `persist.rs` | the programming of metadata, journal and tables |
//! | [`options`], [`counts`] | the options and the counts |
//!
//! Invariants: an entry of the store means a page with its fingerprint. The page is valid, or it
//! was deleted and not programmed anew. A new page is programmed before an old one is given up.
//! Hashes are told as operations; the profile has their time.
//!
//! It does not keep parts of the maps in flash alone (the paper's DFTL remark). It does not lose
//! power: a replay pays for all that a start would need, and never starts.

use std::ops::Range;

use super::{
    array::FlashArray,
    counts::DriveCounts,
    flash::CountedFlash,
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{DriveGeometry, Lpn, OutOfRange, Ppa},
    op::{Cause, OpSink, PageSource},
    space::{Space, SpaceOptions, WriteStream},
};
use books::{Books, PageOwner};
use counts::CaftlCounts;
use journal::{JournalRecord, Log, Tables};
use location::{At, Location, Vba};
use maps::{Maps, Released};
use merging::OutOfLine;
use options::{CaftlOptions, Sizes};
use own::OwnPages;
use pages::PageFingerprints;
use store::Store;

mod books;
mod bucket;
pub mod counts;
pub mod digest;
pub mod entry;
mod in_line;
pub mod journal;
pub mod location;
pub mod maps;
mod merging;
pub mod options;
mod out_of_line;
mod own;
pub mod pages;
mod persist;
mod segment;
pub mod store;
#[cfg(test)]
mod tests;

/// The layer; see the module.
#[derive(Debug)]
pub struct Caftl {
    space: Space,
    books: Books,
    options: CaftlOptions,
    sizes: Sizes,
    out_of_line: OutOfLine,
    is_syncing: bool,
    is_in_line_on: bool,
    /// Unknown contents until now.
    unknown: u64,
}

impl Caftl {
    /// Makes a new drive.
    ///
    /// # Errors
    /// If the geometry is unsound, lacks spare blocks for the layer's own pages, or has more pages
    /// than 31 bits number. If an option is out of its range.
    pub fn new(geometry: DriveGeometry, options: CaftlOptions) -> Result<Self, OutOfRange> {
        let sizes = Sizes::of(&geometry, &options)?;
        let space = SpaceOptions {
            internal_pages_max: sizes.internal_pages_max,
            free_blocks_min: sizes.free_blocks_min,
            owed_pages_max: sizes.owed_pages_max,
            ..options.space
        };
        let space = Space::new(geometry, space)?;
        let logical = geometry.logical_pages();
        let books = Books {
            maps: Maps::new(logical),
            log: Log::new(geometry.page_bytes),
            pages: PageFingerprints::new(geometry.pages(), geometry.page_bytes, sizes.metadata_frames),
            store: Store::new(options.store, options.pre_hashes)?,
            own: OwnPages::new(&sizes, journal::entries_per_page(geometry.page_bytes)),
            has_capacitor: options.capacitor,
            records_per_page: sizes.records_per_page as usize,
            counts: CaftlCounts::default(),
            fingerprints_collected: options.fingerprints_collected,
            hashes_due: 0,
            collected: Vec::new(),
        };
        Ok(Caftl {
            space,
            books,
            options,
            sizes,
            out_of_line: OutOfLine::default(),
            is_syncing: false,
            is_in_line_on: true,
            unknown: 0,
        })
    }

    /// Returns the counts that only this layer has. For tests.
    #[doc(hidden)]
    pub fn caftl_counts(&self) -> &CaftlCounts {
        &self.books.counts
    }

    /// Returns the fingerprint store.
    pub fn store(&self) -> &Store {
        &self.books.store
    }

    /// Returns both maps.
    pub fn maps(&self) -> &Maps {
        &self.books.maps
    }

    /// Returns the options.
    pub fn options(&self) -> &CaftlOptions {
        &self.options
    }

    /// Returns true if the drive knows the fingerprint of a logical page's content. For tests.
    #[doc(hidden)]
    pub fn is_fingerprinted(&self, lpn: Lpn) -> bool {
        self.locate(lpn).is_some_and(|ppa| self.books.pages.is_known(ppa))
    }

    fn flash(&mut self) -> &mut CountedFlash {
        self.space.flash_mut()
    }

    /// Appends a page, and forgets the fingerprint of the one that lay there.
    fn append(
        &mut self,
        stream: WriteStream,
        owner: PageOwner,
        source: PageSource,
        cause: Cause,
        sink: &mut dyn OpSink,
    ) -> Ppa {
        let word = self.books.word(owner);
        let ppa = self.space.append(stream, word, source, cause, &mut self.books, sink);
        self.books.reused(ppa);
        self.books.pages.forget(ppa);
        ppa
    }

    fn owner(&self, ppa: Ppa) -> PageOwner {
        self.books.owner(self.space.array().owner(ppa))
    }

    fn set_owner(&mut self, ppa: Ppa, owner: PageOwner) {
        let word = self.books.word(owner);
        self.space.flash_mut().set_owner(ppa, word);
        self.books.pages.touch(ppa, true);
    }

    /// Gives the page of `lpn` a VBA.
    fn share(&mut self, lpn: Lpn, ppa: Ppa) -> Vba {
        let vba = self.books.maps.make_shared(lpn, ppa, &mut self.books.log);
        self.set_owner(ppa, PageOwner::Shared(vba));
        self.books.counts.pages_shared += 1;
        vba
    }

    /// Handles the former target of a logical page, which may be of no use now.
    fn released(&mut self, released: Released) {
        match released {
            Released::Nothing => {}
            Released::Shared(vba) => self.books.references_changed(vba),
            Released::Page(ppa) => {
                self.space.invalidate(ppa);
                if !self.books.pages.is_stored(ppa) {
                    return;
                }
                let digest = self.books.pages.digest(ppa);
                if self.options.keeps_deleted {
                    self.books.store.change(digest, Location::page(ppa), 0);
                } else {
                    self.books.store.remove(digest);
                    self.books.pages.set_stored(ppa, false);
                }
            }
        }
    }

    fn check_pages(&self) {
        let array = self.space.array();
        let mut valid = 0;
        for ppa in (0..array.geometry().pages()).map(Ppa).filter(|&ppa| array.is_valid(ppa)) {
            let owner = self.owner(ppa);
            assert!(self.books.is_mapped(owner, ppa), "page {} is where {owner:?} says", ppa.0);
            valid += 1;
            let metadata_page = self.books.pages.metadata_page(ppa);
            if !matches!(owner, PageOwner::Internal(_)) && self.books.pages.is_complete(metadata_page) {
                assert!(self.books.pages.is_known(ppa), "page {} is fingerprinted", ppa.0);
            }
        }
        let unique = self.books.maps.primary().iter().filter(|location| matches!(location.at(), Some(At::Page(_))));
        let used = unique.count() as u32 + self.books.maps.vbas() + self.books.own.len();
        assert_eq!(valid, used, "valid pages are those of the maps and the layer's own");
        assert!(self.books.own.len() <= self.sizes.internal_pages_max, "the layer's own pages");
    }

    /// Checks that the tables that a start would find, with the log's records, are those in RAM.
    fn check_tables(&self) {
        let books = &self.books;
        let mut tables: Tables =
            books.own.load(&books.own.find(), books.maps.logical_pages(), &mut |_: &JournalRecord| ());
        books.log.records().iter().for_each(|record| tables.apply(*record));
        assert!(tables.primary == books.maps.primary(), "tables, journal and log are the primary table");
        assert!(tables.secondary == books.maps.secondary(), "tables, journal and log are the secondary table");
    }

    fn check_store(&self) {
        let (array, pages) = (self.space.array(), &self.books.pages);
        for entry in self.books.store.entries() {
            let Some(ppa) = self.books.maps.resolve(entry.location) else { panic!("{entry:?} is somewhere") };
            assert!(pages.is_stored(ppa), "{entry:?} means page {}", ppa.0);
            assert_eq!(pages.digest(ppa), entry.digest, "page {} holds what the store says", ppa.0);
            if array.is_valid(ppa) {
                assert_eq!(*entry, self.books.entry(entry.digest, ppa, self.owner(ppa)), "page {}", ppa.0);
                assert!(pages.is_known(ppa), "page {} is fingerprinted", ppa.0);
            } else {
                assert!(self.options.keeps_deleted, "{entry:?} is deleted");
                assert_eq!((entry.location, entry.reference), (Location::page(ppa), 0), "{entry:?} is deleted");
            }
        }
        assert_eq!(self.books.store.len(), pages.stored(), "as many entries as pages that have one");
    }
}

impl Ftl for Caftl {
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        let erased = self.options.merges_collecting.then(|| self.counts().blocks_erased());
        let deduplicated = self.write_in_line(pages, sink);
        if let Some(erased) = erased {
            self.go_on_with_collection(erased, sink);
        }
        let counts = self.flash().host_counts();
        counts.host_pages_written += pages.len() as u64;
        counts.pages_deduplicated += u64::from(deduplicated);
        WrittenPages { programmed: pages.len() as u32 - deduplicated, deduplicated }
    }

    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        let ppa = self.locate(lpn);
        self.flash().host_counts().host_pages_read += 1;
        match ppa {
            Some(ppa) => self.flash().read(ppa, Cause::Host, sink),
            None => self.flash().host_counts().unmapped_pages_read += 1,
        }
        ppa.is_some()
    }

    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn OpSink) {
        assert!(pages.end <= self.books.maps.logical_pages(), "logical page {} is beyond the drive", pages.end);
        self.flash().host_counts().host_pages_trimmed += pages.len() as u64;
        for lpn in pages.map(Lpn) {
            let released = self.books.maps.unmap(lpn, &mut self.books.log);
            self.released(released);
            self.catch_up(sink);
        }
    }

    /// Writes the log to the journal. With a capacitor it does nothing: the log is as good as
    /// there.
    fn flush(&mut self, sink: &mut dyn OpSink) {
        if !self.options.capacitor {
            // The log comes last: settling adds to it.
            self.catch_up(sink);
            self.write_log(sink);
        }
    }

    fn idle(&mut self, budget: u64, sink: &mut dyn OpSink) -> u64 {
        self.use_idle_time(budget, sink)
    }

    fn tell_buffer_fill(&mut self, percent: u8) {
        let Some(switch) = self.options.switch else { return };
        if percent >= switch.high_percent && self.is_in_line_on {
            self.is_in_line_on = false;
            self.books.counts.switched_off += 1;
        } else if percent <= switch.low_percent {
            self.is_in_line_on = true;
        }
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        self.books.maps.resolve(self.books.maps.location(lpn))
    }

    fn takes_trims(&self) -> bool {
        true
    }

    fn deduplicates(&self) -> bool {
        true
    }

    fn counts(&self) -> &DriveCounts {
        self.space.flash().counts()
    }

    fn array(&self) -> &FlashArray {
        self.space.array()
    }

    fn ram_bytes(&self) -> u64 {
        let books = &self.books;
        let books = books.maps.ram_bytes()
            + books.log.ram_bytes()
            + books.pages.ram_bytes()
            + books.store.ram_bytes()
            + books.own.ram_bytes()
            + (books.collected.capacity() * size_of::<Ppa>()) as u64;
        self.space.ram_bytes() + books + self.out_of_line.ram_bytes()
    }

    fn check(&self) {
        self.space.check();
        self.books.maps.check();
        self.books.store.check();
        self.books.pages.check();
        self.check_tables();
        self.check_pages();
        self.check_store();
    }
}
