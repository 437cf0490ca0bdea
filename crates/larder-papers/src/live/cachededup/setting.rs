//! Media and caches that the paper's experiments on time have in common.
//!
//! It runs no experiment.

use super::super::rig::CacheOf;
use larder_device::throttled::Profile;
use larder_engine::designs::ENGINE_DESIGNS;

pub(super) const CHUNK_BYTES: u32 = 4096;

pub(super) const DISK: Profile = Profile::Hdd7200;

pub(super) const FLASH: Profile = Profile::SataSsd;

/// Returns the engine's designs, the paper's four first; each with the paper's name for it, or its
/// own.
pub(super) fn designs() -> Vec<(&'static str, &'static str)> {
    let known = [
        ("LRU", "lru"),
        ("ARC", "arc"),
        ("D-LRU", "d-lru"),
        ("D-ARC", "d-arc"),
        ("CD-ARC", "cd-arc"),
        ("Nitro", "nitro"),
    ];
    let others = ENGINE_DESIGNS.iter().filter(|design| known.iter().all(|(_, name)| *name != design.name));
    known.into_iter().chain(others.map(|design| (design.name, design.name))).collect()
}

/// Returns a cache of a design.
pub(super) fn cache(design: &str, data_bytes: u64) -> Result<CacheOf, String> {
    CacheOf::named(design, CHUNK_BYTES, data_bytes)
}
