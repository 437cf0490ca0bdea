//! The table of all translation layers, each with its maker.
//!
//! Invariants: each layer has one row.
//!
//! It leaves their work to the layers.

use crate::{
    caftl::{Caftl, options::CaftlOptions},
    flashtier::FlashTierOptions,
    ftl::Ftl,
    geometry::OutOfRange,
    hybrid::{Hybrid, HybridOptions},
    page_mapped::{PageMapped, PageMappedOptions},
    profile::DriveProfile,
    space::SpaceOptions,
    weu_aligned::{WeuAligned, WeuAlignedOptions},
};

/// Makes a layer for a drive.
pub type Make = fn(&DriveProfile) -> Result<Box<dyn Ftl>, OutOfRange>;

/// Makes a layer whose unit is a cache's write-evict unit of so many bytes.
pub type MakeForWeus = fn(&DriveProfile, u64) -> Result<Box<dyn Ftl>, OutOfRange>;

/// A translation layer by its name.
#[derive(Clone, Copy, Debug)]
pub struct FtlKind {
    /// The name.
    pub name: &'static str,
    /// A description in a line.
    pub about: &'static str,
    /// The constructor.
    pub make: Make,
    /// The constructor for a cache with write-evict units, if the layer is made for such.
    pub make_for_weus: Option<MakeForWeus>,
    /// True if the layer drops data without room, and so needs no flash beside the host's.
    pub drops: bool,
}

impl FtlKind {
    /// Finds the layer of this name.
    pub fn named(name: &str) -> Option<&'static FtlKind> {
        FTLS.iter().find(|kind| kind.name == name)
    }

    /// Makes a layer for a cache with write-evict units of these bytes; `None`: it has no units.
    ///
    /// # Errors
    /// The first number of the profile that cannot be; the units' size, if the layer is made for
    /// units and cannot have such.
    pub fn make_for(&self, profile: &DriveProfile, weu_bytes: Option<u64>) -> Result<Box<dyn Ftl>, OutOfRange> {
        match self.make_for_weus.zip(weu_bytes) {
            Some((make, weu_bytes)) => make(profile, weu_bytes),
            None => (self.make)(profile),
        }
    }
}

/// All layers.
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
        about: "FlashTier whose log grows to 20% by dropped data (SE-Merge)",
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

fn make_page_mapped(profile: &DriveProfile, takes_trims: bool) -> Result<Box<dyn Ftl>, OutOfRange> {
    let collection_threshold_percent = profile.collection_threshold_percent;
    let space = SpaceOptions { collection_threshold_percent, ..SpaceOptions::default() };
    let options = PageMappedOptions { space, takes_trims };
    Ok(Box::new(PageMapped::new(profile.geometry, options)?))
}

fn make_caftl(profile: &DriveProfile, options: CaftlOptions) -> Result<Box<dyn Ftl>, OutOfRange> {
    let collection_threshold_percent = profile.collection_threshold_percent;
    let space = SpaceOptions { collection_threshold_percent, ..SpaceOptions::default() };
    Ok(Box::new(Caftl::new(profile.geometry, CaftlOptions { space, ..options })?))
}

fn make_hybrid(profile: &DriveProfile, takes_trims: bool) -> Result<Box<dyn Ftl>, OutOfRange> {
    let geometry = profile.geometry;
    geometry.check()?;
    // The layer would take its blocks from the logical pages; a profile has to have some spare.
    geometry.check_spare_blocks(1)?;
    Ok(Box::new(Hybrid::new(geometry, HybridOptions { takes_trims, ..HybridOptions::default() })?))
}

fn make_flashtier(profile: &DriveProfile, options: FlashTierOptions) -> Result<Box<dyn Ftl>, OutOfRange> {
    Ok(Box::new(Hybrid::flashtier(profile.geometry, options)?))
}

fn make_weu_aligned(profile: &DriveProfile, weu_bytes: Option<u64>) -> Result<Box<dyn Ftl>, OutOfRange> {
    let options = WeuAlignedOptions { weu_bytes, ..WeuAlignedOptions::default() };
    Ok(Box::new(WeuAligned::new(profile.geometry, options)?))
}
