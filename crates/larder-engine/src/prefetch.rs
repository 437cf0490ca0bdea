//! Read-ahead of sequential streams into RAM. A chunk that was prefetched and read once is not put
//! on flash (Nitro §3: "our cache is scan-resistant").
//!
//! Invariants: a prefetched chunk is as new as its version says. A change of a chunk removes it
//! here, and a prefetch that a change overtook is dropped. At most `bytes_max` bytes are kept,
//! first in, first out.
//!
//! It does not find streams; `larder-core` does.

pub(crate) mod buffer;

use crate::prefetch::buffer::BufferedChunk;
use crate::{shared::Shared, state::State};
use larder_core::{Lba, Lookup, streams::Prefetch};
use larder_device::IoBuf;
use std::sync::{Arc, atomic::Ordering::*};

/// Limit of prefetches in flight.
const IN_FLIGHT_MAX: usize = 32;

impl State {
    /// Returns whether the cache has a chunk, as far as that is known without reading flash.
    fn is_cached(&self, lba: Lba) -> bool {
        self.design().slot_of(lba).is_some() || self.design().peek(lba) != Lookup::Miss
    }
}

impl Shared {
    /// Starts to read ahead the chunks of `prefetch` that neither the cache nor the buffer has.
    pub fn start_prefetch(self: &Arc<Self>, prefetch: Prefetch) {
        let chunk = self.geometry.chunk_bytes as u64;
        let first = prefetch.offset.div_ceil(chunk);
        let end = (prefetch.offset + prefetch.len).div_ceil(chunk).min(self.geometry.chunk_count);
        let mut runs: Vec<(u64, Vec<u32>)> = Vec::new();
        {
            let mut state = self.state.lock();
            if state.prefetch.bytes_max == 0 || state.prefetch.in_flight >= IN_FLIGHT_MAX {
                return;
            }
            for lba in first..end {
                if state.prefetch.entries.contains_key(&lba) || state.is_cached(Lba(lba)) {
                    continue;
                }
                let version = state.versions.get(Lba(lba));
                match runs.last_mut() {
                    Some((start, versions)) if *start + versions.len() as u64 == lba => versions.push(version),
                    _ => runs.push((lba, vec![version])),
                }
                state.prefetch.entries.insert(lba, BufferedChunk::InFlight);
            }
            state.prefetch.in_flight += runs.len();
        }
        for (start, versions) in runs {
            let this = self.clone();
            self.spawn_counted(async move { this.prefetch_run(Lba(start), versions).await });
        }
    }

    async fn prefetch_run(self: Arc<Self>, first: Lba, versions: Vec<u32>) {
        let offset = self.geometry.offset_of(first);
        let chunk = self.geometry.chunk_bytes;
        let bytes = ((versions.len() * chunk) as u64).min(self.geometry.volume_bytes - offset) as usize;
        // The cache closes even if the origin does not answer.
        let result = self.unless_closing(self.read_origin(offset, IoBuf::new(bytes))).await;
        {
            let mut state = self.state.lock();
            state.prefetch.in_flight -= 1;
            let data = result.and_then(Result::ok).map(IoBuf::freeze);
            for (i, version) in versions.into_iter().enumerate() {
                let lba = Lba(first.0 + i as u64);
                if !matches!(state.prefetch.entries.get(&lba.0), Some(BufferedChunk::InFlight)) {
                    continue;
                }
                state.prefetch.entries.remove(&lba.0);
                let Some(data) = &data else { continue };
                // While a write changes the chunk on the origin, a read of the origin may show
                // passing content.
                let is_current = state.versions.get(lba) == version && !state.origin_changes.is_changing(lba);
                if is_current && !state.is_cached(lba) {
                    let start = i * chunk;
                    // The piece is a copy, so that one hot chunk does not hold a whole run's
                    // memory.
                    let piece = IoBuf::copy_of(&data[start..(start + chunk).min(data.len())]).freeze();
                    state.prefetch.insert(lba, piece);
                    self.counters.prefetched_chunks.fetch_add(1, Relaxed);
                }
            }
        }
        self.signals.prefetched.notify();
    }
}
