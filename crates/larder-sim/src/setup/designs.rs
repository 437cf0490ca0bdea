//! The designs that can be replayed: one line each.
//!
//! What it does not do: anything but name them.

use std::fmt;

use super::{Built, OptionId, Setup, austere, equal_slots, weu};
use larder_core::{
    arc,
    cd_arc::{self, CdArc},
    d_arc, d_lru, lru,
    nitro::Nitro,
    slotted::FlashSize,
};

/// A design by name.
pub struct Design {
    /// The name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Whether it stores a content once, where that is not an option.
    pub dedups: bool,
    /// What may be asked of it.
    pub options: &'static [OptionId],
    pub(super) build: fn(&Setup, FlashSize) -> Result<Built, String>,
}

/// Options of a design in WEUs.
const WEU: &[OptionId] = &[
    OptionId::Dedup,
    OptionId::Compress,
    OptionId::LbaEntries,
    OptionId::Ram,
    OptionId::Weu,
    OptionId::FpIndex,
    OptionId::Granularity,
];
const CD_ARC: &[OptionId] =
    &[OptionId::Compress, OptionId::LbaEntries, OptionId::Ram, OptionId::Weu, OptionId::FpIndex];
const AUSTERE: &[OptionId] = &[OptionId::Compress, OptionId::Subchunk, OptionId::LbaEntries, OptionId::Ram];
const CACHEDEDUP: &[OptionId] = &[OptionId::LbaEntries, OptionId::Ram, OptionId::Orphans];
const PLAIN: &[OptionId] = &[OptionId::Ram];

/// All designs, baselines first.
#[rustfmt::skip]
pub static DESIGNS: &[Design] = &[
    Design { name: lru::NAME, about: "least recently used; no data reduction", dedups: false, options: PLAIN, build: equal_slots::lru },
    Design { name: arc::NAME, about: "adaptive replacement (FAST '03); no data reduction", dedups: false, options: PLAIN, build: equal_slots::arc },
    Design { name: d_lru::NAME, about: "CacheDedup's (FAST '16): deduplication, LRU", dedups: true, options: CACHEDEDUP, build: equal_slots::d_lru },
    Design { name: d_arc::NAME, about: "CacheDedup's (FAST '16): deduplication, ARC", dedups: true, options: CACHEDEDUP, build: equal_slots::d_arc },
    Design { name: "austere", about: "AustereCache (ATC '20): deduplication, compression, a small index", dedups: true, options: AUSTERE, build: austere::build },
    Design { name: "nitro", about: "Nitro (ATC '14): deduplication, compression, WEUs in LRU order", dedups: true, options: WEU, build: |setup, flash| weu::build(setup, flash, (0, 0), |config| Box::new(Nitro::new(config))) },
    Design { name: cd_arc::NAME, about: "CacheDedup's D-ARC with compression, over WEUs", dedups: true, options: CD_ARC, build: |setup, flash| weu::build(setup, flash, (cd_arc::LISTS_BYTES_MAX, cd_arc::HISTORY_BYTES_MAX), |config| Box::new(CdArc::new(config))) },
];

impl Design {
    /// The design of this name.
    ///
    /// # Errors
    /// A sentence with all names.
    pub fn named(name: &str) -> Result<&'static Design, String> {
        DESIGNS
            .iter()
            .find(|design| design.name == name)
            .ok_or_else(|| format!("there is no design {name:?}; there are {}", names_of(|_| true)))
    }
}

/// The names of the designs of which that is true.
pub(super) fn names_of(is_one: impl Fn(&Design) -> bool) -> String {
    let names: Vec<&str> = DESIGNS.iter().filter(|design| is_one(design)).map(|design| design.name).collect();
    names.join(", ")
}

impl PartialEq for Design {
    fn eq(&self, other: &Design) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
