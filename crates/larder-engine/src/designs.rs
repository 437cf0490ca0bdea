//! The designs that the engine runs: a table of names.
//!
//! Invariants: a design is here once, under the name that its file in `larder-core` gives it.
//!
//! What it does not do: decide anything; the designs do.

use crate::error::EngineError;
use larder_core::{Design, DesignConfig, cd_arc, nitro};
use larder_format::DesignId;

/// A design over the log of WEUs.
pub struct EngineDesign {
    /// What the superblock calls it.
    pub id: DesignId,
    /// What people call it.
    pub name: &'static str,
    /// What it is, and whose.
    pub about: &'static str,
    /// Bytes of RAM for each mapping at most, one entry of the FP index and its share of the dirty list
    /// included: what a RAM budget is divided by.
    pub index_bytes_max: u64,
    /// An empty cache.
    pub make: fn(DesignConfig) -> Box<dyn Design>,
}

/// All designs.
pub const DESIGNS: &[EngineDesign] = &[
    EngineDesign {
        id: DesignId::Nitro,
        name: nitro::NAME,
        about: "Nitro (Li et al., USENIX ATC 2014): the WEU that was used least recently goes",
        index_bytes_max: nitro::INDEX_BYTES_MAX,
        make: |config| Box::new(nitro::Nitro::new(config)),
    },
    EngineDesign {
        id: DesignId::CdArc,
        name: cd_arc::NAME,
        about: "CacheDedup's CD-ARC (Li et al., FAST 2016, section 5.6): duplication-aware ARC over WEUs",
        index_bytes_max: cd_arc::INDEX_BYTES_MAX,
        make: |config| Box::new(cd_arc::CdArc::new(config)),
    },
];

/// The names of all designs, for a sentence.
pub fn names() -> String {
    DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>().join(", ")
}

/// The design of this name.
pub fn named(name: &str) -> Option<&'static EngineDesign> {
    DESIGNS.iter().find(|design| design.name == name)
}

/// The design that a superblock names.
///
/// # Errors
/// [`EngineError::Invalid`] for one that this version cannot run.
pub fn find(id: DesignId) -> Result<&'static EngineDesign, EngineError> {
    let found = DESIGNS.iter().find(|design| design.id == id);
    found.ok_or_else(|| EngineError::Invalid(format!("this version cannot run the design {id:?}; it runs {}", names())))
}
