//! The kinds of the zeroed parts of chunks.
//!
//! Invariants: at most [`CHUNKS_MAX`] chunks have parts.
//!
//! It does not zero.

use crate::trim::zeroing::Zeroing;
use larder_core::{Lba, SectorMap, ranges::Run};
use std::{collections::BTreeMap, ops::Range};

/// Maximum chunks with remembered parts.
const CHUNKS_MAX: usize = 4096;

/// The kinds of zeroed parts, for chunks without a later write.
#[derive(Default)]
pub struct ZeroedParts(BTreeMap<Lba, Parts>);

/// The zeroed parts of a chunk.
#[derive(Clone, Copy, Default)]
pub(super) struct Parts {
    /// Sectors of TRIMs that ask for no zeroes.
    advisory: SectorMap,
    /// Sectors that must stay allocated.
    no_hole: SectorMap,
}

impl Parts {
    /// Returns these parts and a newer one.
    pub(super) fn with(mut self, sectors: Range<usize>, how: Zeroing) -> Parts {
        let mark = |map: &mut SectorMap, is_set| match is_set {
            true => map.set(sectors.start, sectors.end),
            false => map.clear(sectors.start, sectors.end),
        };
        mark(&mut self.advisory, how.advisory);
        mark(&mut self.no_hole, how.flags.no_hole);
        self
    }

    /// Returns the trimmed run that a chunk of zeroes becomes.
    pub(super) fn run(&self, lba: Lba, sectors: usize) -> Run {
        let (no_hole, advisory) = (self.no_hole.count() > 0, self.advisory.has_all(0, sectors));
        Run { first: lba, count: 1, seq: 0, no_hole, advisory }
    }

    /// Returns whether the parts are all of one kind, which a run tells.
    fn is_uniform(&self, sectors: usize) -> bool {
        [self.advisory.count(), self.no_hole.count()].iter().all(|&count| count == 0 || count == sectors)
    }
}

impl ZeroedParts {
    /// Returns the bytes that the parts may have allocated: the nodes of the tree are half full, or
    /// more.
    pub fn ram_bytes(&self) -> usize {
        2 * self.0.len() * size_of::<(Lba, Parts)>()
    }

    /// Forgets the parts of a chunk, at a change of its content.
    pub fn remove(&mut self, lba: Lba) {
        self.0.remove(&lba);
    }

    /// Removes a run, as [`ZeroedParts::remove`].
    pub fn remove_range(&mut self, first: Lba, count: u64) {
        let inside: Vec<Lba> = self.0.range(first..Lba(first.0 + count)).map(|(&lba, _)| lba).collect();
        inside.into_iter().for_each(|lba| self.remove(lba));
    }

    /// Returns the parts of a chunk, which may be in a run.
    pub(super) fn get(&self, lba: Lba, run: Option<&Run>, sectors: usize) -> Parts {
        let of_run = || {
            let mut parts = Parts::default();
            let Some(run) = run else { return parts };
            parts.advisory.set(0, if run.advisory { sectors } else { 0 });
            parts.no_hole.set(0, if run.no_hole { sectors } else { 0 });
            parts
        };
        self.0.get(&lba).copied().unwrap_or_else(of_run)
    }

    pub(super) fn put(&mut self, lba: Lba, parts: Parts, sectors: usize) {
        self.remove(lba);
        if parts.is_uniform(sectors) {
            return;
        }
        if self.0.len() >= CHUNKS_MAX {
            self.0.pop_first();
        }
        self.0.insert(lba, parts);
    }
}
