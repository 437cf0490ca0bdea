//! Caches in WEUs for experiments that set numbers of fingerprints and addresses, without an
//! option.
//!
//! They go with any number of data chunks.
//!
//! Invariants: flash is sized as for any other cache in WEUs, see [`WeuSizing`].
//!
//! It leaves the choice of sizes to its caller.

use super::{How, Lab};
use larder_core::{Design, DesignConfig, slotted::FlashSize};
use larder_sim::{
    cache::WritePolicy,
    executor::{Executor, sizing::WeuSizing},
    lab::LabListener,
    measure::{Measures, Meter},
    setup::Built,
};

/// A cache with room for so many uncompressed chunks, metadata on top.
#[derive(Clone, Copy)]
pub(super) struct WeuRoom {
    /// Makes the design.
    pub design: fn(DesignConfig) -> Box<dyn Design>,
    /// Uncompressed chunks that fit.
    pub data_chunks: u64,
    /// Addresses that can be mapped.
    pub addresses: u64,
    /// Fingerprints that can be known; 0 turns deduplication off.
    pub fingerprints: u64,
    /// True if chunks are compressed.
    pub compress: bool,
}

impl WeuRoom {
    fn built(&self, chunk_bytes: u32, policy: WritePolicy) -> Result<Built, String> {
        let sizing = WeuSizing::new(FlashSize::DataChunks(self.data_chunks), chunk_bytes, policy);
        let sizing = WeuSizing { compress: self.compress, lba_entries: Some(self.addresses), ..sizing };
        let mut options = sizing.options()?;
        options.fp_entries_max = self.fingerprints;
        let data_bytes = u64::from(options.slot_count) * u64::from(options.rules.slot_bytes);
        let flash_bytes = data_bytes + options.log_bytes;
        Ok(Built { cache: Box::new(Executor::new(self.design, options)?), flash_bytes, data_bytes, drive: None })
    }
}

/// Replays a trace once, through all of these caches in write-back.
///
/// The first `warmup_requests` are not counted.
///
/// # Errors
/// A sentence: a cache that cannot be, or the trace's.
pub(super) fn replay(
    lab: &Lab<'_>,
    at: usize,
    how: &How,
    warmup_requests: u64,
    rooms: &[WeuRoom],
) -> Result<Vec<Measures>, String> {
    let mut meters = Vec::new();
    for room in rooms {
        let built = room.built(how.chunk_bytes, WritePolicy::Back);
        let name = lab.workload(at)?.title();
        let built = built.map_err(|sentence| format!("{name} is too small: {sentence}"))?;
        meters.push(Meter::new(built, how.chunk_bytes, warmup_requests));
    }
    let mut listeners: Vec<&mut dyn LabListener> =
        meters.iter_mut().map(|meter| meter as &mut dyn LabListener).collect();
    lab.listen(at, how, &mut listeners)?;
    Ok(meters.into_iter().map(Meter::finish).collect())
}
