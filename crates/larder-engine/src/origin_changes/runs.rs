//! The runs of the origin that are being changed, were written since a flush, or are doubtful.
//!
//! Invariants: a doubtful chunk stays so until it is written whole.
//!
//! It does not write.

use larder_core::{
    Lba,
    ranges::{Run, RunMap},
};
use std::ops::Range;

/// Runs that are kept apart: about 4 MiB.
const RUNS_MAX: usize = 64 << 10;

/// The changes of the origin; see the module.
#[derive(Default)]
pub struct OriginChanges {
    /// First chunk and end of each change that is under way.
    pub(super) changing: Vec<(u64, u64)>,
    /// Written runs, with the number of the write.
    written: RunMap,
    /// All writes below this number count for the whole volume.
    overflowed_below: u64,
    next_number: u64,
    doubtful: RunMap,
    /// The whole volume is doubtful.
    all_doubtful: bool,
}

impl OriginChanges {
    /// Returns whether a clean copy of the chunk, as the origin shows it, must not be mapped.
    pub fn forbids_clean_copy(&self, lba: Lba) -> bool {
        self.all_doubtful || self.is_changing(lba) || self.doubtful.get(lba).is_some()
    }

    /// Returns whether the chunk is being changed.
    pub fn is_changing(&self, lba: Lba) -> bool {
        self.changing.iter().any(|&(first, end)| (first..end).contains(&lba.0))
    }

    /// Returns the number of chunks that a failed flush may have taken, or `None` if that is any
    /// chunk.
    pub fn doubtful_chunks(&self) -> Option<u64> {
        (!self.all_doubtful).then(|| self.doubtful.chunks())
    }

    /// Returns the number below which a flush that begins now covers the writes.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Notes a successful flush for the writes below `upto`.
    pub fn flushed(&mut self, upto: u64) {
        let left: Vec<Run> = self.written.iter().filter(|run| run.seq >= upto).collect();
        self.written = RunMap::default();
        left.into_iter().for_each(|run| self.written.insert(run));
        if self.overflowed_below <= upto {
            self.overflowed_below = 0;
        }
    }

    /// Notes a failed flush.
    pub fn flush_failed(&mut self) {
        self.all_doubtful |= self.overflowed_below > 0;
        let lost: Vec<Run> = std::mem::take(&mut self.written).iter().collect();
        lost.into_iter().for_each(|run| self.doubt(run.first.0, run.first.0 + run.count));
        for (first, end) in self.changing.clone() {
            self.doubt(first, end);
        }
        self.overflowed_below = 0;
    }

    fn doubt(&mut self, first: u64, end: u64) {
        if self.doubtful.len() >= RUNS_MAX {
            self.all_doubtful = true;
        } else {
            self.doubtful.insert(Run::new(Lba(first), end - first, 0));
        }
    }

    /// Ends the change of `run`. `rewritten` is the part that is whole on the origin without a
    /// failed flush meanwhile.
    pub(super) fn end(&mut self, run: (u64, u64), rewritten: Range<u64>) {
        if let Some(at) = self.changing.iter().position(|&changing| changing == run) {
            self.changing.swap_remove(at);
        }
        let (first, end) = run;
        // If a flush fails before these are flushed, they are doubtful again.
        self.rewritten(rewritten);
        if self.written.len() >= RUNS_MAX {
            self.written = RunMap::default();
            self.overflowed_below = self.next_number + 1;
        }
        self.written.insert(Run::new(Lba(first), end - first, self.next_number));
        self.next_number += 1;
    }

    /// Ends the doubt about chunks that the origin got whole. No flush failed since the write
    /// began.
    pub fn rewritten(&mut self, chunks: Range<u64>) {
        self.doubtful.remove(Lba(chunks.start), chunks.end.saturating_sub(chunks.start));
    }
}
