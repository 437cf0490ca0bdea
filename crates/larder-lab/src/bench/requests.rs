//! The original requests of a trace: the records of each put together again, with its blocks'
//! content.
//!
//! Invariants: a request has one operation and one run of addresses, at most `bytes_max` of them
//! unless it is a trim. Blocks of content are aligned to their size. A fingerprint has the same
//! bytes everywhere, in each pass.
//!
//! It leaves the content of the device's blocks to `larder-papers/src/blocks.rs`.

use crate::{
    args::BenchTrace,
    sim::source::{Records, Source},
    trace::watch::Watch,
};
use larder::error::{Failure, Outcome};
use larder_trace::{Op, Provenance, Record, TraceError};

use larder_papers::{
    content::ContentSizes,
    request::{Block, PaperRequest},
};

/// A trace for a device.
pub struct Trace<'a> {
    source: Source<'a>,
    watch: &'a Watch,
    limit: u64,
}

impl<'a> Trace<'a> {
    /// Opens a trace.
    ///
    /// # Errors
    /// A sentence: the trace's reader's, or that there is no content.
    pub fn open(input: &'a BenchTrace, watch: &'a Watch) -> Outcome<Trace<'a>> {
        let source = Source::of_file(&input.file, None, watch)?;
        if source.block_bytes().is_none() {
            return Err(Failure::failed(format_args!(
                "{} says nothing of content, so there is nothing to write: make some up with --content dup=0.5,compress=2",
                input.file.trace.display()
            )));
        }
        Ok(Trace { source, watch, limit: input.limit.unwrap_or(u64::MAX) })
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.source.block_bytes().unwrap_or_default().max(1)
    }

    /// Returns the requests, at most `bytes_max` each; `what` names the pass for people.
    ///
    /// # Errors
    /// A sentence.
    pub fn requests(&self, what: &'static str, bytes_max: u64) -> Outcome<TraceRequests<'a, '_>> {
        let records = self.source.records(what).map_err(|error| self.source.explain(&error))?;
        Ok(TraceRequests {
            trace: self,
            records,
            next: None,
            bytes_max,
            made: 0,
            sizes: ContentSizes::default(),
            provenance: None,
        })
    }

    /// Returns the watch.
    pub fn watch(&self) -> &Watch {
        self.watch
    }
}

/// Requests of a trace, from [`Trace::requests`].
pub struct TraceRequests<'a, 't> {
    trace: &'t Trace<'a>,
    records: Records,
    next: Option<Record>,
    bytes_max: u64,
    made: u64,
    sizes: ContentSizes,
    provenance: Option<Provenance>,
}

impl TraceRequests<'_, '_> {
    /// Returns the source of the content so far; of several sources, the farthest from a real disk.
    pub fn provenance(&self) -> Option<Provenance> {
        self.provenance
    }

    fn take(&mut self) -> Outcome<Option<Record>> {
        match self.next.take() {
            Some(record) => Ok(Some(record)),
            None => self.records.next().transpose().map_err(|error: TraceError| self.trace.source.explain(&error)),
        }
    }

    fn block(&mut self, record: &Record, at: u64) -> Outcome<Block> {
        let aligned = record.offset_bytes.is_multiple_of(self.trace.block_bytes());
        if record.content.is_some() && (!aligned || record.len_bytes > self.trace.block_bytes()) {
            return Err(Failure::failed(format_args!(
                "request {} of the trace has content at byte {} that is not a block of {} bytes: convert it with `larder-lab trace convert --chunk`",
                record.request,
                record.offset_bytes,
                self.trace.block_bytes()
            )));
        }
        if record.op == Op::Write && record.content.is_none() {
            return Err(Failure::failed(format_args!(
                "request {} of the trace writes unknown content at byte {}: make content up with --content",
                record.request, record.offset_bytes
            )));
        }
        self.provenance = self.provenance.max(record.content.map(|content| content.provenance));
        Ok(Block { at, len: record.len_bytes, bytes: record.content.as_ref().map(|content| self.sizes.bytes(content)) })
    }

    fn put_together(&mut self) -> Outcome<Option<PaperRequest>> {
        if self.made >= self.trace.limit {
            return Ok(None);
        }
        let Some(first) = self.take()? else { return Ok(None) };
        self.made += 1;
        let mut request = PaperRequest {
            number: first.request,
            time_us: first.time_us,
            op: first.op,
            offset: first.offset_bytes,
            len: first.len_bytes,
            blocks: Vec::new(),
        };
        if !first.is_data() {
            return Ok(Some(request));
        }
        request.blocks.push(self.block(&first, 0)?);
        while let Some(more) = self.take()? {
            let goes_on = more.request == first.request
                && more.op == first.op
                && more.offset_bytes == request.offset + request.len
                && request.len + more.len_bytes <= self.bytes_max;
            if !goes_on {
                self.next = Some(more);
                break;
            }
            request.blocks.push(self.block(&more, request.len)?);
            request.len += more.len_bytes;
        }
        Ok(Some(request))
    }
}

impl Iterator for TraceRequests<'_, '_> {
    type Item = Outcome<PaperRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        self.put_together().transpose()
    }
}
