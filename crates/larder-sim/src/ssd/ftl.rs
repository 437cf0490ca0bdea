//! The trait of all flash translation layers, and the table of them.
//!
//! Role: [`Ftl`] is what the host's side of a drive asks; a layer is one file that implements it and one line in
//! [`FTLS`], and the tests over random workloads run on all lines of that table.
//!
//! Invariants: a layer has no clock and no randomness. The drive's write buffer is before the layer, not in it: what
//! the buffer absorbs never comes here, and `write` is what leaves it.
//!
//! What it does not do: answer requests that are not whole pages; that is the host side's.

use std::ops::Range;

use larder_core::Fingerprint;

use super::{
    array::{FlashArray, PageTotals},
    caftl::{Caftl, options::CaftlOptions},
    counts::Counts,
    flashtier::FlashTierOptions,
    geometry::{Lpn, OutOfRange, Ppa},
    hybrid::{Hybrid, HybridOptions},
    op::Sink,
    page_mapped::{PageMapped, PageMappedOptions},
    profile::Profile,
    space::SpaceOptions,
    weu_aligned::{WeuAligned, WeuAlignedOptions},
};

/// A logical page that the host writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWrite {
    /// Which.
    pub lpn: Lpn,
    /// What: 128 bits that stand for the content, where it is known. Equal fingerprints are equal pages; unknown
    /// content is like no other.
    pub content: Option<Fingerprint>,
}

/// How the pages of a write were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// So many were programmed.
    pub programmed: u32,
    /// So many were not, because their content was there.
    pub deduplicated: u32,
}

/// A flash translation layer.
pub trait Ftl: Send {
    /// The host writes `pages`, which are one request (CAFTL samples within it): each page once, in any order.
    /// Collection that is needed to have room happens in here. What is dropped for that is told in the order of the
    /// operations: an old copy of a page of this request, or the one that was just programmed.
    ///
    /// # Panics
    /// If a page is not below [`Ftl::logical_pages`], or the request not of whole [`Ftl::write_unit_pages`].
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn Sink) -> Written;

    /// The host reads a page: false, and nothing is read, where nothing is there.
    ///
    /// # Panics
    /// If the page is not below [`Ftl::logical_pages`].
    fn read(&mut self, lpn: Lpn, sink: &mut dyn Sink) -> bool;

    /// The host has no more use for these pages. A layer that [takes no trims](Ftl::takes_trims) counts them and keeps
    /// the pages.
    ///
    /// # Panics
    /// If a page is not below [`Ftl::logical_pages`].
    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn Sink);

    /// Makes durable what the layer holds in RAM alone, such as a journal. Most have nothing.
    fn flush(&mut self, _sink: &mut dyn Sink) {}

    /// The host asks for nothing: the layer may use about `budget` operations for what can wait, such as deduplication
    /// out of line. Returns how many it used.
    fn idle(&mut self, _budget: u64, _sink: &mut dyn Sink) -> u64 {
        0
    }

    /// So full is the drive's write buffer, in percent; told before a write whenever it changed (CAFTL's dynamic
    /// switch, section 3.4.3).
    fn tell_buffer_fill(&mut self, _percent: u8) {}

    /// The host says of pages that it alone has their newest content, so that the drive must not drop them, or that it
    /// no longer does (FlashTier's write-dirty, write-clean and clean: told before the write, it holds for what is
    /// written then). A page is clean until told otherwise, and again once it is trimmed. Means nothing to drives that
    /// drop nothing of which they are not asked before ([`Ftl::next_eviction`]).
    ///
    /// # Panics
    /// If a page is not below [`Ftl::logical_pages`], or is not [taken](Ftl::takes_dirty).
    fn tell_dirty(&mut self, _pages: Range<u32>, _is_dirty: bool) {}

    /// Whether this page may be told dirty: a drive that drops pages needs some that it may drop.
    fn takes_dirty(&self, _lpn: Lpn) -> bool {
        true
    }

    /// Of how many aligned runs of a block's pages something may be dirty at a time; `None`: of all.
    fn dirty_blocks_max(&self) -> Option<u32> {
        None
    }

    /// Whether the drive drops pages that it did not name before ([`Ftl::next_eviction`]): then it has to be
    /// [told](Ftl::tell_dirty) what is dirty.
    fn drops_unasked(&self) -> bool {
        false
    }

    /// Whether the layer keeps pages of equal content once, and so has to be told what is written ([`PageWrite::content`]).
    fn deduplicates(&self) -> bool {
        false
    }

    /// Where a page is. No operation: for tests and for who follows the layer.
    fn locate(&self, lpn: Lpn) -> Option<Ppa>;

    /// How many pages the host can address.
    fn logical_pages(&self) -> u32 {
        self.array().geometry().logical_pages()
    }

    /// Writes come in whole, aligned runs of so many pages: 1, or those of a write-evict unit on a drive made for them.
    fn write_unit_pages(&self) -> u32 {
        1
    }

    /// Whether trimmed pages are gone.
    fn takes_trims(&self) -> bool;

    /// The logical pages that the drive would drop next if it needed room, for a cache that asks before it writes
    /// (Nitro section 4: the cache updates its indices and destages first). `None` for drives that drop nothing.
    fn next_eviction(&self) -> Option<Range<u32>> {
        None
    }

    /// What was done until now.
    fn counts(&self) -> &Counts;

    /// The physical state.
    fn array(&self) -> &FlashArray;

    /// How many physical pages are what.
    fn totals(&self) -> PageTotals {
        self.array().totals()
    }

    /// Bytes that are allocated for all of it.
    fn ram_bytes(&self) -> u64;

    /// What the layer believes of itself, checked page by page: for tests.
    ///
    /// # Panics
    /// If something is not as it says.
    fn check(&self);
}

/// Makes a layer for a drive.
pub type Make = fn(&Profile) -> Result<Box<dyn Ftl>, OutOfRange>;

/// Makes a layer whose unit is a cache's write-evict unit of so many bytes.
pub type MakeForWeus = fn(&Profile, u64) -> Result<Box<dyn Ftl>, OutOfRange>;

/// A translation layer that can be asked for by its name.
#[derive(Clone, Copy, Debug)]
pub struct FtlKind {
    /// The name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Makes one.
    pub make: Make,
    /// Makes one for a cache that fills and evicts write-evict units, where the layer is made for such.
    pub make_for_weus: Option<MakeForWeus>,
    /// Whether it drops what has no room, and so does without flash beside what the host has.
    pub drops: bool,
}

impl FtlKind {
    /// The layer of this name.
    pub fn named(name: &str) -> Option<&'static FtlKind> {
        FTLS.iter().find(|kind| kind.name == name)
    }

    /// One for a cache whose write-evict units are of so many bytes; `None`: it has none.
    ///
    /// # Errors
    /// The first number of the profile that cannot be; the units' size, where the layer is made for units and cannot have
    /// such.
    pub fn make_for(&self, profile: &Profile, weu_bytes: Option<u64>) -> Result<Box<dyn Ftl>, OutOfRange> {
        match self.make_for_weus.zip(weu_bytes) {
            Some((make, weu_bytes)) => make(profile, weu_bytes),
            None => (self.make)(profile),
        }
    }
}

/// All of them.
pub const FTLS: &[FtlKind] = &[
    FtlKind {
        name: "page",
        about: "page-mapped, greedy collection, knows no TRIM",
        make: |profile| make_page_mapped(profile, false),
        make_for_weus: None,
        drops: false,
    },
    FtlKind {
        name: "page-trim",
        about: "page-mapped, greedy collection, takes TRIM",
        make: |profile| make_page_mapped(profile, true),
        make_for_weus: None,
        drops: false,
    },
    FtlKind {
        name: "caftl",
        about: "CAFTL: deduplicates in line and out of line; baseline page-trim",
        make: |profile| make_caftl(profile, CaftlOptions::default()),
        make_for_weus: None,
        drops: false,
    },
    FtlKind {
        name: "caftl-collecting",
        about: "CAFTL that merges out of line with each collection, too, and not in idle time alone",
        make: |profile| make_caftl(profile, CaftlOptions { merges_collecting: true, ..CaftlOptions::default() }),
        make_for_weus: None,
        drops: false,
    },
    FtlKind {
        name: "caftl-accelerated",
        about: "CAFTL with sampling units of 128 KiB, CRC32 pre-hashing and the dynamic switch; sample bytes are synthetic",
        make: |profile| make_caftl(profile, CaftlOptions::accelerated()),
        make_for_weus: None,
        drops: false,
    },
    FtlKind {
        name: "hybrid",
        about: "hybrid log-block mapping (FAST), 10% log blocks, knows no TRIM",
        make: |profile| make_hybrid(profile, false),
        make_for_weus: None,
        drops: false,
    },
    FtlKind {
        name: "hybrid-trim",
        about: "hybrid log-block mapping (FAST), 10% log blocks, takes TRIM",
        make: |profile| make_hybrid(profile, true),
        make_for_weus: None,
        drops: false,
    },
    FtlKind {
        name: "flashtier",
        about: "FlashTier: hybrid, drops the clean data block with the fewest valid pages (SE-Util)",
        make: |profile| make_flashtier(profile, FlashTierOptions::default()),
        make_for_weus: None,
        drops: true,
    },
    FtlKind {
        name: "flashtier-merge",
        about: "FlashTier whose log grows to 20% by what it drops (SE-Merge)",
        make: |profile| make_flashtier(profile, FlashTierOptions::merge()),
        make_for_weus: None,
        drops: true,
    },
    FtlKind {
        name: "flashtier-lru",
        about: "FlashTier that drops the clean data block used least recently (Nitro's extent-LRU-mod)",
        make: |profile| make_flashtier(profile, FlashTierOptions::lru()),
        make_for_weus: None,
        drops: true,
    },
    FtlKind {
        name: "weu",
        about: "takes and drops whole write-evict units, the one used least recently first (Nitro's WEU-LRU-mod)",
        make: |profile| make_weu_aligned(profile, None),
        make_for_weus: Some(|profile, weu_bytes| make_weu_aligned(profile, Some(weu_bytes))),
        drops: true,
    },
];

fn make_page_mapped(profile: &Profile, takes_trims: bool) -> Result<Box<dyn Ftl>, OutOfRange> {
    let collection_threshold_percent = profile.collection_threshold_percent;
    let space = SpaceOptions { collection_threshold_percent, ..SpaceOptions::default() };
    let options = PageMappedOptions { space, takes_trims };
    Ok(Box::new(PageMapped::new(profile.geometry, options)?))
}

fn make_caftl(profile: &Profile, options: CaftlOptions) -> Result<Box<dyn Ftl>, OutOfRange> {
    let collection_threshold_percent = profile.collection_threshold_percent;
    let space = SpaceOptions { collection_threshold_percent, ..SpaceOptions::default() };
    Ok(Box::new(Caftl::new(profile.geometry, CaftlOptions { space, ..options })?))
}

fn make_hybrid(profile: &Profile, takes_trims: bool) -> Result<Box<dyn Ftl>, OutOfRange> {
    let geometry = profile.geometry;
    geometry.check()?;
    // The layer would take what it needs from the logical pages; a profile has to have some spare.
    geometry.check_spare_blocks(1)?;
    Ok(Box::new(Hybrid::new(geometry, HybridOptions { takes_trims, ..HybridOptions::default() })?))
}

fn make_flashtier(profile: &Profile, options: FlashTierOptions) -> Result<Box<dyn Ftl>, OutOfRange> {
    Ok(Box::new(Hybrid::flashtier(profile.geometry, options)?))
}

fn make_weu_aligned(profile: &Profile, weu_bytes: Option<u64>) -> Result<Box<dyn Ftl>, OutOfRange> {
    let options = WeuAlignedOptions { weu_bytes, ..WeuAlignedOptions::default() };
    Ok(Box::new(WeuAligned::new(profile.geometry, options)?))
}
