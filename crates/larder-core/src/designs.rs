//! The table of designs by name, the default one first.
//!
//! A new design is a file in this folder with its own row, `DESIGN`, and two lines here. The engine
//! makes its own table from this one (`ENGINE_DESIGNS`), and `larder-sim` adds a line for each in a
//! replay (`REPLAY_DESIGNS`).
//!
//! Invariants: each design is here once, and no two share a name.
//!
//! It does not describe a design; the design's file does. `larder-sim` has the peers that it
//! compares them with.

pub mod arc;
pub mod austere;
pub mod cd_arc;
pub mod d_arc;
pub mod d_lru;
pub mod larder;
pub mod lru;
mod making;
pub mod nitro;

use crate::named::NamedDesign;

/// All designs. The first is the default of a cache.
#[rustfmt::skip]
pub const DESIGNS: &[NamedDesign] = &[
    larder::DESIGN,
    nitro::DESIGN,
    cd_arc::DESIGN,
    d_lru::DESIGN,
    d_arc::DESIGN,
    lru::DESIGN,
    arc::DESIGN,
    austere::DESIGN,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_designs_have_one_name() {
        let names: BTreeSet<&str> = DESIGNS.iter().map(|design| design.name).collect();
        assert_eq!(names.len(), DESIGNS.len(), "{names:?}");
        assert!(DESIGNS.iter().all(|design| !design.name.is_empty() && !design.about.is_empty()));
    }
}
