//! The variants of the paper, and the sizes of its caches.
//!
//! It runs no experiment.

use crate::{How, Lab, Records, SEED};
use larder_sim::{
    cache::WritePolicy,
    setup::{FlashAmount, Granularity, Options, ReplayDesign, Setup},
};
use larder_trace::{
    Compressibility, TraceResult, Unknown,
    generate::{ProfileTrace, WorkloadProfile},
};

/// Bytes of an extent.
pub const EXTENT_BYTES: u32 = 8 << 10;

/// Generates the trace of a profile with each of its requests one extent.
///
/// # Errors
/// There is no such profile, or too little is left of it.
pub fn extents(name: &str, scale: f64) -> TraceResult<Records<'static>> {
    let profile = WorkloadProfile { chunk_bytes: EXTENT_BYTES, ..WorkloadProfile::named(name)? };
    Ok(Box::new(ProfileTrace::new(profile, scale, Compressibility::default(), SEED)?))
}

/// Makes chunks of so many bytes; unread blocks are unlike all else (§5.2).
pub fn how(chunk_bytes: u32) -> How {
    How::new(chunk_bytes, Unknown::Unique)
}

/// Returns the share of the file system that a trace accesses, in percent (§5.2).
///
/// A trace of another name gets one between.
pub(super) fn accessed_percent(trace: &str) -> f64 {
    match trace {
        "WebVM" => 5.3,
        "Homes" => 5.8,
        "Mail" => 11.5,
        _ => 7.0,
    }
}

/// The assumed size of a file system, if a trace does not tell.
pub const OF_FILE_SYSTEM: &str = "Cache sizes are in percent of a file system, of which a trace tells the accessed \
                              part only. That is taken to be 5.3% for WebVM, 5.8% for Homes, 11.5% for Mail (§5.2), \
                              and 7% for any other trace.";

/// Returns the requests of the first 16 of 21 days (§6.2).
pub fn warmup(requests: u64) -> u64 {
    requests * 16 / 21
}

/// A variant of the paper: in extents or WEUs, with or without (N) deduplication (D), compression
/// (C).
pub(super) struct Variant {
    pub name: &'static str,
    pub granularity: Granularity,
    pub dedup: bool,
    pub compress: bool,
}

impl Variant {
    /// Makes a cache with room for so many uncompressed extents, of a trace with so many.
    pub fn setup(&self, extents: u64, working_set_extents: u64) -> Result<Setup, String> {
        let options = Options {
            dedup: Some(self.dedup),
            compress: Some(self.compress),
            granularity: Some(self.granularity),
            lba_entries: Some(working_set_extents),
            ..Options::default()
        };
        Ok(Setup {
            design: ReplayDesign::named("nitro")?,
            chunk_bytes: EXTENT_BYTES,
            flash: FlashAmount::DataChunks(extents),
            policy: WritePolicy::Back,
            options,
        })
    }
}

pub(super) const fn variant(name: &'static str, granularity: Granularity, dedup: bool, compress: bool) -> Variant {
    Variant { name, granularity, dedup, compress }
}

pub(super) const EXTENT: Variant = variant("Extent (ND, NC)", Granularity::Extent, false, false);

pub(super) const EXTENT_D: Variant = variant("Extent (D, NC)", Granularity::Extent, true, false);

pub(super) const WEU: Variant = variant("WEU (ND, NC)", Granularity::Weu, false, false);

pub(super) const WEU_C: Variant = variant("WEU (ND, C)", Granularity::Weu, false, true);

pub(super) const WEU_D: Variant = variant("WEU (D, NC)", Granularity::Weu, true, false);

pub(super) const WEU_DC: Variant = variant("WEU (D, C)", Granularity::Weu, true, true);

/// Returns the extents of a cache that is so many percent of the file system of a trace.
///
/// # Errors
/// The trace's.
pub fn cache_extents(lab: &mut Lab<'_>, at: usize, percent_of_disk: f64) -> Result<u64, String> {
    let working_set = lab.survey(at, &how(EXTENT_BYTES))?.working_set_chunks;
    let percent = 100.0 * percent_of_disk / accessed_percent(lab.workload(at)?.name());
    Ok((working_set as f64 * percent / 100.0) as u64)
}
