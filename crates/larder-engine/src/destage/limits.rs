//! The limits on data that the origin lacks: writers wait for destaging at each of them.
//!
//! Invariants: a limit that binds has a name, which the status shows.
//!
//! It does not destage, or decide when destaging begins.

use crate::{shared::Shared, state::State};
use std::sync::atomic::Ordering::*;

/// Dirty chunks, fragments and runs that writers in flight may add after a limit was met.
const ROOM: u64 = 32;
/// The average size of a stored chunk is reliable after this many insertions.
const AVERAGE_OVER_MIN: u64 = 1000;

/// A limit at which writers wait for destaging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The share of the flash that is dirty.
    DirtyData,
    /// Free slots, if those that may go hold dirty data.
    Slots,
    /// Dirty entries of the index.
    DirtyChunks(u64),
    /// Fragments.
    Fragments(u64),
    /// Trimmed runs.
    TrimmedRuns(u64),
}

impl Limit {
    /// Returns the name and the sentence of the condition.
    pub fn told(self) -> (&'static str, String) {
        let so_many = |what: &str, count| {
            format!("there are {count} {what}, as many as a checkpoint holds or the RAM budget affords")
        };
        let (name, what) = match self {
            Limit::DirtyData => ("full_of_dirty_data", "the flash is full of dirty data".to_owned()),
            Limit::Slots => ("full_of_dirty_data", "each slot that may go holds dirty data".to_owned()),
            Limit::DirtyChunks(count) => ("full_of_dirty_data", so_many("dirty chunks", count)),
            Limit::Fragments(count) => ("full_of_dirty_data", so_many("fragments of chunks", count)),
            Limit::TrimmedRuns(count) => ("full_of_trimmed_runs", so_many("trimmed runs", count)),
        };
        (name, format!("{what}: writes wait for destaging"))
    }
}

impl Shared {
    /// Returns the estimated share of flash under dirty chunks, in percent of all slots.
    ///
    /// Each chunk counts as much as the average chunk since the cache was opened, duplicates and
    /// compression included.
    pub(super) fn dirty_percent(&self, state: &State) -> u64 {
        let chunk = self.geometry.chunk_bytes as u64;
        let inserted = self.counters.inserted_chunks.load(Relaxed);
        let stored = self.counters.stored_flash_bytes.load(Relaxed);
        let average = if inserted < AVERAGE_OVER_MIN { chunk } else { (stored / inserted).clamp(chunk / 16, chunk) };
        let layout = &self.geometry.layout;
        let capacity = u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
        state.design().dirty_counts().chunks * average * 100 / capacity.max(1)
    }

    /// Returns whether writers must wait for destaging.
    pub(crate) fn too_dirty(&self, state: &State) -> bool {
        self.limit_met(state).is_some()
    }

    /// Returns the limit at which writers wait for destaging, that of free slots included.
    ///
    /// The dirty share is an estimate, so writers may wait for a slot before it is met.
    pub(crate) fn limit_that_binds(&self, state: &State) -> Option<Limit> {
        let waits_for_dirty = self.writes.waiting_for_room() > 0 && self.evictions.finds_dirty();
        self.limit_met(state).or(waits_for_dirty.then_some(Limit::Slots))
    }

    /// Returns the limit of dirty data that is met, if one is.
    pub(crate) fn limit_met(&self, state: &State) -> Option<Limit> {
        let (dirty, geometry) = (state.design().dirty_counts(), &self.geometry);
        // Limits of a checkpoint's size, or of a RAM budget, bind only if the volume has more
        // chunks than that.
        let is_full = |count: u64, max: u64| max < geometry.chunk_count && count + (max / 8).min(ROOM) >= max;
        if self.dirty_percent(state) >= u64::from(self.live.get().dirty_max_percent) {
            Some(Limit::DirtyData)
        } else if is_full(dirty.chunks, geometry.index_entries_max / 2) {
            Some(Limit::DirtyChunks(dirty.chunks))
        } else if is_full(dirty.fragments, geometry.fragments_max) {
            Some(Limit::Fragments(dirty.fragments))
        } else if is_full(dirty.runs, geometry.zero_ranges_max) {
            // A write into the middle of a trimmed run splits it in two.
            Some(Limit::TrimmedRuns(dirty.runs))
        } else {
            None
        }
    }
}
