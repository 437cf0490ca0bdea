//! Replay: the requests of a trace, chunk by chunk, made to a cache, and the hits counted.
//!
//! A request here is one chunk. A chunk whose content the trace does not tell has content of its own, one for each
//! address, of the full size: then nothing is a duplicate and nothing compresses.
//!
//! Invariants: requests are made in the order of the trace. A trace without content is replayed exactly; of a trace with
//! content, each request carries that of its whole chunk.
//!
//! What it does not do: time, or read files.

use crate::cache::{Content, ReplayCache};
use larder_core::{Fingerprint, Lba, types::mix};
use larder_trace::{ChunkRequest, Op, TraceResult};

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Chunks read and written.
    pub requests: u64,
    /// Chunks read.
    pub reads: u64,
    /// Chunks written.
    pub writes: u64,
    /// Chunks trimmed.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Reads that hit.
    pub read_hits: u64,
    /// Writes to addresses that were cached.
    pub write_hits: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

impl Outcome {
    /// Makes one request to `cache`.
    pub fn make(&mut self, request: &ChunkRequest, chunk_bytes: u32, cache: &mut dyn ReplayCache) {
        let lba = Lba(request.lba);
        match request.op {
            Op::Read => {
                self.reads += 1;
                self.read_hits += u64::from(cache.read(lba, &content_of(request, chunk_bytes)));
            }
            Op::Write => {
                self.writes += 1;
                self.written_bytes += u64::from(chunk_bytes);
                self.write_hits += u64::from(cache.write(lba, &content_of(request, chunk_bytes)));
            }
            Op::Trim => {
                self.trims += request.chunk_count;
                (request.lba..request.lba + request.chunk_count).for_each(|lba| cache.trim(Lba(lba)));
                return;
            }
            Op::Flush => {
                self.flushes += 1;
                cache.flush();
                return;
            }
        }
        self.requests += 1;
    }
}

/// Makes all requests to `cache`.
///
/// # Errors
/// The first that the trace has.
pub fn replay(
    requests: impl Iterator<Item = TraceResult<ChunkRequest>>,
    chunk_bytes: u32,
    cache: &mut dyn ReplayCache,
) -> TraceResult<Outcome> {
    let mut outcome = Outcome::default();
    for request in requests {
        outcome.make(&request?, chunk_bytes, cache);
    }
    Ok(outcome)
}

/// What the chunk holds.
pub fn content_of(request: &ChunkRequest, chunk_bytes: u32) -> Content {
    let Some(content) = &request.content else { return own_content(Lba(request.lba), chunk_bytes) };
    let stored_bytes = content.stored_bytes.unwrap_or(chunk_bytes).clamp(1, chunk_bytes);
    if content.is_zero {
        return Content { fingerprint: Content::ZEROES, stored_bytes };
    }
    // Indices take fingerprints for the hashes that they are; those of a trace may be short, or count.
    let [high, low] = content.fingerprint.0;
    let halves = [mix(low ^ mix(high)), if high == 0 { mix(!low) } else { high }];
    Content { fingerprint: fingerprint_of(halves), stored_bytes }
}

/// Content that no other address has.
pub fn own_content(lba: Lba, chunk_bytes: u32) -> Content {
    Content { fingerprint: fingerprint_of([mix(lba.0), mix(!lba.0)]), stored_bytes: chunk_bytes }
}

fn fingerprint_of(halves: [u64; 2]) -> Fingerprint {
    let mut bytes = [0; 16];
    for (bytes, half) in bytes.chunks_exact_mut(8).zip(halves) {
        bytes.copy_from_slice(&half.to_le_bytes());
    }
    Fingerprint(bytes)
}
