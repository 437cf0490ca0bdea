//! The designs that can be replayed: one line each.
//!
//! Role: a line has the facts that only a replay needs of a design. These are its place in tables
//! of results, a few words for them, its options, and its sizing. The sizing is that of each paper.
//! For a design over slots, the line names the type itself, because a replay calls it some millions
//! of times a second. Name, constructor and sharing of content are those of the design's row in
//! `larder-core`'s table.
//!
//! It does nothing but name them.

use std::fmt;

use super::{Built, OptionId, Setup, austere::build as austere_build, equal_slots, weu};
use larder_core::{
    NamedDesign, Over,
    arc::{self, Arc},
    austere, cd_arc, d_arc, d_lru,
    lru::{self, Lru},
    nitro,
    slotted::FlashSize,
};

/// A design by name.
pub struct ReplayDesign {
    /// The name on the command line.
    pub name: &'static str,
    /// A description in a few words.
    pub about: &'static str,
    /// True if the design stores a content once, unless an option decides that.
    pub dedups: bool,
    /// The options that the design takes.
    pub options: &'static [OptionId],
    pub(super) over: Over,
    pub(super) build: Build,
}

/// Sizes a cache and makes it.
type Build = fn(&Setup, FlashSize) -> Result<Built, String>;

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
pub static DESIGNS: &[ReplayDesign] = &[
    replayed(lru::DESIGN, "least recently used; no data reduction", PLAIN, |setup, flash| equal_slots::build(setup, flash, Lru::for_flash)),
    replayed(arc::DESIGN, "adaptive replacement (FAST '03); no data reduction", PLAIN, |setup, flash| equal_slots::build(setup, flash, Arc::for_flash)),
    replayed(d_lru::DESIGN, "CacheDedup's (FAST '16): deduplication, LRU", CACHEDEDUP, equal_slots::d_lru),
    replayed(d_arc::DESIGN, "CacheDedup's (FAST '16): deduplication, ARC", CACHEDEDUP, equal_slots::d_arc),
    replayed(austere::DESIGN, "AustereCache (ATC '20): deduplication, compression, a small index", AUSTERE, austere_build),
    replayed(nitro::DESIGN, "Nitro (ATC '14): deduplication, compression, WEUs in LRU order", WEU, weu::build),
    replayed(cd_arc::DESIGN, "CacheDedup's D-ARC with compression, over WEUs", CD_ARC, weu::build),
];

const fn replayed(
    design: NamedDesign,
    about: &'static str,
    options: &'static [OptionId],
    build: Build,
) -> ReplayDesign {
    let NamedDesign { name, over, .. } = design;
    let dedups = match over {
        Over::Slots(slots) => slots.dedup,
        Over::Weus(_) | Over::Buckets(_) => true,
    };
    ReplayDesign { name, about, dedups, options, over, build }
}

impl ReplayDesign {
    /// Returns the design of this name.
    ///
    /// # Errors
    /// A sentence with all names.
    pub fn named(name: &str) -> Result<&'static ReplayDesign, String> {
        DESIGNS
            .iter()
            .find(|design| design.name == name)
            .ok_or_else(|| format!("there is no design {name:?}; there are {}", names_of(|_| true)))
    }
}

/// Returns the names of the designs that satisfy `is_one`.
pub(super) fn names_of(is_one: impl Fn(&ReplayDesign) -> bool) -> String {
    let names: Vec<&str> = DESIGNS.iter().filter(|design| is_one(design)).map(|design| design.name).collect();
    names.join(", ")
}

impl PartialEq for ReplayDesign {
    fn eq(&self, other: &ReplayDesign) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for ReplayDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
