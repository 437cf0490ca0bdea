//! A trace that is written in a format, and the report of it.
//!
//! Invariants: the label of made-up content is in the file, or a note says that the format has no
//! place for it. So it is with writes.
//!
//! It leaves the file's name to [`OutFile`].

use super::opening::{provenance_name, provenance_words};
use crate::args::ToFormat;
use larder::{
    error::{Failure, Outcome},
    output,
    size::{count, human},
    trace::out::OutFile,
};
use larder_trace::{
    AustereWriter, ContentWriter, CsvWriter, Op, OracleGeneralWriter, Provenance, Record, TraceError, TraceResult,
    WriteTotals, convert, whole_requests,
};
use serde::Serialize;

impl ToFormat {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ToFormat::Content => "content",
            ToFormat::Austere => "austere",
            ToFormat::Csv => "csv",
            ToFormat::OracleGeneral => "oracle-general",
        }
    }

    /// Returns the ending of such a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            ToFormat::Content => "trace.zst",
            ToFormat::Austere => "txt",
            ToFormat::Csv => "csv",
            ToFormat::OracleGeneral => "oracleGeneral",
        }
    }
}

/// The report of a written trace.
#[derive(Debug, Serialize)]
pub struct WrittenReport {
    /// The file.
    pub output: String,
    /// Its format.
    pub format: &'static str,
    /// Its length.
    pub bytes: u64,
    /// Requests in it.
    pub requests: u64,
    /// Records in it: blocks, trims, flushes.
    pub records: u64,
    /// Trims and flushes without a place in the format.
    pub records_dropped: u64,
    /// Writes that the format, which has no operations, has as reads.
    pub records_written_as_reads: u64,
    /// Bad lines that were passed over.
    pub lines_skipped: u64,
    /// `recorded`, `sizes_made_up` or `made_up`; none without content.
    pub content: Option<&'static str>,
    /// The seed of a generated trace.
    pub seed: Option<u64>,
    #[serde(skip)]
    provenance: Option<Provenance>,
}

/// The unit of a line, in a format without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// A request, whole.
    Requests,
    /// A record: a chunk of a request.
    Records,
}

/// Writes all records to `out` and gives it its name.
///
/// # Errors
/// The file's own errors, and those of the trace as `explain` words them; then the file is gone.
pub fn write(
    records: impl Iterator<Item = TraceResult<Record>>,
    to: ToFormat,
    lines: Lines,
    out: OutFile,
    explain: impl Fn(&TraceError) -> Failure,
) -> Outcome<WrittenReport> {
    let (mut requests, mut writes) = (0, 0);
    let mut last = None;
    let mut provenance: Option<Provenance> = None;
    let records = records.inspect(|record| {
        let Ok(record) = record else { return };
        requests += u64::from(last.replace(record.request) != Some(record.request));
        writes += u64::from(record.op == Op::Write);
        provenance = provenance.max(record.content.map(|content| content.provenance));
    });
    let WriteTotals { records, dropped } = write_as(records, to, lines, &out).map_err(|error| explain(&error))?;
    if requests == 0 {
        return Err(Failure::failed(format_args!("{} was not written: no request is left", out.path().display())));
    }
    let output = out.path().display().to_string();
    let bytes = out.commit()?;
    Ok(WrittenReport {
        output,
        format: to.name(),
        bytes,
        requests,
        records,
        records_dropped: dropped,
        records_written_as_reads: if to == ToFormat::OracleGeneral { writes } else { 0 },
        lines_skipped: 0,
        content: provenance.map(provenance_name),
        seed: None,
        provenance,
    })
}

fn write_as(
    records: impl Iterator<Item = TraceResult<Record>>,
    to: ToFormat,
    lines: Lines,
    out: &OutFile,
) -> TraceResult<WriteTotals> {
    let file = out.file();
    match to {
        ToFormat::Content => convert(records, ContentWriter::new(file)?),
        ToFormat::Austere => convert(records, AustereWriter::new(file)),
        ToFormat::Csv if lines == Lines::Requests => convert(whole_requests(records), CsvWriter::new(file)?),
        ToFormat::Csv => convert(records, CsvWriter::new(file)?),
        ToFormat::OracleGeneral => convert(records, OracleGeneralWriter::new(file)),
    }
}

impl WrittenReport {
    /// Tells people, or a program. A lost label of made-up content, and lost writes, are noted.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn say(&self, json: bool) -> Outcome {
        if self.provenance.is_some_and(|from| from > Provenance::Recorded) && self.format == ToFormat::Austere.name() {
            output::note(&format!(
                "note: the content in {} is {}, and the format {} cannot say so",
                self.output,
                self.provenance.map_or("", provenance_words),
                self.format
            ));
        }
        if self.records_written_as_reads > 0 {
            output::note(&format!(
                "note: {} of {} records in {} are writes, and are reads to every reader: the format {} has no operations",
                count(self.records_written_as_reads),
                count(self.records),
                self.output,
                self.format
            ));
        }
        if json {
            return output::say_json(self);
        }
        let has_content = [ToFormat::Content.name(), ToFormat::Austere.name()].contains(&self.format);
        let mut line = format!(
            "{}: {} requests, {} records, {} in the format {}; content: {}",
            self.output,
            count(self.requests),
            count(self.records),
            human(self.bytes),
            self.format,
            self.provenance.filter(|_| has_content).map_or("none", provenance_words)
        );
        if let Some(seed) = self.seed {
            line.push_str(&format!("; seed {seed}"));
        }
        if self.records_dropped > 0 {
            let dropped = count(self.records_dropped);
            line.push_str(&format!("; {dropped} trims and flushes are left out, for the format has no place for them"));
        }
        output::say(&(line + "\n"))
    }
}
