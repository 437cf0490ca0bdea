//! The design of a test's cache: `LARDER_DESIGN=NAME` names one for all of them.
//!
//! Invariants: without it, a test has the default one, or one that its seed draws.

use larder_device::rng::mix64;
use larder_engine::{
    CreateOptions,
    designs::{self, ENGINE_DESIGNS},
};
use larder_format::{DesignId, StoreKind};

/// Returns the named design.
pub fn wanted() -> Option<DesignId> {
    let name = std::env::var("LARDER_DESIGN").ok()?;
    let found = designs::named(&name);
    Some(found.unwrap_or_else(|| panic!("LARDER_DESIGN={name} is none of {}", designs::names())).id)
}

/// Returns the named design, or the default one.
pub fn chosen() -> DesignId {
    wanted().unwrap_or(ENGINE_DESIGNS[0].id)
}

/// Returns the named design, or one that the seed draws: half of the time the default one.
pub fn drawn(seed: u64) -> DesignId {
    let drawn = mix64(seed ^ 0x6465_7369_676e) as usize;
    wanted().unwrap_or(if drawn.is_multiple_of(2) {
        ENGINE_DESIGNS[0].id
    } else {
        ENGINE_DESIGNS[drawn / 2 % ENGINE_DESIGNS.len()].id
    })
}

/// Returns the options, adapted to the requirements of their design.
pub fn fitted(mut options: CreateOptions) -> CreateOptions {
    if let Ok(design) = designs::find(options.design) {
        design.fit(&mut options);
    }
    options
}

/// Returns true if the design is over slots of one chunk.
pub fn is_slotted(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.kind() == StoreKind::Slots)
}

/// Returns true if the design is over buckets, with clean mappings and fingerprints in metadata
/// slots.
pub fn is_bucketed(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.kind() == StoreKind::Buckets)
}

/// Returns true if the design fills WEUs.
///
/// In the other stores each stored chunk has slots of its own, and their end is logged.
pub fn fills_weus(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.kind() == StoreKind::Weus)
}

/// Returns true if the log has each mapping of the design.
///
/// `larder` keeps mappings in RAM alone where writes replace cached chunks: there a write forgets
/// nothing that is durable.
pub fn logs_each_mapping(design: DesignId) -> bool {
    design != DesignId::Larder
}

/// Returns true if the design keeps equal content once.
pub fn shares_content(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.can_share())
}

/// Returns true if the design stores chunks compressed on request.
pub fn compresses(design: DesignId) -> bool {
    !is_slotted(design)
}

/// Returns the named design, or all of them.
pub fn all() -> Vec<DesignId> {
    wanted().map_or_else(|| ENGINE_DESIGNS.iter().map(|design| design.id).collect(), |design| vec![design])
}

/// Its name.
pub fn name(design: DesignId) -> &'static str {
    designs::find(design).map_or("unknown", |design| design.name)
}
