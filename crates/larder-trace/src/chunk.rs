//! Turns records into requests of chunks.
//!
//! A read or write gives one request for each chunk that it touches, in the order of addresses. A
//! trim gives one request for the run of whole chunks in it, so that a trim of a disk stays one
//! request. It gives one more for each chunk that it covers in part. A flush gives one.
//!
//! Invariants: a request's content is the content of its whole chunk. So a trace with content is
//! chunked at its own granularity; `rechunk.rs` makes other sizes of it. Nothing is kept between
//! records.
//!
//! It does not read or merge the rest of a chunk that a request touches in part.

use crate::{
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    record::{Op, Record, Tag, TraceContent},
};

/// The smallest and the largest chunk, in bytes.
pub const CHUNK_BYTES_RANGE: std::ops::RangeInclusive<u32> = 512..=1 << 20;

/// A request for one chunk or, for a trim, for a run of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRequest {
    /// The arrival in microseconds, if the trace has times.
    pub time_us: Option<u64>,
    /// The number of the trace's request. Consecutive chunk requests with the same number belong to
    /// it.
    pub request: u64,
    /// The name of workload, guest, process or host.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// Number of the (first) chunk; 0 for a flush.
    pub lba: u64,
    /// Chunks in the run: 1 for a read or write, 0 for a flush.
    pub chunk_count: u64,
    /// The first byte in the chunk that is touched.
    pub start_bytes: u32,
    /// Touched bytes of the chunk; for a run, of each chunk. 0 for a flush.
    pub len_bytes: u32,
    /// True if the request touches whole chunks.
    pub is_whole: bool,
    /// The content of the whole chunk after the request, if it is known.
    pub content: Option<TraceContent>,
}

impl ChunkRequest {
    /// Returns the request as a record, for statistics and writers. A part of a chunk whose content
    /// is known counts as the chunk.
    pub fn to_record(&self, chunk_bytes: u32) -> Record {
        let chunk_bytes = u64::from(chunk_bytes);
        let first = self.lba * chunk_bytes;
        let (offset_bytes, len_bytes) = match self.op {
            Op::Flush => (0, 0),
            _ if self.content.is_some() => (first, chunk_bytes),
            _ => (first + u64::from(self.start_bytes), self.chunk_count * u64::from(self.len_bytes)),
        };
        let Self { time_us, request, tag, op, content, .. } = *self;
        Record { time_us, request, tag, op, offset_bytes, len_bytes, content }
    }
}

/// Checks the size of a chunk: a power of two in [`CHUNK_BYTES_RANGE`].
pub(crate) fn check_chunk_bytes(chunk_bytes: u32) -> TraceResult<()> {
    if chunk_bytes.is_power_of_two() && CHUNK_BYTES_RANGE.contains(&chunk_bytes) {
        return Ok(());
    }
    let message = format!("expected a chunk of 512 bytes to 1 MiB, a power of two, found {chunk_bytes} bytes");
    Err(TraceError::parameter(message))
}

/// Returns requests of chunks of `chunk_bytes`. The iterator fails if the trace has content of
/// another granularity.
pub fn chunks<I>(records: I, chunk_bytes: u32) -> TraceResult<Chunks<I::IntoIter>>
where
    I: IntoIterator<Item = TraceResult<Record>>,
{
    check_chunk_bytes(chunk_bytes)?;
    Ok(Chunks { records: records.into_iter(), chunk_bytes, pieces: None })
}

/// See [`chunks`].
pub struct Chunks<I> {
    records: I,
    chunk_bytes: u32,
    pieces: Option<Pieces>,
}

impl<I: Iterator<Item = TraceResult<Record>>> Iterator for Chunks<I> {
    type Item = TraceResult<ChunkRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(request) = self.pieces.as_mut().and_then(Pieces::next) {
                return Some(Ok(request));
            }
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            let chunk_bytes = u64::from(self.chunk_bytes);
            let is_own = record.len_bytes == chunk_bytes && record.offset_bytes % chunk_bytes == 0;
            if record.content.is_some() && !is_own {
                let message = format!(
                    "the content of this trace is in blocks of {} bytes (one begins at byte {}), not in chunks of \
                     {chunk_bytes}: re-chunk it",
                    record.len_bytes, record.offset_bytes
                );
                return Some(Err(TraceError::new(TraceErrorKind::Content, "", Position::Whole, message)));
            }
            self.pieces = Some(Pieces::new(record, self.chunk_bytes));
        }
    }
}

/// The requests of chunks that a record gives.
#[derive(Clone, Copy)]
pub(crate) struct Pieces {
    record: Record,
    chunk_bytes: u64,
    /// The next byte to hand out; beyond the end when all is done.
    next: u64,
    is_done: bool,
}

impl Pieces {
    pub fn new(record: Record, chunk_bytes: u32) -> Pieces {
        Pieces { record, chunk_bytes: u64::from(chunk_bytes), next: record.offset_bytes, is_done: false }
    }
}

impl Iterator for Pieces {
    type Item = ChunkRequest;

    fn next(&mut self) -> Option<ChunkRequest> {
        if self.is_done {
            return None;
        }
        let Record { time_us, request, tag, op, content, .. } = self.record;
        let lba = self.next / self.chunk_bytes;
        let start = self.next % self.chunk_bytes;
        let left = self.record.end_bytes() - self.next;
        let (chunk_count, len) = match op {
            Op::Flush => (0, 0),
            // The run of whole chunks.
            Op::Trim if start == 0 && left >= self.chunk_bytes => (left / self.chunk_bytes, self.chunk_bytes),
            _ => (1, left.min(self.chunk_bytes - start)),
        };
        self.next += chunk_count * len;
        self.is_done = self.next >= self.record.end_bytes();
        Some(ChunkRequest {
            time_us,
            request,
            tag,
            op,
            lba,
            chunk_count,
            // Both are at most a chunk, which fits.
            start_bytes: start as u32,
            len_bytes: len as u32,
            is_whole: len == self.chunk_bytes,
            content,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(op: Op, offset: u64, len: u64) -> Vec<(u64, u64, u32, u32, bool)> {
        Pieces::new(Record::new(1, op, offset, len), 4096)
            .map(|piece| (piece.lba, piece.chunk_count, piece.start_bytes, piece.len_bytes, piece.is_whole))
            .collect()
    }

    #[test]
    fn reads_and_writes_split_at_chunks() {
        assert_eq!(pieces(Op::Read, 0, 8192), [(0, 1, 0, 4096, true), (1, 1, 0, 4096, true)]);
        assert_eq!(pieces(Op::Write, 512, 512), [(0, 1, 512, 512, false)]);
        let split = [(0, 1, 3584, 512, false), (1, 1, 0, 4096, true), (2, 1, 0, 512, false)];
        assert_eq!(pieces(Op::Write, 3584, 5120), split);
    }

    #[test]
    fn a_trim_is_a_run_and_its_edges() {
        assert_eq!(pieces(Op::Trim, 0, 1 << 40), [(0, 1 << 28, 0, 4096, true)]);
        let split = [(0, 1, 512, 3584, false), (1, 3, 0, 4096, true), (4, 1, 0, 1024, false)];
        assert_eq!(pieces(Op::Trim, 512, 3584 + 3 * 4096 + 1024), split);
        assert_eq!(pieces(Op::Flush, 0, 0), [(0, 0, 0, 0, false)]);
    }

    #[test]
    fn sizes_of_chunks_are_checked() {
        for wrong in [0, 256, 3000, 2 << 20] {
            let error = chunks(std::iter::empty(), wrong).err().unwrap();
            assert_eq!(error.kind(), TraceErrorKind::Parameter, "{error}");
        }
    }
}
