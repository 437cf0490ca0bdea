//! The state of fingerprinting and merging between idle times.
//!
//! It does no step.

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashMap;

use super::{digest::Digest, location::Vba};
use crate::geometry::Ppa;

/// A fingerprint of a run, and its page.
pub(super) type Sorted = (Digest, Ppa);

/// A sorted run, in flash or, if all fit, in memory.
#[derive(Debug)]
pub(super) struct Run {
    pub sorted: Vec<Sorted>,
    /// The next one to be merged.
    pub next: usize,
    /// Its pages in flash.
    pub pages: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) enum Phase {
    /// The layer looks for pages without fingerprint, from this metadata page on.
    Fingerprint { next: u32 },
    /// The layer gathers fingerprints, from this metadata page on.
    Gather { next: u32 },
    /// The layer writes gathered and sorted fingerprints to flash; then gathering goes on.
    Write { next: u32, pages: Vec<u32> },
    /// The layer merges runs. The page that was kept last, which the next of the same fingerprint
    /// joins.
    Merge { heads: BinaryHeap<Reverse<(Digest, Ppa, usize)>>, kept: Option<Sorted> },
    /// The last look found nothing to do.
    #[default]
    Rest,
}

/// The state of the work between idle times.
#[derive(Debug, Default)]
pub(super) struct OutOfLine {
    pub phase: Phase,
    pub gathered: Vec<Sorted>,
    pub runs: Vec<Run>,
    /// VBAs of the same content: the first of each joins the second.
    ///
    /// If the second joins another, the first goes with it.
    pub joins: HashMap<Vba, Vba>,
    /// Pages of the host that were programmed when merging last began.
    pub programmed_before: u64,
}

impl OutOfLine {
    pub fn ram_bytes(&self) -> u64 {
        let runs: usize =
            self.runs.iter().map(|run| run.sorted.capacity() * size_of::<Sorted>() + run.pages.capacity() * 4).sum();
        let phase = match &self.phase {
            Phase::Write { pages, .. } => pages.capacity() * 4,
            Phase::Merge { heads, .. } => heads.capacity() * size_of::<Reverse<(Digest, Ppa, usize)>>(),
            _ => 0,
        };
        let sorts = self.gathered.capacity() * size_of::<Sorted>() + self.runs.capacity() * size_of::<Run>();
        (runs + phase + sorts + self.joins.allocation_size()) as u64
    }

    /// Returns the VBA that `vba` finally becomes one with.
    pub fn last_joined(&self, mut vba: Vba) -> Vba {
        while let Some(&into) = self.joins.get(&vba) {
            vba = into;
        }
        vba
    }
}
