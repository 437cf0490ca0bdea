//! The designs: which there are, in the order in which they are told of, the default one first. A table of names.
//!
//! A new design is a file in this folder with a row of its own, `DESIGN`, and two lines here. Whatever runs a design, or follows the log of
//! one, goes by this table; what may be asked of a replay is in `larder-sim`'s.
//!
//! Invariants: a design is here once; no two have one name.
//!
//! What it does not do: say anything about a design; its file does.

pub mod arc;
pub mod austere;
pub mod cd_arc;
pub mod d_arc;
pub mod d_lru;
pub mod lru;
pub mod nitro;

use crate::named::NamedDesign;

/// All designs; the first is the one that a cache has where nothing else is asked.
#[rustfmt::skip]
pub const DESIGNS: &[NamedDesign] = &[
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
