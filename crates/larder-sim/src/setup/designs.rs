//! The designs that can be replayed: one line each.
//!
//! Role: a line has the facts that only a replay needs of a design. These are its place in tables
//! of results, a few words for them, its options, and its sizing. By default that is the engine's,
//! and the cache is the [executor](crate::executor). The designs of papers with an accounting of
//! their own have it as a variant, for which the line names the type itself. Name, constructor and
//! sharing of content are those of the design's row in `larder-core`'s tables, or in a file of
//! `peers/`.
//!
//! It does nothing but name them.

use super::{
    austere::build as austere_build,
    equal_slots, executed,
    options::OptionId,
    weu,
    words::{Build, ReplayDesign},
};
use crate::peers::{
    clock2q_plus::{self, Clock2QPlusOrder},
    larc::{self, LarcOrder},
    s3_fifo::{self, S3FifoOrder},
    sieve::{self, SieveOrder},
};
use larder_core::{
    NamedDesign, Over,
    arc::{self, Arc},
    austere, cd_arc, d_arc,
    d_lru::{self, LastUse},
    larder,
    lru::{self, Lru},
    nitro,
};

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
// Beliefs and sample have bounds of their own, so no budget of RAM divides them.
const LARDER: &[OptionId] = &[OptionId::Compress, OptionId::LbaEntries, OptionId::Weu, OptionId::FpIndex];
const AUSTERE: &[OptionId] = &[OptionId::Compress, OptionId::Ram, OptionId::Accounting];
const AUSTERE_PAPER: &[OptionId] = &[OptionId::Subchunk, OptionId::LbaEntries];
const SLOTS: &[OptionId] = &[OptionId::Ram, OptionId::Accounting];
const CACHEDEDUP_PAPER: &[OptionId] = &[OptionId::LbaEntries, OptionId::Orphans];

/// All designs of a replay: our own, then baselines, published designs and peers.
///
/// They are [`larder_core::DESIGNS`] and the [peers](crate::peers).
#[rustfmt::skip]
pub static REPLAY_DESIGNS: &[ReplayDesign] = &[
    replayed(larder::DESIGN, "Larder's own: learned admission, victims and reinsertion", LARDER, weu::build),
    of_slots(lru::DESIGN, "least recently used; no data reduction", &[], |setup, flash| equal_slots::build(setup, flash, Lru::for_flash)),
    of_slots(arc::DESIGN, "adaptive replacement (FAST '03); no data reduction", &[], |setup, flash| equal_slots::build(setup, flash, Arc::for_flash)),
    of_slots(d_lru::DESIGN, "CacheDedup's (FAST '16): deduplication, LRU", CACHEDEDUP_PAPER, equal_slots::over_contents::<LastUse>),
    of_slots(d_arc::DESIGN, "CacheDedup's (FAST '16): deduplication, ARC", CACHEDEDUP_PAPER, equal_slots::d_arc),
    ReplayDesign {
        paper_options: AUSTERE_PAPER,
        build_paper: Some(austere_build),
        ..replayed(austere::DESIGN, "AustereCache (ATC '20): deduplication, compression, a small index", AUSTERE, executed::buckets)
    },
    replayed(nitro::DESIGN, "Nitro (ATC '14): deduplication, compression, WEUs in LRU order", WEU, weu::build),
    replayed(cd_arc::DESIGN, "CacheDedup's D-ARC with compression, over WEUs", CD_ARC, weu::build),
    of_slots(s3_fifo::DESIGN, "S3-FIFO (SOSP '23) over contents: a small FIFO before the main one", CACHEDEDUP_PAPER, equal_slots::over_contents::<S3FifoOrder>),
    of_slots(sieve::DESIGN, "SIEVE (NSDI '24) over contents: one queue, visited bits, a moving hand", CACHEDEDUP_PAPER, equal_slots::over_contents::<SieveOrder>),
    of_slots(clock2q_plus::DESIGN, "Clock2Q+ (2025) over contents: S3-FIFO's queues, with a window for correlated uses", CACHEDEDUP_PAPER, equal_slots::over_contents::<Clock2QPlusOrder>),
    of_slots(larc::DESIGN, "LARC (MSST '13) over contents: LRU, and only contents that are missed twice", CACHEDEDUP_PAPER, equal_slots::over_contents::<LarcOrder>),
];

/// Returns a design over slots of one chunk, with its paper's sizing.
const fn of_slots(
    row: NamedDesign,
    about: &'static str,
    paper_options: &'static [OptionId],
    build_paper: Build,
) -> ReplayDesign {
    ReplayDesign { paper_options, build_paper: Some(build_paper), ..replayed(row, about, SLOTS, executed::slots) }
}

const fn replayed(row: NamedDesign, about: &'static str, options: &'static [OptionId], build: Build) -> ReplayDesign {
    let dedups = match row.over {
        Over::Slots(slots) => slots.dedup,
        Over::Weus(_) | Over::Buckets(_) => true,
    };
    ReplayDesign { name: row.name, about, dedups, options, paper_options: &[], row, build, build_paper: None }
}

impl ReplayDesign {
    /// Returns the design of this name.
    ///
    /// # Errors
    /// A sentence with all names.
    pub fn named(name: &str) -> Result<&'static ReplayDesign, String> {
        REPLAY_DESIGNS
            .iter()
            .find(|design| design.name == name)
            .ok_or_else(|| format!("there is no design {name:?}; there are {}", names_of(|_| true)))
    }
}

/// Returns the names of the designs that satisfy `is_one`.
pub(super) fn names_of(is_one: impl Fn(&ReplayDesign) -> bool) -> String {
    let names: Vec<&str> = REPLAY_DESIGNS.iter().filter(|design| is_one(design)).map(|design| design.name).collect();
    names.join(", ")
}
