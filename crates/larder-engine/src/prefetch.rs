//! Read-ahead of sequential streams into RAM. A chunk that was prefetched and read once is not put
//! on flash (Nitro §3: "our cache is scan-resistant").
//!
//! Invariants: a prefetched chunk is as new as its version says. A change of a chunk removes it
//! here, and a prefetch that a change overtook is dropped. At most `bytes_max` bytes are kept,
//! first in, first out.
//!
//! It does not find streams; `larder-core` does.

use crate::{shared::Shared, state::State};
use larder_core::{Lba, Lookup, SectorMap, streams::Prefetch};
use larder_device::{IoBuf, SharedBuf};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering::*},
};

/// Limit of prefetches in flight.
const IN_FLIGHT_MAX: usize = 32;

enum Entry {
    InFlight,
    Ready { data: SharedBuf, read: SectorMap },
}

/// Prefetched chunks.
pub struct PrefetchBuffer {
    entries: BTreeMap<u64, Entry>,
    order: VecDeque<u64>,
    bytes: usize,
    bytes_max: usize,
    in_flight: usize,
}

/// The buffer's knowledge of a chunk.
pub enum Prefetched {
    /// The buffer does not have it.
    No,
    /// A prefetch is reading it: wait for the signal.
    Coming,
    /// Its bytes, and whether an earlier read of some of them here earns the chunk a place on
    /// flash.
    Here {
        /// The whole chunk.
        data: SharedBuf,
        /// Some of the sectors were read here before.
        again: bool,
    },
}

impl PrefetchBuffer {
    /// Returns a buffer of at most `bytes_max` bytes; with 0 it keeps no chunk.
    pub fn new(bytes_max: usize) -> Self {
        PrefetchBuffer { entries: BTreeMap::new(), order: VecDeque::new(), bytes: 0, bytes_max, in_flight: 0 }
    }

    /// Looks a chunk up for a read of sectors `first..end`.
    pub fn read(&mut self, lba: Lba, first: usize, end: usize) -> Prefetched {
        match self.entries.get_mut(&lba.0) {
            None => Prefetched::No,
            Some(Entry::InFlight) => Prefetched::Coming,
            Some(Entry::Ready { data, read }) => {
                let again = (first..end).any(|sector| read.has(sector));
                read.set(first, end);
                Prefetched::Here { data: data.clone(), again }
            }
        }
    }

    /// Removes a chunk that changed, or is cached now.
    pub fn remove(&mut self, lba: Lba) {
        if self.entries.is_empty() {
            return;
        }
        if let Some(Entry::Ready { data, .. }) = self.entries.remove(&lba.0) {
            self.bytes -= data.len();
        }
    }

    /// Removes a run of chunks that changed.
    pub fn remove_range(&mut self, first: Lba, count: u64) {
        let inside: Vec<u64> = self.entries.range(first.0..first.0 + count).map(|(&lba, _)| lba).collect();
        inside.into_iter().for_each(|lba| self.remove(Lba(lba)));
    }

    /// Sets the limit of the buffered bytes.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.shrink();
    }

    fn insert(&mut self, lba: Lba, data: SharedBuf) {
        self.remove(lba);
        self.bytes += data.len();
        self.entries.insert(lba.0, Entry::Ready { data, read: SectorMap::EMPTY });
        self.order.push_back(lba.0);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.bytes_max || self.order.len() > 4 * self.entries.len() + 64 {
            let Some(oldest) = self.order.pop_front() else { break };
            if matches!(self.entries.get(&oldest), Some(Entry::Ready { .. })) {
                self.remove(Lba(oldest));
            }
        }
    }
}

impl State {
    /// Returns whether the cache has a chunk, as far as that is known without reading flash.
    fn is_cached(&self, lba: Lba) -> bool {
        self.design.slot_of(lba).is_some() || self.design.peek(lba) != Lookup::Miss
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
                state.prefetch.entries.insert(lba, Entry::InFlight);
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
                if !matches!(state.prefetch.entries.get(&lba.0), Some(Entry::InFlight)) {
                    continue;
                }
                state.prefetch.entries.remove(&lba.0);
                let Some(data) = &data else { continue };
                // While a write changes the chunk on the origin, a read of the origin may show
                // passing content.
                let is_settled = state.versions.get(lba) == version && !state.origin_changes.is_changing(lba);
                if is_settled && !state.is_cached(lba) {
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
