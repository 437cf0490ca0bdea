//! Media, variants and requests that the paper's experiments on time have in common.
//!
//! It runs no experiment.

use super::super::{load::request, rig::CacheOf};
use crate::request::PaperRequest;
use larder_device::throttled::Profile;
use larder_engine::designs::ENGINE_DESIGNS;
use larder_trace::generate::{ZipfConfig, ZipfTrace};

pub(super) const CHUNK_BYTES: u32 = 32 << 10;

pub(super) const DISK: Profile = Profile::Hdd7200;

pub(super) const FLASH: Profile = Profile::SataSsd;

/// Working set and disk of the synthetic traces.
pub(super) const WORKING_SET_BYTES: f64 = 128.0 * (1 << 20) as f64;

pub(super) const DISK_BYTES: u64 = 5 << 30;

/// The caches' share of the working set.
pub(super) const CACHE_SHARE: f64 = 0.5;

pub(super) const SEED: u64 = 20;

/// A variant of the paper, or another design.
pub(super) struct LiveScheme {
    pub name: &'static str,
    pub design: &'static str,
    pub compress: bool,
}

impl LiveScheme {
    pub fn cache(&self, data_bytes: u64) -> Result<CacheOf, String> {
        Ok(CacheOf { compress: self.compress, ..CacheOf::named(self.design, CHUNK_BYTES, data_bytes)? })
    }
}

/// Returns the engine's variants: the paper's by its names, then all other designs.
pub(super) fn variants() -> Vec<LiveScheme> {
    let known = [
        ("CD-LRU-D", "d-lru", false),
        ("CD-ARC-D", "d-arc", false),
        ("AC-D", "austere", false),
        ("CD-ARC-DC", "cd-arc", true),
        ("AC-DC", "austere", true),
    ];
    let others = ENGINE_DESIGNS.iter().map(|design| (design.name, design.name, true));
    let others = others.filter(|(_, name, _)| known.iter().all(|(_, design, _)| design != name));
    known.into_iter().chain(others).map(|(name, design, compress)| LiveScheme { name, design, compress }).collect()
}

/// Returns a synthetic trace at a scale.
pub(super) fn synthetic(
    scale: f64,
    dedup: f64,
    write_to_read: f64,
    requests: u64,
) -> Result<Vec<PaperRequest>, String> {
    let config = ZipfConfig {
        storage_bytes: DISK_BYTES,
        working_set_bytes: (WORKING_SET_BYTES * scale) as u64,
        chunk_bytes: CHUNK_BYTES,
        io_dedup_ratio: dedup,
        write_to_read,
        requests,
        seed: SEED,
        ..ZipfConfig::default()
    };
    let trace = ZipfTrace::new(config).map_err(|error| error.to_string())?;
    let requests: Result<_, _> = trace.map(|record| record.map(|record| request(&record))).collect();
    requests.map_err(|error| error.to_string())
}

/// Returns the bytes of a cache for it.
pub(super) fn cache_bytes(scale: f64) -> u64 {
    (WORKING_SET_BYTES * scale * CACHE_SHARE) as u64
}
