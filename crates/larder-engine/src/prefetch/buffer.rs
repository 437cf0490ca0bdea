//! The chunks that were read ahead of a client, in RAM.
//!
//! Invariants: the buffer stays within its bytes.
//!
//! It does not read.

use larder_core::{Lba, SectorMap};
use larder_device::SharedBuf;
use std::collections::{BTreeMap, VecDeque};

pub(super) enum BufferedChunk {
    InFlight,
    Ready { data: SharedBuf, read: SectorMap },
}

/// Prefetched chunks.
pub struct PrefetchBuffer {
    pub(super) entries: BTreeMap<u64, BufferedChunk>,
    order: VecDeque<u64>,
    bytes: usize,
    pub(super) bytes_max: usize,
    pub(super) in_flight: usize,
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
            Some(BufferedChunk::InFlight) => Prefetched::Coming,
            Some(BufferedChunk::Ready { data, read }) => {
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
        if let Some(BufferedChunk::Ready { data, .. }) = self.entries.remove(&lba.0) {
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

    pub(super) fn insert(&mut self, lba: Lba, data: SharedBuf) {
        self.remove(lba);
        self.bytes += data.len();
        self.entries.insert(lba.0, BufferedChunk::Ready { data, read: SectorMap::EMPTY });
        self.order.push_back(lba.0);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.bytes_max || self.order.len() > 4 * self.entries.len() + 64 {
            let Some(oldest) = self.order.pop_front() else { break };
            if matches!(self.entries.get(&oldest), Some(BufferedChunk::Ready { .. })) {
                self.remove(Lba(oldest));
            }
        }
    }
}
