//! Replay: the requests of a trace, chunk by chunk, as a cache takes them.
//!
//! A request here is one chunk. A chunk whose content the trace does not tell has content of its
//! own, one for each address, of the full size. Then nothing is a duplicate and nothing compresses.
//!
//! A trim of a whole chunk makes it zeroes. A trim of a part leaves a content that no request
//! tells, so every cache forgets the chunk. So does a trim in a trace without content: a chunk that
//! is read after it has its own content again. Each trim by itself decides if a chunk is trimmed as
//! a whole. A chunk that several trims cover counts as trimmed in part. So does the last chunk of a
//! disk that does not fill it, since a trace does not tell the end of its disk.
//!
//! Invariants: requests are made in the order of the trace. A trace without content is replayed
//! exactly; of a trace with content, each request carries that of its whole chunk.
//!
//! It does not take time, or read files.

use crate::{
    cache::{CacheRequest, Content, ReplayCache},
    tally::Tally,
    touched::TouchedPages,
};
use larder_core::{Fingerprint, Lba, types::mix};
use larder_trace::{ChunkRequest, Op, TraceResult};

/// Requests that are passed to a cache at a time: 32 KiB of them.
pub const BATCH_REQUESTS: usize = 1024;

/// The requests of a trace in batches.
///
/// Trims are cut to touched regions, so that trimming a disk costs no more than its used part.
/// Memory: a few bytes for each 65,536 chunks of which one is touched.
pub struct Batches<I> {
    requests: I,
    chunk_bytes: u32,
    touched: TouchedPages,
    /// True if some request had content.
    has_content: bool,
    /// The first and the last moment, in microseconds.
    times: Option<(u64, u64)>,
    batch: Vec<CacheRequest>,
}

impl<I: Iterator<Item = TraceResult<ChunkRequest>>> Batches<I> {
    /// Makes batches of requests of chunks of `chunk_bytes`.
    pub fn new(requests: I, chunk_bytes: u32) -> Self {
        let batch = Vec::with_capacity(BATCH_REQUESTS);
        Batches { requests, chunk_bytes, touched: TouchedPages::new(), has_content: false, times: None, batch }
    }

    /// Returns the time that the requests read so far take in the trace, in seconds.
    ///
    /// `None` if it has no times, or but one.
    pub fn seconds(&self) -> Option<f64> {
        let (first, last) = self.times?;
        (last > first).then(|| (last - first) as f64 / 1e6)
    }

    /// Returns the requests that were not batched yet.
    pub fn into_requests(self) -> I {
        self.requests
    }

    /// Returns the next requests, [`BATCH_REQUESTS`] or a few more; empty at the end.
    ///
    /// # Errors
    /// The trace's first error. The requests before it in the batch are lost.
    pub fn next_batch(&mut self) -> TraceResult<&[CacheRequest]> {
        self.batch.clear();
        while self.batch.len() < BATCH_REQUESTS {
            let Some(request) = self.requests.next() else { break };
            let request = request?;
            let lba = Lba(request.lba);
            if let Some(time) = request.time_us {
                let (first, last) = self.times.unwrap_or((time, time));
                self.times = Some((first.min(time), last.max(time)));
            }
            match request.op {
                Op::Read | Op::Write => {
                    self.touched.add(request.lba);
                    self.has_content |= request.content.is_some();
                    let content = content_of(&request, self.chunk_bytes);
                    self.batch.push(match request.op {
                        Op::Read => CacheRequest::Read(lba, content),
                        _ => CacheRequest::Write(lba, content),
                    });
                }
                Op::Trim => {
                    let parts = self.touched.parts_of(request.lba, request.chunk_count);
                    let is_told = request.is_whole && self.has_content;
                    let make = if is_told { CacheRequest::Trim } else { CacheRequest::Forget };
                    self.batch.extend(parts.map(|(first, count)| make(Lba(first), count)));
                }
                Op::Flush => self.batch.push(CacheRequest::Flush),
            }
        }
        Ok(&self.batch)
    }
}

/// Makes all requests to `cache`.
///
/// # Errors
/// The trace's first error.
pub fn replay(
    requests: impl Iterator<Item = TraceResult<ChunkRequest>>,
    chunk_bytes: u32,
    cache: &mut dyn ReplayCache,
) -> TraceResult<Tally> {
    let mut tally = Tally::default();
    let mut batches = Batches::new(requests, chunk_bytes);
    loop {
        let batch = batches.next_batch()?;
        if batch.is_empty() {
            return Ok(tally);
        }
        cache.replay(batch, &mut tally);
    }
}

/// Returns the content of the chunk.
#[inline]
pub fn content_of(request: &ChunkRequest, chunk_bytes: u32) -> Content {
    let Some(content) = &request.content else { return own_content(Lba(request.lba), chunk_bytes) };
    let stored_bytes = content.stored_bytes.unwrap_or(chunk_bytes).clamp(1, chunk_bytes);
    if content.is_zero {
        return Content { fingerprint: Content::ZEROES, stored_bytes };
    }
    // Indices expect fingerprints to be hashes; those of a trace may be short, or count.
    let [high, low] = content.fingerprint.0;
    let halves = [mix(low ^ mix(high)), if high == 0 { mix(!low) } else { high }];
    Content { fingerprint: fingerprint_of(halves), stored_bytes }
}

/// Returns content that no other address has.
#[inline]
pub fn own_content(lba: Lba, chunk_bytes: u32) -> Content {
    Content { fingerprint: fingerprint_of([mix(lba.0), mix(!lba.0)]), stored_bytes: chunk_bytes }
}

#[inline]
fn fingerprint_of(halves: [u64; 2]) -> Fingerprint {
    let mut bytes = [0; 16];
    for (bytes, half) in bytes.chunks_exact_mut(8).zip(halves) {
        bytes.copy_from_slice(&half.to_le_bytes());
    }
    Fingerprint(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache::CacheFigures, devices::Requests, traffic::Traffic};
    use larder_trace::{Provenance, Record, Tag, chunks};

    /// Writes its requests down. Even chunks hit.
    #[derive(Default)]
    struct Notes(Vec<(char, u64, Option<Content>)>);

    impl ReplayCache for Notes {
        fn read(&mut self, lba: Lba, content: &Content) -> bool {
            self.0.push(('R', lba.0, Some(*content)));
            lba.0.is_multiple_of(2)
        }

        fn write(&mut self, lba: Lba, content: &Content) -> bool {
            self.0.push(('W', lba.0, Some(*content)));
            lba.0.is_multiple_of(2)
        }

        fn trim(&mut self, lba: Lba) {
            self.0.push(('T', lba.0, None));
        }

        fn trim_part(&mut self, lba: Lba) {
            self.0.push(('P', lba.0, None));
        }

        fn flush(&mut self) {
            self.0.push(('F', 0, None));
        }

        fn traffic(&self) -> Traffic {
            Traffic::default()
        }

        fn figures(&self) -> CacheFigures {
            CacheFigures::default()
        }

        fn gather(&mut self, _on: bool) {}

        fn take_requests(&mut self, into: &mut Requests) {
            into.clear();
        }

        fn flash_span_bytes(&self) -> u64 {
            0
        }

        fn flash_data_range(&self) -> std::ops::Range<u64> {
            0..0
        }
    }

    fn noted(records: &[Record]) -> (Notes, Tally) {
        let mut notes = Notes::default();
        let requests = chunks(records.iter().map(|record| Ok(*record)), 4096).expect("a size");
        let tally = replay(requests, 4096, &mut notes).expect("no error");
        (notes, tally)
    }

    #[test]
    fn every_chunk_of_every_request_is_made_in_order_and_counted() {
        let records = [
            Record::new(1, Op::Read, 0, 3 * 4096),
            Record::new(2, Op::Write, 4096, 512),
            Record::new(3, Op::Flush, 0, 0),
            Record::new(4, Op::Trim, 4096, 2 * 4096),
        ];
        let (notes, tally) = noted(&records);
        let made: String = notes.0.iter().map(|(op, lba, _)| format!("{op}{lba} ")).collect();
        // A trimmed chunk is unknown if it was unknown before.
        assert_eq!(made, "R0 R1 R2 W1 F0 P1 P2 ");
        let expected = Tally { reads: 3, read_hits: 2, writes: 1, write_hits: 0, trims: 2, flushes: 1 };
        assert_eq!(tally, expected);
        assert_eq!(notes.0[1].2, notes.0[3].2, "an address without content keeps its own");
        assert_ne!(notes.0[0].2, notes.0[1].2);
        assert!(notes.0.iter().filter_map(|note| note.2).all(|content| content.stored_bytes == 4096));
    }

    /// Gives a record content.
    fn with_content(record: Record) -> Record {
        let fingerprint = larder_trace::ContentId::from_u128(7);
        let content = larder_trace::TraceContent {
            fingerprint,
            stored_bytes: None,
            is_zero: false,
            provenance: Provenance::Recorded,
        };
        Record { content: Some(content), ..record }
    }

    #[test]
    fn a_trim_is_of_whole_chunks_but_at_its_edges() {
        let records =
            [with_content(Record::new(1, Op::Write, 0, 4096)), Record::new(2, Op::Trim, 512, 3584 + 2 * 4096 + 512)];
        let (notes, tally) = noted(&records);
        let made: String = notes.0.iter().map(|(op, lba, _)| format!("{op}{lba} ")).collect();
        assert_eq!((made.as_str(), tally.trims), ("W0 P0 T1 T2 P3 ", 4));
    }

    #[test]
    fn a_trim_of_the_whole_disk_is_over_at_once() {
        let records = [with_content(Record::new(1, Op::Write, 1 << 40, 4096)), Record::new(2, Op::Trim, 0, 1 << 60)];
        let (notes, tally) = noted(&records);
        assert!(notes.0.iter().any(|(op, lba, _)| (*op, *lba) == ('T', 1 << 28)));
        assert_eq!(tally.trims, 1 << 16);
    }

    #[test]
    fn longer_traces_than_a_batch_come_through() {
        let count = 2 * BATCH_REQUESTS as u64 + 7;
        let records: Vec<Record> = (0..count).map(|n| Record::new(n, Op::Read, n * 4096, 4096)).collect();
        let (notes, tally) = noted(&records);
        assert_eq!((tally.reads, tally.read_hits), (count, count / 2 + 1));
        assert!(notes.0.iter().map(|note| note.1).eq(0..count));
    }

    #[test]
    fn content_is_that_of_the_trace() {
        let request = |fingerprint: u128, stored_bytes, is_zero| {
            let fingerprint = larder_trace::ContentId::from_u128(fingerprint);
            let content =
                larder_trace::TraceContent { fingerprint, stored_bytes, is_zero, provenance: Provenance::Recorded };
            ChunkRequest {
                time_us: None,
                request: 1,
                tag: Tag::NONE,
                op: Op::Read,
                lba: 7,
                chunk_count: 1,
                start_bytes: 0,
                len_bytes: 4096,
                is_whole: true,
                content: Some(content),
            }
        };
        let of = |fingerprint, stored, is_zero| content_of(&request(fingerprint, stored, is_zero), 4096);
        assert_eq!(of(1, Some(100), false), of(1, Some(100), false));
        let mut seen: Vec<Fingerprint> =
            [1, 2, 1 << 64, 1 << 65, 1 | 1 << 64].map(|fingerprint| of(fingerprint, None, false).fingerprint).to_vec();
        seen.push(own_content(Lba(1), 4096).fingerprint);
        seen.sort_by_key(|fingerprint| fingerprint.0);
        seen.dedup();
        assert_eq!(seen.len(), 6, "distinct content is distinct");
        assert_eq!(
            [of(1, None, false), of(1, Some(0), false), of(1, Some(9999), false)].map(|c| c.stored_bytes),
            [4096, 1, 4096]
        );
        assert!(of(5, Some(30), true).is_zero() && !of(5, Some(30), false).is_zero());
    }

    #[test]
    fn an_error_of_the_trace_ends_the_replay() {
        let bad = larder_trace::TraceError::parameter("no");
        let records = [Ok(Record::new(1, Op::Read, 0, 4096)), Err(bad)];
        let requests = chunks(records, 4096).expect("a size");
        assert!(replay(requests, 4096, &mut Notes::default()).is_err());
    }
}
