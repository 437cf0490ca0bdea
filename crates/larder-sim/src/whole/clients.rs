//! The requests of a trace as its clients made them: chunks of one request together, with its time.
//!
//! Contents and trims are those of a replay without time ([`replay`](crate::replay)).
//!
//! Invariants: they come in the order of the trace; every chunk is in one request.
//!
//! It does not make up missing times.

use larder_core::Lba;
use larder_trace::{ChunkRequest, Op, TraceError, TraceResult};

use crate::{cache::CacheRequest, replay::content_of, touched::TouchedPages};
use larder_ssd::time::Nanos;

/// 292 years: later requests of a trace are made then, and as long remains for the work under way.
const LATEST: Nanos = Nanos::MAX / 2;

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// Its time, since the first request; `None` in a trace without times.
    pub at: Option<Nanos>,
    /// Its kind.
    pub op: Op,
    /// Its requests to the cache: chunks, or a trim of several, or a flush.
    pub chunks: Vec<CacheRequest>,
}

/// See the module.
pub struct Clients<I: Iterator> {
    chunks: std::iter::Peekable<I>,
    chunk_bytes: u32,
    touched: TouchedPages,
    has_content: bool,
    began_us: Option<u64>,
    last_us: u64,
}

impl<I: Iterator<Item = TraceResult<ChunkRequest>>> Clients<I> {
    /// Makes them of chunks of `chunk_bytes`.
    pub fn new(chunks: I, chunk_bytes: u32) -> Self {
        Clients {
            chunks: chunks.peekable(),
            chunk_bytes,
            touched: TouchedPages::new(),
            has_content: false,
            began_us: None,
            last_us: 0,
        }
    }

    fn add(&mut self, chunk: &ChunkRequest, into: &mut Vec<CacheRequest>) {
        let lba = Lba(chunk.lba);
        match chunk.op {
            Op::Read | Op::Write => {
                self.touched.add(chunk.lba);
                self.has_content |= chunk.content.is_some();
                let content = content_of(chunk, self.chunk_bytes);
                let make = if chunk.op == Op::Read { CacheRequest::Read } else { CacheRequest::Write };
                into.push(make(lba, content));
            }
            Op::Trim => {
                let make = if chunk.is_whole && self.has_content { CacheRequest::Trim } else { CacheRequest::Forget };
                let parts = self.touched.parts_of(chunk.lba, chunk.chunk_count);
                into.extend(parts.map(|(first, count)| make(Lba(first), count)));
            }
            Op::Flush => into.push(CacheRequest::Flush),
        }
    }

    /// Returns the time of a request.
    ///
    /// Times in a trace may go back a little if several processors wrote it: then the request is
    /// made at once.
    fn at(&mut self, time_us: Option<u64>) -> Option<Nanos> {
        let time = time_us?;
        let began = *self.began_us.get_or_insert(time);
        self.last_us = self.last_us.max(time.saturating_sub(began));
        Some(self.last_us.saturating_mul(1000).min(LATEST))
    }
}

impl<I: Iterator<Item = TraceResult<ChunkRequest>>> Iterator for Clients<I> {
    type Item = Result<ClientRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = match self.chunks.next()? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        let mut chunks = Vec::with_capacity(1);
        self.add(&first, &mut chunks);
        let is_same = |next: &TraceResult<ChunkRequest>| {
            next.as_ref()
                .is_ok_and(|next| (next.request, next.op) == (first.request, first.op) && first.op != Op::Flush)
        };
        while let Some(Ok(next)) = self.chunks.next_if(is_same) {
            self.add(&next, &mut chunks);
        }
        Some(Ok(ClientRequest { at: self.at(first.time_us), op: first.op, chunks }))
    }
}
