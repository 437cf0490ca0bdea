//! The trace of a replay: opened, re-chunked, and read as often as needed.
//!
//! Missing content is made up on request. Then the trace is chunked, by the two passes of the
//! papers if its content has another granularity. In a trace of bare block ids each id is a chunk,
//! of any chunk size, unless `--unit` gives the bytes of an id.
//!
//! Invariants: each pass gives the same requests.
//!
//! It does not replay.

use crate::{
    args::{InputArgs, TraceFile, TraceInput, UnknownArg},
    trace::{
        self, Use,
        convert::synthetic,
        watch::{Reading, Watch},
    },
};
use larder::error::{Failure, Outcome};
use larder_sim::{
    report::TraceFacts,
    survey::{Survey, survey},
};
use larder_trace::{
    ChunkRequest, Chunks, FormatId, Initial, Provenance, RechunkOptions, Rechunked, Rechunker, Record, TraceError,
    TraceResult, Unknown, chunks, with_content, with_sizes,
};
use std::borrow::Cow;

/// The chunk size of a trace without one.
const CHUNK_BYTES: u32 = 4096;

/// A trace that can be replayed in chunks of one size.
pub struct Source<'a> {
    file: &'a TraceFile,
    unknown: UnknownArg,
    watch: &'a Watch,
    format: FormatId,
    chunk_bytes: u32,
    /// The size of a block with known content, if any.
    block_bytes: Option<u64>,
}

/// The facts of the first request.
struct Look {
    format: FormatId,
    /// The size of a block of the trace's own content.
    block_bytes: Option<u64>,
}

impl<'a> Source<'a> {
    /// Opens a trace in chunks of `chunk_bytes`, or in its own chunks.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(input: &'a TraceInput, chunk_bytes: Option<u32>, watch: &'a Watch) -> Outcome<Source<'a>> {
        Ok(Source { unknown: input.unknown, ..Source::of_file(&input.file, chunk_bytes, watch)? })
    }

    /// Does the same for a command without an option for blocks that are never read.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn of_file(file: &'a TraceFile, chunk_bytes: Option<u32>, watch: &'a Watch) -> Outcome<Source<'a>> {
        let look = look(file, watch).map_err(|error| explain(&error, file))?;
        let own = look.block_bytes.and_then(|bytes| u32::try_from(bytes).ok());
        let made = file.content.and_then(|content| content.block_bytes);
        // Blocks smaller than the least chunk are put together.
        let chunk_bytes = chunk_bytes.or(own).or(made).unwrap_or(CHUNK_BYTES).max(CHUNK_BYTES);
        let block_bytes = match (look.block_bytes, file.content) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(content)) => Some(u64::from(synthetic(content, Some(chunk_bytes)).block_bytes)),
            (None, None) => None,
        };
        Ok(Source { file, unknown: UnknownArg::Unique, watch, format: look.format, chunk_bytes, block_bytes })
    }

    /// Returns the bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Returns the size of a block with known content, if any.
    pub fn block_bytes(&self) -> Option<u64> {
        self.block_bytes
    }

    /// Returns the format of the file.
    pub fn format(&self) -> FormatId {
        self.format
    }

    /// Counts requests and chunks.
    ///
    /// # Errors
    /// A sentence.
    pub fn survey(&self) -> Outcome<Survey> {
        // Contents do not matter here, so one pass is enough.
        let requests = self.pass("counting", false);
        requests.and_then(survey).map_err(|error| explain(&error, self.file))
    }

    /// Returns the requests; `what` names the pass for people.
    ///
    /// # Errors
    /// The trace's.
    pub fn requests(&self, what: impl Into<Cow<'static, str>>) -> TraceResult<ChunkRequests> {
        self.pass(what, true)
    }

    /// Returns the facts of the trace, after `requests` have ended.
    pub fn facts(&self, requests: ChunkRequests) -> TraceFacts {
        let content = requests.provenance.map(|provenance| match self.format {
            // Content of either kind is written in it, and it has no place for a label.
            FormatId::Austere => "unlabelled",
            _ => trace::provenance_name(provenance),
        });
        // The reader tells its counts at its drop.
        drop(requests);
        TraceFacts {
            name: self.file.trace.display().to_string(),
            content: content.map(str::to_owned),
            lines_skipped: self.watch.skipped(),
            back_steps: self.watch.back_steps(),
            seconds: None,
        }
    }

    /// Returns the sentence of an error.
    pub fn explain(&self, error: &TraceError) -> Failure {
        explain(error, self.file)
    }

    fn pass(&self, what: impl Into<Cow<'static, str>>, with_content: bool) -> TraceResult<ChunkRequests> {
        let chunk_bytes = self.chunk_bytes;
        let inner = if self.block_bytes.is_some_and(|bytes| bytes != u64::from(chunk_bytes)) {
            let unknown = match self.unknown {
                UnknownArg::Unique => Unknown::Unique,
                UnknownArg::Zero => Unknown::Zero,
            };
            let mut rechunker = Rechunker::new(RechunkOptions { chunk_bytes, unknown, initial: Initial::FirstRead })?;
            Inner::Rechunked(Box::new(match with_content {
                true => {
                    rechunker.learn(self.records("first pass over the content")?)?;
                    rechunker.replay(self.records(what)?)
                }
                false => rechunker.outline(self.records(what)?),
            }))
        } else {
            Inner::Plain(Box::new(chunks(self.records(what)?, chunk_bytes)?))
        };
        Ok(ChunkRequests { inner, provenance: None })
    }

    /// Returns the records themselves, with requested content; `what` names the pass for people.
    ///
    /// # Errors
    /// The trace's.
    pub fn records(&self, what: impl Into<Cow<'static, str>>) -> TraceResult<Records> {
        let is_bare = matches!(self.format, FormatId::BlockIds | FormatId::ArcLis);
        let unit = if is_bare { Some(u64::from(self.chunk_bytes)) } else { None };
        let reader = trace::open(&input_args(self.file, unit), Use::Replay, self.watch)?;
        let reading = self.watch.reading(reader, what);
        let Some(content) = self.file.content else { return Ok(Records::Read(Box::new(reading))) };
        let options = synthetic(content, Some(self.chunk_bytes));
        Ok(Records::Made(Box::new(with_sizes(with_content(reading, options)?, options.compress))))
    }
}

fn explain(error: &TraceError, file: &TraceFile) -> Failure {
    trace::failure(error, Some(&file.trace), Some(&file.trace))
}

fn look(file: &TraceFile, watch: &Watch) -> TraceResult<Look> {
    let reader = trace::open(&input_args(file, None), Use::Replay, watch)?;
    let format = reader.format();
    for record in watch.reading(reader, "looking") {
        let record = record?;
        if record.is_data() {
            return Ok(Look { format, block_bytes: record.content.map(|_| record.len_bytes) });
        }
    }
    Ok(Look { format, block_bytes: None })
}

fn input_args(file: &TraceFile, unit: Option<u64>) -> InputArgs {
    InputArgs { file: file.trace.clone(), how: file.how, unit: file.unit.or(unit), skip_bad: file.skip_bad }
}

/// Records of a trace, from [`Source::records`].
pub enum Records {
    /// As they are read.
    Read(Box<Reading>),
    /// With made-up content.
    Made(Box<dyn Iterator<Item = TraceResult<Record>>>),
}

impl Iterator for Records {
    type Item = TraceResult<Record>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Records::Read(records) => records.next(),
            Records::Made(records) => records.next(),
        }
    }
}

enum Inner {
    Plain(Box<Chunks<Records>>),
    Rechunked(Box<Rechunked<Records>>),
}

/// The requests of one pass.
pub struct ChunkRequests {
    inner: Inner,
    provenance: Option<Provenance>,
}

impl Iterator for ChunkRequests {
    type Item = TraceResult<ChunkRequest>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.inner {
            Inner::Plain(requests) => requests.next(),
            Inner::Rechunked(requests) => requests.next(),
        };
        if let Some(Ok(ChunkRequest { content: Some(content), .. })) = &next {
            self.provenance = self.provenance.max(Some(content.provenance));
        }
        next
    }
}
