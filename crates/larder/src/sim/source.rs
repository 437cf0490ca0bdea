//! The trace of a replay: opened, re-chunked, and read as often as is needed.
//!
//! Content that is missing is made up where that is asked for; then the trace is chunked, by the two passes of the papers
//! where its content has another granularity. Of a trace of bare block ids each id is a chunk, whatever the size of a
//! chunk, unless `--unit` says what an id stands for.
//!
//! Invariants: each pass gives the same requests.
//!
//! What it does not do: replay.

use crate::{
    args::{InputArgs, TraceFile, TraceInput, UnknownArg},
    error::{Failure, Outcome},
    trace::{
        self, Use,
        convert::synthetic,
        watch::{Reading, Watch},
    },
};
use larder_sim::{
    report::TraceFacts,
    survey::{Survey, survey},
};
use larder_trace::{
    ChunkRequest, Chunks, FormatId, Initial, Provenance, RechunkOptions, Rechunked, Rechunker, Record, TraceError,
    TraceResult, Unknown, chunks, with_content, with_sizes,
};
use std::borrow::Cow;

/// The chunk of a trace that does not have one.
const CHUNK_BYTES: u32 = 4096;

/// A trace that can be replayed in chunks of one size.
pub struct Source<'a> {
    file: &'a TraceFile,
    unknown: UnknownArg,
    watch: &'a Watch,
    format: FormatId,
    chunk_bytes: u32,
    /// Bytes of a block whose content is known, if any is.
    block_bytes: Option<u64>,
}

/// What the first request tells.
struct Look {
    format: FormatId,
    /// Bytes of a block of the content that the trace itself has.
    block_bytes: Option<u64>,
}

impl<'a> Source<'a> {
    /// A trace in chunks of `chunk_bytes`, or in those that it has itself.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(input: &'a TraceInput, chunk_bytes: Option<u32>, watch: &'a Watch) -> Outcome<Source<'a>> {
        Ok(Source { unknown: input.unknown, ..Source::of_file(&input.file, chunk_bytes, watch)? })
    }

    /// The same, where nobody asks what a block was that is never read.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn of_file(file: &'a TraceFile, chunk_bytes: Option<u32>, watch: &'a Watch) -> Outcome<Source<'a>> {
        let look = look(file, watch).map_err(|error| explain(&error, file))?;
        let own = look.block_bytes.and_then(|bytes| u32::try_from(bytes).ok());
        let made = file.content.and_then(|content| content.block_bytes);
        // What is smaller than a chunk may be is put together.
        let chunk_bytes = chunk_bytes.or(own).or(made).unwrap_or(CHUNK_BYTES).max(CHUNK_BYTES);
        let block_bytes = match (look.block_bytes, file.content) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(content)) => Some(u64::from(synthetic(content, Some(chunk_bytes)).block_bytes)),
            (None, None) => None,
        };
        Ok(Source { file, unknown: UnknownArg::Unique, watch, format: look.format, chunk_bytes, block_bytes })
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Bytes of a block whose content is known, if any is.
    pub fn block_bytes(&self) -> Option<u64> {
        self.block_bytes
    }

    /// The format of the file.
    pub fn format(&self) -> FormatId {
        self.format
    }

    /// Counts requests and chunks.
    ///
    /// # Errors
    /// A sentence.
    pub fn survey(&self) -> Outcome<Survey> {
        // What contents are does not matter, so one pass will do.
        let requests = self.pass("counting", false);
        requests.and_then(survey).map_err(|error| explain(&error, self.file))
    }

    /// The requests; `what` is being done with them.
    ///
    /// # Errors
    /// The trace's.
    pub fn requests(&self, what: impl Into<Cow<'static, str>>) -> TraceResult<Requests> {
        self.pass(what, true)
    }

    /// What is known of the trace now that `requests` have come to their end.
    pub fn facts(&self, requests: Requests) -> TraceFacts {
        let content = requests.provenance.map(|provenance| match self.format {
            // It is written with content of either kind, and has no place for a label.
            FormatId::Austere => "unlabelled",
            _ => trace::provenance_name(provenance),
        });
        // The reader tells what it counted when it goes.
        drop(requests);
        TraceFacts {
            name: self.file.trace.display().to_string(),
            content: content.map(str::to_owned),
            lines_skipped: self.watch.skipped(),
            back_steps: self.watch.back_steps(),
            seconds: None,
        }
    }

    /// The sentence of an error.
    pub fn explain(&self, error: &TraceError) -> Failure {
        explain(error, self.file)
    }

    fn pass(&self, what: impl Into<Cow<'static, str>>, with_content: bool) -> TraceResult<Requests> {
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
        Ok(Requests { inner, provenance: None })
    }

    /// The records themselves, with content that was asked for; `what` is being done with them.
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

/// See [`Source::records`].
pub enum Records {
    /// As they are read.
    Read(Box<Reading>),
    /// With content that was made up.
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
pub struct Requests {
    inner: Inner,
    provenance: Option<Provenance>,
}

impl Iterator for Requests {
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
