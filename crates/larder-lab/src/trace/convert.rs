//! `larder-lab trace convert`: a trace in another format or chunking, with made-up content, or in
//! part.
//!
//! In this order: missing content is made up; then the trace is chunked; then the part is taken. So
//! a part has the same content as in the whole.
//!
//! Invariants: content is re-chunked by the two passes of `larder_trace::rechunk`, over the whole
//! trace.
//!
//! It does not change times or tags.

use crate::args::{ContentArg, ConvertArgs, UnknownArg};
use larder::{
    error::{Failure, Outcome},
    trace::out::OutFile,
};
use larder_trace::{
    Compressibility, Initial, RechunkOptions, Rechunker, Record, SyntheticOptions, TraceError, TraceResult, Unknown,
    chunks, with_content, with_sizes,
};
use std::path::Path;

use super::{
    failure,
    opening::{Use, open},
    watch::Watch,
    written::{self, Lines},
};

type ConvertedRecords = Box<dyn Iterator<Item = TraceResult<Record>>>;

/// Runs the command.
///
/// # Errors
/// One sentence; then nothing was written.
pub fn run(args: &ConvertArgs) -> Outcome {
    let watch = Watch::new()?;
    let out = OutFile::of(&args.output)?;
    let path = out.path().to_owned();
    let explain = |error: &TraceError| explain(error, args, &path);
    let lines = if args.chunk.is_some() { Lines::Records } else { Lines::Requests };
    let written = match records(args, &watch) {
        Ok(records) => written::write(part(records, args.from, args.limit), args.to, lines, out, explain),
        Err(error) => Err(explain(&error)),
    };
    let lines_skipped = watch.finish();
    let mut report = written?;
    report.lines_skipped = lines_skipped;
    report.seed = args.content.map(|content| synthetic(content, None).seed);
    report.say(args.json)
}

/// Returns the failure of a writer or a chunker, with the option that provides the missing input.
fn explain(error: &TraceError, args: &ConvertArgs, output: &Path) -> Failure {
    match failure(error, Some(&args.input.file), Some(output)) {
        Failure::Failed(text) if args.content.is_none() && text.contains("has no content") => {
            Failure::Failed(format!("{text}; --content makes it up"))
        }
        plain => plain,
    }
}

/// Returns all requested records, before a part of them is taken.
fn records(args: &ConvertArgs, watch: &Watch) -> TraceResult<ConvertedRecords> {
    let Some(chunk_bytes) = args.chunk else { return source(args, watch, "converting") };
    if !has_content(args, watch)? {
        let chunks = chunks(source(args, watch, "converting")?, chunk_bytes)?;
        return Ok(Box::new(chunks.map(move |request| Ok(request?.to_record(chunk_bytes)))));
    }
    let unknown = match args.unknown {
        UnknownArg::Unique => Unknown::Unique,
        UnknownArg::Zero => Unknown::Zero,
    };
    let mut rechunker = Rechunker::new(RechunkOptions { chunk_bytes, unknown, initial: Initial::FirstRead })?;
    rechunker.learn(source(args, watch, "first pass")?)?;
    let chunks = rechunker.replay(source(args, watch, "second pass")?);
    Ok(Box::new(chunks.map(move |request| Ok(request?.to_record(chunk_bytes)))))
}

/// Returns the trace from its beginning, with any made-up content.
fn source(args: &ConvertArgs, watch: &Watch, what: &'static str) -> TraceResult<ConvertedRecords> {
    // Chunks are made in two passes, from blocks of one size.
    let what_for = if args.chunk.is_some() { Use::Replay } else { Use::Once };
    let records = watch.reading(open(&args.input, what_for, watch)?, what);
    let Some(content) = args.content else { return Ok(Box::new(records)) };
    let options = synthetic(content, args.chunk);
    Ok(Box::new(with_sizes(with_content(records, options)?, options.compress)))
}

/// Returns the options of `--content`.
///
/// A share of duplicates is one of chunks, so content is made in chunks.
pub(crate) fn synthetic(content: ContentArg, chunk: Option<u32>) -> SyntheticOptions {
    let base = SyntheticOptions::default();
    let seed = content.seed.unwrap_or(base.seed);
    SyntheticOptions {
        block_bytes: content.block_bytes.or(chunk).unwrap_or(base.block_bytes),
        duplication: content.dup.unwrap_or(base.duplication),
        compress: Compressibility {
            mean: content.compress.unwrap_or(base.compress.mean),
            variance: content.variance.unwrap_or(base.compress.variance),
            seed,
        },
        seed,
    }
}

/// Returns whether the first read or write has content.
fn has_content(args: &ConvertArgs, watch: &Watch) -> TraceResult<bool> {
    for record in source(args, watch, "looking")? {
        let record = record?;
        if record.is_data() {
            return Ok(record.content.is_some());
        }
    }
    Ok(false)
}

/// Returns the requests from number `from` (the first is 1) on, at most `limit` of them.
fn part(
    records: impl Iterator<Item = TraceResult<Record>>,
    from: u64,
    limit: Option<u64>,
) -> impl Iterator<Item = TraceResult<Record>> {
    let end = limit.and_then(|limit| from.checked_add(limit)).unwrap_or(u64::MAX);
    let mut last = None;
    let mut number = 0;
    records
        .map_while(move |record| {
            if let Ok(record) = &record
                && last.replace(record.request) != Some(record.request)
            {
                number += 1;
            }
            (number < end).then_some((number, record))
        })
        .filter(move |(number, record)| record.is_err() || *number >= from)
        .map(|(_, record)| record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_trace::Op;

    #[test]
    fn a_part_is_counted_in_requests() {
        let record = |request| Ok(Record::new(request, Op::Read, 0, 4096));
        let numbers = |from, limit| -> Vec<u64> {
            let records = [7, 7, 3, 9, 9, 9, 1].map(record);
            part(records.into_iter(), from, limit).map(|record| record.expect("a record").request).collect()
        };
        assert_eq!(numbers(1, None), [7, 7, 3, 9, 9, 9, 1]);
        assert_eq!(numbers(2, Some(2)), [3, 9, 9, 9]);
        assert_eq!(numbers(4, Some(9)), [1]);
        assert_eq!(numbers(5, None), [0; 0]);
        assert_eq!(numbers(2, Some(u64::MAX)), [3, 9, 9, 9, 1]);
    }
}
