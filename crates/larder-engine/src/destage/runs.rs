//! Destaging trimmed runs: the origin gets zeroes.
//!
//! Invariants: a run is marked clean only as far as nothing was written to it, or trimmed in it, meanwhile.
//!
//! What it does not do: decide which run is next.

use crate::{shared::Shared, state::State};
use larder_core::{
    Lba,
    decisions::{Answer, Event},
    ranges::Run,
};
use larder_device::ZeroFlags;
use larder_format::LogEntry;
use std::sync::Arc;

/// Pieces of a run in one turn: each becomes an entry of the log.
const PARTS_MAX: usize = 256;

impl Shared {
    /// Tells the origin of a trimmed run, of so many pieces of it as one turn has marks for.
    pub(crate) async fn destage_run(self: &Arc<Self>, mut run: Run) -> Result<u64, ()> {
        let _ticket = self.destage_tickets.ask(run.first, run.count).granted().await;
        let _room = self.reserve_batch(PARTS_MAX).await.map_err(|_| ())?;
        if self.make_destageable(run.seq).await? < run.seq {
            return Err(());
        }
        let failures = self.state.lock().origin_flush_failures;
        // Writes since may have cut the run; what is left of it is read again, piece by piece, under the ticket.
        let mut at = run.first;
        let end = run.first.0 + run.count;
        let (mut zeroed, mut parts) = (0, Vec::new());
        while at.0 < end {
            let part = self.state.lock().design.trimmed_from(at);
            let Some(part) = part.filter(|part| part.first.0 < end) else { break };
            let from = part.first.max(at);
            let to = (part.first.0 + part.count).min(end);
            at = Lba(to);
            if part.seq != run.seq {
                continue;
            }
            let offset = self.geometry.offset_of(from);
            let stop = (to * self.geometry.chunk_bytes as u64).min(self.geometry.volume_bytes);
            let flags = ZeroFlags { no_hole: run.no_hole, ..ZeroFlags::default() };
            self.zero_origin(offset, stop - offset, flags).await.map_err(|_| ())?;
            zeroed += stop - offset;
            parts.push(from.0..to);
            if parts.len() == PARTS_MAX {
                run.count = to - run.first.0;
                break;
            }
        }
        self.flush_destaged(failures).await?;
        {
            let mut state = self.state.lock();
            parts.into_iter().for_each(|part| state.origin_changes.rewritten(part));
            // Only what is left of the run: what was written or trimmed since is dirty, and a mark that covered it would
            // be taken for it by a replay over a newer checkpoint, where it has no sequence number.
            for (first, count) in remains_of(&state, &run) {
                state.log.push(LogEntry::Clean { lba: first.0, chunk_count: count, map_seq: run.seq });
            }
            let Run { first, count, seq, .. } = run;
            state.decisions.note(|| (Event::CleanRun { first, count, seq }, Answer::Done));
            state.design.mark_run_clean(&run);
        }
        self.signals.destaged.notify();
        Ok(zeroed.max(1))
    }
}

/// The parts of `run` that still are as it was: first chunk and number of chunks.
fn remains_of(state: &State, run: &Run) -> Vec<(Lba, u64)> {
    let end = run.first.0 + run.count;
    let mut parts = Vec::new();
    let mut at = run.first;
    while at.0 < end
        && let Some(part) = state.design.trimmed_from(at).filter(|part| part.first.0 < end)
    {
        let (from, to) = (part.first.max(run.first), (part.first.0 + part.count).min(end));
        if part.seq == run.seq {
            parts.push((from, to - from.0));
        }
        at = Lba(to);
    }
    parts
}
