//! Destaging under replay: surplus dirty chunks and trimmed runs go to the origin by address.
//!
//! The order and the turns are those of the engine's `destage.rs`. Its low watermark, and the
//! limited rate above it, are left out, since there is no clock.
//!
//! Invariants: a destaged chunk or run is marked clean, which is an entry of the log.
//!
//! It does not evict. Trims of the origin do not count as writes.

use std::ops::Range;

use super::Executor;
use crate::devices::{DeviceAction, Waits};
use larder_core::{Lba, Lookup, limits::DESTAGED_AT_ONCE, ranges::Run};

/// Bytes of a trimmed run that are destaged at once, as in the engine.
const ZERO_BYTES_AT_ONCE: u64 = 16 << 20;

impl Executor {
    /// Writes chunks to the origin, each with the sequence number of its dirty data.
    pub(super) fn destage(&mut self, dirty: impl Iterator<Item = (Lba, u64)>) {
        let mut any = false;
        for (lba, seq) in dirty {
            any = true;
            self.traffic.origin_chunks_written += 1;
            if let Lookup::Chunk { place, .. } = self.design.peek(lba) {
                self.count_record_read(&place);
            }
            self.asked.origin(DeviceAction::Write, lba, 1);
            self.mark_clean(lba, seq);
        }
        if any {
            self.asked.flush_origin();
        }
    }

    /// Marks a chunk clean, because the origin has its version `seq`. Returns false if it is still
    /// dirty.
    pub fn mark_clean(&mut self, lba: Lba, seq: u64) -> bool {
        let is_clean = self.design.mark_clean(lba, seq);
        self.tell_dirty(lba);
        self.pending += u64::from(is_clean);
        is_clean
    }

    /// Destages the dirty chunks in these bytes of the flash: the drive has no room for more.
    pub(super) fn clean_all_in(&mut self, bytes: &Range<u64>) {
        self.asked.for_whom(Waits::Nobody);
        let dirty = self.dirty.in_bytes(bytes);
        let dirty: Vec<_> = dirty.into_iter().filter_map(|lba| Some((lba, self.design.dirty_seq(lba)?))).collect();
        self.destage(dirty.into_iter());
        self.commit_if_many();
    }

    /// Tells the place of the data of `lba`, if it is dirty, has changed, or may have.
    pub(super) fn tell_dirty(&mut self, lba: Lba) {
        if self.dirty.is_on() {
            let place = self.design.dirty_seq(lba).and_then(|_| match self.design.peek(lba) {
                Lookup::Chunk { place, .. } => Some(self.asked.bytes_of(&place)),
                _ => None,
            });
            self.asked.tell_dirty(&mut self.dirty, lba, place);
        }
    }

    /// Destages, by address, the surplus over a limit: chunks or trimmed runs.
    pub(super) fn destage_some(&mut self) {
        while self.is_too_dirty() && self.destage_next() {}
    }

    fn is_too_dirty(&self) -> bool {
        let dirty = self.design.dirty_counts();
        dirty.chunks > self.options.dirty_chunks_max || dirty.runs > self.options.zero_ranges_max / 2
    }

    /// Takes one turn of destaging, around the end of the volume. Returns true if there may be
    /// more.
    ///
    /// A turn is a piece of a run, or the chunks up to the next.
    fn destage_next(&mut self) -> bool {
        let from = self.destaged_to;
        let mut chunks = self.design.dirty_from(from, DESTAGED_AT_ONCE);
        if let Some(run) = self.design.trimmed_from(from) {
            if chunks.first().is_none_or(|&(first, _)| run.first <= first) {
                let first = run.first.max(from);
                let most = (ZERO_BYTES_AT_ONCE / u64::from(self.options.chunk_bytes)).max(1);
                let count = (run.first.0 + run.count - first.0).min(most);
                self.destaged_to = Lba(first.0 + count);
                self.destage_run(Run { first, count, ..run });
                return true;
            }
            chunks.retain(|&(lba, _)| lba < run.first);
        }
        let Some(&(last, _)) = chunks.last() else {
            self.destaged_to = Lba(0);
            return from != Lba(0);
        };
        self.destaged_to = Lba(last.0 + 1);
        self.destage(chunks.into_iter());
        true
    }

    /// Destages the first dirty chunks by address; returns whether there were any.
    pub(super) fn destage_first(&mut self) -> bool {
        let chunks = self.design.dirty_from(Lba(0), DESTAGED_AT_ONCE);
        let any = !chunks.is_empty();
        self.destage(chunks.into_iter());
        any
    }

    /// Tells the origin of a run, or of a piece of one.
    pub fn destage_run(&mut self, run: Run) {
        self.asked.origin(DeviceAction::Trim, run.first, run.count);
        self.asked.flush_origin();
        self.design.mark_run_clean(&run);
        self.pending += 1;
    }

    /// Returns the trimmed run around `lba`, which has no entry of its own then.
    pub(super) fn run_of(&self, lba: Lba) -> Option<Run> {
        self.design.trimmed_from(lba).filter(|run| run.first <= lba)
    }
}
