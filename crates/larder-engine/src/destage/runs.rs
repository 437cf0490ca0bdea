//! Destaging trimmed runs: the origin gets zeroes, in requests as large as it completes quickly.
//!
//! Invariants: a part of a run is zeroed once its trim is durable. The mark covers the part of it
//! that still reads as zeroes of the same kind. The mark carries that run's present number: a trim
//! beside it meanwhile gave it a newer one.
//!
//! It does not decide which runs are next, or flush the origin.

use super::pace::{WRITTEN_BYTES_PER_S_MAX, ZERO_TIME_MAX};
use crate::{shared::Shared, state::State, trim::zeroing::Zeroing};
use larder_core::{
    Lba,
    decisions::{Answer, Event},
    ranges::Run,
};
use larder_device::{IoErrorKind, ZeroFlags};
use larder_format::LogEntry;
use std::sync::Arc;

/// Entries of the log that mark the runs of a batch clean.
pub(super) const MARKS_MAX: usize = 256;

/// The zeroed parts of a batch's runs.
#[derive(Default)]
pub(super) struct Zeroed {
    /// Zeroed parts of runs; their sequence numbers have no meaning.
    parts: Vec<Run>,
    /// Their bytes for the rate limit.
    bytes: u64,
    /// A part failed, or was not durable.
    has_failed: bool,
}

impl Shared {
    /// Zeroes trimmed runs on the origin, or as much of them as fits into one batch. The caller
    /// holds the ticket.
    pub(super) async fn zero_runs(self: &Arc<Self>, runs: &[Run]) -> Zeroed {
        let mut zeroed = Zeroed::default();
        let mut durable_upto = 0;
        let began = self.runtime.now();
        for run in runs {
            // Writes since may have cut the run; the loop reads the rest of it again, piece by
            // piece, under the ticket.
            let (mut at, end) = (run.first.0, run.first.0 + run.count);
            while at < end {
                let part = self.state.lock().design().trimmed_from(Lba(at));
                let Some(part) = part.filter(|part| part.first.0 < end) else { break };
                let (from, part_end) = (part.first.0.max(at), (part.first.0 + part.count).min(end));
                if part.advisory && !run.advisory {
                    // A client trimmed the part meanwhile, and the batch does not ask for its trim.
                    at = part_end;
                    continue;
                }
                if part.seq > durable_upto {
                    let newest = runs.iter().map(|run| run.seq).fold(part.seq, u64::max);
                    durable_upto = self.make_destageable(newest).await.unwrap_or(durable_upto);
                }
                if part.seq > durable_upto {
                    zeroed.has_failed = true;
                    at = part_end;
                    continue;
                }
                let to = part_end.min(from + (self.zero_pace.bytes_max() / self.geometry.chunk_bytes as u64).max(1));
                let part = Run { first: Lba(from), count: to - from, ..part };
                match self.zero_part(&part).await {
                    Ok(bytes) => zeroed.add(part, bytes),
                    Err(kind) => {
                        zeroed.has_failed = true;
                        if matches!(kind, IoErrorKind::Gone | IoErrorKind::Cancelled) {
                            return zeroed;
                        }
                        // The other runs may still succeed.
                        break;
                    }
                }
                at = to;
                if zeroed.parts.len() == MARKS_MAX || self.runtime.now().saturating_sub(began) > ZERO_TIME_MAX {
                    return zeroed;
                }
            }
        }
        zeroed
    }

    /// Zeroes a part of a run on the origin. Returns its bytes for the rate limit.
    async fn zero_part(self: &Arc<Self>, part: &Run) -> Result<u64, IoErrorKind> {
        let offset = self.geometry.offset_of(part.first);
        let end = self.geometry.offset_of(Lba(part.first.0 + part.count)).min(self.geometry.volume_bytes);
        let bytes = end - offset;
        let began = self.runtime.now();
        let flags = ZeroFlags { no_hole: part.no_hole, ..ZeroFlags::default() };
        self.zero_origin(offset, bytes, Zeroing { flags, advisory: part.advisory })
            .await
            .map_err(|error| error.kind)?;
        let took = self.runtime.now().saturating_sub(began);
        self.zero_pace.note(bytes, took);
        Ok(bytes.min((took.as_secs_f64() * WRITTEN_BYTES_PER_S_MAX as f64) as u64))
    }

    /// Makes the zeroes durable on the origin, and marks them clean. Returns their bytes for the
    /// rate limit, 1 at least.
    pub(super) async fn finish_runs(self: &Arc<Self>, zeroed: Zeroed, failures: u64) -> Result<u64, ()> {
        let Zeroed { parts, bytes, has_failed } = zeroed;
        if !parts.is_empty() {
            self.flush_destaged(failures).await?;
            let mut state = self.state.lock();
            let mut marks = 0;
            for part in parts {
                state.origin_changes.rewritten(part.first.0..part.first.0 + part.count);
                // The mark covers only the rest of the runs, since chunks written meanwhile are
                // dirty. Over a newer checkpoint, where such a chunk has no sequence number, a
                // replay would take a mark over it for its own.
                for run in remains_of(&state, &part, MARKS_MAX - marks) {
                    marks += 1;
                    let Run { first, count, seq, .. } = run;
                    state.log.push(LogEntry::Clean { lba: first.0, chunk_count: count, map_seq: seq });
                    state.decisions.note(|| (Event::CleanRun { first, count, seq }, Answer::Done));
                    state.decide().mark_run_clean(&run);
                }
            }
            drop(state);
            self.signals.destaged.notify();
        }
        if has_failed { Err(()) } else { Ok(bytes.max(1)) }
    }
}

impl Zeroed {
    fn add(&mut self, part: Run, bytes: u64) {
        self.bytes += bytes;
        match self.parts.last_mut() {
            Some(last) if last.first.0 + last.count == part.first.0 && last.is_of_a_kind_with(&part) => {
                last.count += part.count;
            }
            _ => self.parts.push(part),
        }
    }
}

/// Returns the rest of a part of a run in trimmed runs of its kind: at most `max` of them.
fn remains_of(state: &State, part: &Run, max: usize) -> Vec<Run> {
    let mut parts = Vec::new();
    let (mut at, end) = (part.first.0, part.first.0 + part.count);
    while at < end
        && parts.len() < max
        && let Some(run) = state.design().trimmed_from(Lba(at)).filter(|run| run.first.0 < end)
    {
        let (from, to) = (run.first.0.max(at), (run.first.0 + run.count).min(end));
        if run.is_of_a_kind_with(part) {
            parts.push(Run { first: Lba(from), count: to - from, ..run });
        }
        at = to;
    }
    parts
}
