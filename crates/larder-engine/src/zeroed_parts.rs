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

pub(crate) mod parts;

use crate::zeroed_parts::parts::Parts;
use crate::{error::EngineError, geometry::sectors_of, shared::Shared, state::State, trim::zeroing::Zeroing};
use larder_codec::is_zero;
use larder_core::{Lba, ranges::Run, types::SECTOR_BYTES};
use std::{ops::Range, sync::Arc};

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
        self.confirm(lba).await;
        let sectors = self.geometry.chunk_len(lba) / SECTOR_BYTES;
        let (mut parts, is_owed) = {
            let mut state = self.state.lock();
            let run = run_at(&state, lba);
            let (first, end) = sectors_of(part.start, part.len());
            let parts = state.zeroed_parts.get(lba, run.as_ref(), sectors).with(first..end, how);
            if let Some(run) = run {
                // The chunk reads as zeroes, and only its kind may change.
                let chunk = parts.run(lba, sectors);
                let seq = if chunk.is_of_a_kind_with(&run) { run.seq } else { state.trim(chunk)? };
                state.zeroed_parts.put(lba, parts, sectors);
                return Ok(seq);
            }
            (parts, state.design().dirty_seq(lba).is_some())
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
    state.design().trimmed_from(lba).filter(|run| run.first <= lba)
}
