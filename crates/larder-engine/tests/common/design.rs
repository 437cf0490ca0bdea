//! Which design a test's cache has: `LARDER_DESIGN=NAME` names one for all of them.
//!
//! Invariants: without it, a test has the default one, or one that its seed draws.

use larder_device::rng::mix64;
use larder_engine::{
    CreateOptions,
    designs::{self, DESIGNS},
};
use larder_format::{DesignId, StoreKind};

/// The design that is asked for.
pub fn wanted() -> Option<DesignId> {
    let name = std::env::var("LARDER_DESIGN").ok()?;
    let found = designs::named(&name);
    Some(found.unwrap_or_else(|| panic!("LARDER_DESIGN={name} is none of {}", designs::names())).id)
}

/// The design that is asked for, or the default one.
pub fn chosen() -> DesignId {
    wanted().unwrap_or(DesignId::Nitro)
}

/// The design that is asked for, or one that the seed draws: half of the time the default one.
pub fn drawn(seed: u64) -> DesignId {
    let drawn = mix64(seed ^ 0x6465_7369_676e) as usize;
    wanted().unwrap_or(if drawn.is_multiple_of(2) { DesignId::Nitro } else { DESIGNS[drawn / 2 % DESIGNS.len()].id })
}

/// The options, but for those that their design does not leave open.
pub fn fitted(mut options: CreateOptions) -> CreateOptions {
    if let Ok(design) = designs::find(options.design) {
        design.fit(&mut options);
    }
    options
}

/// Whether the design is over slots of one chunk.
pub fn is_slotted(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.kind() == StoreKind::Slots)
}

/// Whether the design is over buckets, with its clean mappings and its fingerprints in metadata slots on flash.
pub fn is_bucketed(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.kind() == StoreKind::Buckets)
}

/// Whether the design fills WEUs: elsewhere each chunk that is stored has slots of its own, whose end is logged.
pub fn fills_weus(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.kind() == StoreKind::Weus)
}

/// Whether the design keeps equal content once.
pub fn shares_content(design: DesignId) -> bool {
    designs::find(design).is_ok_and(|design| design.can_share())
}

/// Whether the design stores chunks compressed, where that is asked for.
pub fn compresses(design: DesignId) -> bool {
    !is_slotted(design)
}

/// The design that is asked for, or all of them.
pub fn all() -> Vec<DesignId> {
    wanted().map_or_else(|| DESIGNS.iter().map(|design| design.id).collect(), |design| vec![design])
}

/// Its name.
pub fn name(design: DesignId) -> &'static str {
    designs::find(design).map_or("unknown", |design| design.name)
}
