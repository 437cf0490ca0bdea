//! Trims of parts of chunks in write-back: a chunk of zeroes alone becomes part of a trimmed run.
//!
//! A part becomes zero sectors of its chunk. The trim that completes the zeroes of a chunk trims
//! the chunk, so trims that meet inside a chunk join their runs. In a run, a part changes at most
//! the kind of its chunk.
//!
//! Invariants: a chunk made of parts is advisory only if a TRIM covered each sector that the origin
//! is owed. It is *no hole* if any remembered part is. Parts are forgotten at a restart: then those
//! of a run have its kind, and others are owed to the origin and may become holes.
//!
//! It does not keep parts of chunks; [`kept`](crate::kept) ignores them.

use crate::{codec::is_zero, error::EngineError, shared::Shared, state::State, trim::Zeroing};
use larder_core::{Lba, SectorMap, design::Question, ranges::Run, types::SECTOR_BYTES};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Maximum chunks with remembered parts.
const CHUNKS_MAX: usize = 4096;

/// The kinds of zeroed parts, for chunks without a later write.
#[derive(Default)]
pub struct ZeroedParts(BTreeMap<Lba, Parts>);

/// The zeroed parts of a chunk.
#[derive(Clone, Copy, Default)]
struct Parts {
    /// Sectors of TRIMs that ask for no zeroes.
    advisory: SectorMap,
    /// Sectors that must stay allocated.
    no_hole: SectorMap,
}

impl Parts {
    /// Returns these parts and a newer one.
    fn with(mut self, sectors: Range<usize>, how: Zeroing) -> Parts {
        let mark = |map: &mut SectorMap, is_set| match is_set {
            true => map.set(sectors.start, sectors.end),
            false => map.clear(sectors.start, sectors.end),
        };
        mark(&mut self.advisory, how.advisory);
        mark(&mut self.no_hole, how.flags.no_hole);
        self
    }

    /// Returns the trimmed run that a chunk of zeroes becomes.
    fn run(&self, lba: Lba, sectors: usize) -> Run {
        let (no_hole, advisory) = (self.no_hole.count() > 0, self.advisory.has_all(0, sectors));
        Run { first: lba, count: 1, seq: 0, no_hole, advisory }
    }

    /// Returns whether the parts are all of one kind, which a run tells.
    fn is_uniform(&self, sectors: usize) -> bool {
        [self.advisory.count(), self.no_hole.count()].iter().all(|&count| count == 0 || count == sectors)
    }
}

impl ZeroedParts {
    /// Forgets the parts of a chunk, at a change of its content.
    pub fn remove(&mut self, lba: Lba) {
        self.0.remove(&lba);
    }

    /// As [`ZeroedParts::remove`], for a run.
    pub fn remove_range(&mut self, first: Lba, count: u64) {
        let inside: Vec<Lba> = self.0.range(first..Lba(first.0 + count)).map(|(&lba, _)| lba).collect();
        inside.into_iter().for_each(|lba| self.remove(lba));
    }

    /// Returns the parts of a chunk, which may be in a run.
    fn get(&self, lba: Lba, run: Option<&Run>, sectors: usize) -> Parts {
        let of_run = || {
            let mut parts = Parts::default();
            let Some(run) = run else { return parts };
            parts.advisory.set(0, if run.advisory { sectors } else { 0 });
            parts.no_hole.set(0, if run.no_hole { sectors } else { 0 });
            parts
        };
        self.0.get(&lba).copied().unwrap_or_else(of_run)
    }

    fn put(&mut self, lba: Lba, parts: Parts, sectors: usize) {
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

impl Shared {
    /// Zeroes less than a chunk, or parts of two. Returns the number up to which a commit makes it
    /// durable.
    pub(crate) async fn zero_parts(self: &Arc<Self>, from: u64, to: u64, how: Zeroing) -> Result<u64, EngineError> {
        let mut at = from;
        let mut upto = 0;
        while at < to {
            let (_room, ()) = self.wait_until_writable(|_| ()).await?;
            self.wait_for_runs().await?;
            let (lba, _) = self.geometry.chunks_of(at, 1);
            let start = self.geometry.offset_of(lba);
            let end = to.min(start + self.geometry.chunk_len(lba) as u64);
            let seq = self.zero_sectors(lba, (at - start) as usize..(end - start) as usize, how).await?;
            upto = upto.max(seq + 1);
            at = end;
        }
        Ok(upto)
    }

    /// Zeroes some sectors of a chunk. Returns the sequence number to commit for it.
    async fn zero_sectors(self: &Arc<Self>, lba: Lba, part: Range<usize>, how: Zeroing) -> Result<u64, EngineError> {
        self.inform(Question::Address(lba)).await;
        let sectors = self.geometry.chunk_len(lba) / SECTOR_BYTES;
        let (mut parts, is_owed) = {
            let mut state = self.state.lock();
            let run = run_at(&state, lba);
            let (first, end) = Shared::sectors_of(part.start, part.len());
            let parts = state.zeroed_parts.get(lba, run.as_ref(), sectors).with(first..end, how);
            if let Some(run) = run {
                // The chunk reads as zeroes, and only its kind may change.
                let chunk = parts.run(lba, sectors);
                let seq = if chunk.is_of_a_kind_with(&run) { run.seq } else { state.trim(chunk)? };
                state.zeroed_parts.put(lba, parts, sectors);
                return Ok(seq);
            }
            (parts, state.design.dirty_seq(lba).is_some())
        };
        let zeroes = vec![0; part.len()];
        let merged = self.merge_partial(lba, part.start, &zeroes).await?;
        if !merged.is_whole || !is_zero(&merged.chunk) {
            let seq = self.put_merged(lba, merged).await?;
            self.state.lock().zeroed_parts.put(lba, parts, sectors);
            return Ok(seq);
        }
        if how.advisory && !is_owed {
            // The origin has the other zeroes of a clean chunk.
            parts = Parts::default().with(0..sectors, how);
        }
        let mut state = self.state.lock();
        let seq = state.trim(parts.run(lba, sectors))?;
        state.zeroed_parts.put(lba, parts, sectors);
        Ok(seq)
    }
}

/// Returns the trimmed run of a chunk.
fn run_at(state: &State, lba: Lba) -> Option<Run> {
    state.design.trimmed_from(lba).filter(|run| run.first <= lba)
}
