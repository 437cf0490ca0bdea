//! Reads a trace of any format as a stream of [`Record`]s.
//!
//! Invariants: memory does not grow with the file. Records come in the file's order; a time that
//! steps back is counted and kept. A bad line or record ends the stream. Its error has file, line
//! (or byte) and expectation. With `skip_bad` the reader counts it, passes none of it on, and
//! continues. A failure that stops reading (a damaged compressed stream, an I/O error) always ends
//! the stream.
//!
//! It does not interpret the records.

use std::{io::Read, path::Path};

use crate::{
    block_size::BlockSize,
    detect::{self, HEAD_BYTES},
    error::{Complaint, Position, TraceError, TraceErrorKind, TraceResult},
    foreign,
    formats::{BinaryFormat, FormatId, LineFormat, Parser, ParserOptions, blkparse::choose_action, columns::Columns},
    input::{Input, LINE_BYTES_MAX, Line, Packing},
    record::Record,
    sink::{BackSteps, Sink},
};

/// Records of a batch: they stay in the nearest cache.
const BATCH_RECORDS: usize = 128;
/// The largest block that a block number may stand for, in bytes.
const BLOCK_BYTES_MAX: u32 = 1 << 20;

/// The options of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReaderOptions {
    /// True if the reader counts bad lines and continues.
    pub skip_bad: bool,
    /// The size of the device: a request past it is bad.
    pub device_bytes: Option<u64>,
    /// The bytes of a block number, for formats that count blocks. The default is 4096 for
    /// `arc-lis` and `block-ids`, 512 for `csv` and `oracle-general`.
    pub block_bytes: Option<u32>,
    /// The action of `blkparse` that is a request: `b'Q'`, `b'D'` or `b'C'`. The default is the
    /// first of these that the file has.
    pub action: Option<u8>,
    /// The meaning of each column, for [`FormatId::Columns`].
    pub columns: Option<Columns>,
    /// True if content of another block size, or not at a multiple of it, is a bad line. Replay and
    /// re-chunking need that. Else the reader keeps it, and [`TraceReader::other_block_size`]
    /// returns it.
    pub one_block_size: bool,
}

/// A trace that is being read.
pub struct TraceReader {
    name: Box<str>,
    format: FormatId,
    input: Input,
    parser: Parser,
    sink: Sink,
    /// Records of the batch that were passed on.
    passed: usize,
    skip_bad: bool,
    skipped: Skipped,
    block_size: BlockSize,
    one_block_size: bool,
    /// The first block of another size, or out of place, that the reader kept.
    other_block_size: Option<TraceError>,
    /// The end of the stream, which follows the batch.
    end: Option<Result<(), TraceError>>,
}

/// The input that `skip_bad` passed over.
#[derive(Default)]
struct Skipped {
    count: u64,
    first: Option<TraceError>,
}

impl Skipped {
    fn add(&mut self, error: TraceError) {
        self.count += 1;
        self.first.get_or_insert(error);
    }

    /// Ends the reading at bytes that cannot be read. If bad input may be skipped, a packed file
    /// that was cut or that other bytes follow just ends there.
    fn cut(&mut self, skip_bad: bool, error: TraceError) -> TraceResult<()> {
        if skip_bad && matches!(error.kind(), TraceErrorKind::Truncated | TraceErrorKind::Behind) {
            self.add(error);
            return Ok(());
        }
        Err(error)
    }
}

/// Opens a trace. With `None` as its format, the file itself has to name the format.
pub fn open(path: &Path, format: Option<FormatId>, options: ReaderOptions) -> TraceResult<TraceReader> {
    TraceReader::new(Input::open(path)?, format, options)
}

/// Finds the format of a file that names it itself.
pub fn detect(path: &Path) -> TraceResult<FormatId> {
    let mut input = Input::open(path)?;
    foreign::refuse(&mut input, None)?;
    detect::detect(&mut input)
}

impl TraceReader {
    /// Reads a trace from any source of bytes; `name` stands for it in errors.
    pub fn from_read(
        name: &str,
        source: impl Read + Send + 'static,
        format: Option<FormatId>,
        options: ReaderOptions,
    ) -> TraceResult<TraceReader> {
        TraceReader::new(Input::new(name, Box::new(source), None)?, format, options)
    }

    fn new(mut input: Input, format: Option<FormatId>, options: ReaderOptions) -> TraceResult<TraceReader> {
        if options.block_bytes.is_some_and(|bytes| bytes == 0 || bytes > BLOCK_BYTES_MAX) {
            return Err(TraceError::parameter("expected a block of 1 byte to 1 MiB"));
        }
        if options.action.is_some_and(|action| !b"QDC".contains(&action)) {
            return Err(TraceError::parameter("expected Q, D or C as the action of blkparse that is a request"));
        }
        foreign::refuse(&mut input, format)?;
        let format = match format {
            Some(format) => format,
            None => detect::detect(&mut input)?,
        };
        let action = match (format, options.action) {
            (_, Some(action)) => action,
            (FormatId::Blkparse, None) => choose_action(input.peek_head(HEAD_BYTES)?),
            _ => b'Q',
        };
        if !format.is_binary() {
            foreign::pass_mark(&mut input);
        }
        let of_parser = ParserOptions { block_bytes: options.block_bytes, action, columns: options.columns };
        let parser = Parser::new(format, of_parser)
            .ok_or_else(|| TraceError::parameter("the format columns needs --columns, which names them"))?;
        Ok(TraceReader {
            name: input.name().into(),
            format,
            parser,
            input,
            sink: Sink::new(options.device_bytes),
            passed: 0,
            skip_bad: options.skip_bad,
            skipped: Skipped::default(),
            block_size: BlockSize::default(),
            one_block_size: options.one_block_size,
            other_block_size: None,
            end: None,
        })
    }

    /// Returns the format, given or found.
    pub fn format(&self) -> FormatId {
        self.format
    }

    /// Returns the packing of the file.
    pub fn packing(&self) -> Packing {
        self.input.packing()
    }

    /// Returns the bad lines or records passed over so far.
    pub fn skipped(&self) -> u64 {
        self.skipped.count
    }

    /// Returns the requests of length 0 passed over so far: they move no blocks, and are no errors.
    pub fn empty_requests(&self) -> u64 {
        self.sink.empty
    }

    /// Returns the error of the first of them.
    pub fn first_skipped(&self) -> Option<&TraceError> {
        self.skipped.first.as_ref()
    }

    /// Returns the error of the first block that breaks the first block's size or alignment. It has
    /// the line and the expectation. `None` if `one_block_size` refuses such lines.
    pub fn other_block_size(&self) -> Option<&TraceError> {
        self.other_block_size.as_ref()
    }

    /// Returns the times that stepped back so far.
    pub fn back_steps(&self) -> BackSteps {
        self.sink.clock.back_steps
    }

    /// Returns the bytes of the file read so far (packed, if it is), and its length if it is known.
    pub fn progress_bytes(&self) -> (u64, Option<u64>) {
        self.input.progress()
    }

    /// Returns the next records, up to a hundred or so; empty at the end. Quicker than one at a
    /// time.
    pub fn next_batch(&mut self) -> TraceResult<&[Record]> {
        if self.passed == self.sink.records.len() {
            self.fill()?;
        }
        let from = self.passed;
        self.passed = self.sink.records.len();
        Ok(self.sink.records.get(from..).unwrap_or_default())
    }

    /// Parses the next batch. The batch after an error is empty.
    fn fill(&mut self) -> TraceResult<()> {
        self.sink.records.clear();
        self.passed = 0;
        while self.sink.records.is_empty() && self.end.is_none() {
            let Self { parser, .. } = self;
            // The parser is lent out so that it and the rest can be changed together.
            let mut lent = std::mem::replace(parser, Parser::Content(crate::formats::content::ContentLines));
            let result = match &mut lent {
                Parser::Content(parser) => self.fill_lines(parser),
                Parser::Days(parser) => self.fill_lines(parser),
                Parser::Fiu(parser) => self.fill_lines(parser),
                Parser::Austere(parser) => self.fill_lines(parser),
                Parser::Blkparse(parser) => self.fill_lines(parser),
                Parser::Fio(parser) => self.fill_lines(parser),
                Parser::ArcLis(parser) => self.fill_lines(parser),
                Parser::Ssdsim(parser) => self.fill_lines(parser),
                Parser::Rows(parser) => self.fill_lines(parser),
                Parser::OracleGeneral(parser) => self.fill_records(parser),
                Parser::BlockIds(parser) => self.fill_records(parser),
                Parser::Vscsi1(parser) => self.fill_records(parser),
                Parser::Vscsi2(parser) => self.fill_records(parser),
            };
            self.parser = lent;
            if let Err(error) = result {
                self.end = Some(Err(error));
            }
        }
        // Records parsed before an error are passed on before it.
        if !self.sink.records.is_empty() {
            return Ok(());
        }
        match self.end.replace(Ok(())) {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn fill_lines(&mut self, parser: &mut impl LineFormat) -> TraceResult<()> {
        let Self { name, input, sink, skip_bad, skipped, .. } = self;
        while sink.records.len() < BATCH_RECORDS {
            let line = match input.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => {
                    self.end = Some(Ok(()));
                    return Ok(());
                }
                Err(error) => {
                    self.end = Some(skipped.cut(*skip_bad, error));
                    return Ok(());
                }
            };
            let before = sink.records.len();
            let error = match take_line(&line, parser, sink) {
                Err(complaint) => complaint_at(complaint, &line, name),
                Ok(()) => {
                    let taken = sink.records.get(before..).unwrap_or_default();
                    match self.block_size.check(taken, name, line.number) {
                        None => continue,
                        Some(error) if self.one_block_size => error,
                        Some(error) => {
                            self.other_block_size.get_or_insert(error);
                            continue;
                        }
                    }
                }
            };
            sink.records.truncate(before);
            if !*skip_bad {
                return Err(error);
            }
            skipped.add(error);
        }
        Ok(())
    }

    fn fill_records<P: BinaryFormat>(&mut self, parser: &mut P) -> TraceResult<()> {
        let Self { name, input, sink, skip_bad, skipped, .. } = self;
        let at = input.taken_bytes();
        let whole = match input.peek_records(P::RECORD_BYTES) {
            Ok(whole) => whole,
            Err(error) => {
                self.end = Some(skipped.cut(*skip_bad, error));
                return Ok(());
            }
        };
        let mut taken = 0;
        for bytes in whole.chunks_exact(P::RECORD_BYTES).take(BATCH_RECORDS) {
            if let Err(complaint) = parser.record(bytes, sink) {
                let error = complaint.at(name, Position::Byte(at + taken as u64), bytes);
                if !*skip_bad {
                    return Err(error);
                }
                skipped.add(error);
            }
            taken += P::RECORD_BYTES;
        }
        input.take(taken);
        if taken > 0 {
            return Ok(());
        }
        self.end = Some(Ok(()));
        if input.left() > 0 {
            let message = format!(
                "the file ends in the middle of a record: expected {} bytes, found {}",
                P::RECORD_BYTES,
                input.left()
            );
            let error = TraceError::new(TraceErrorKind::Truncated, name, Position::Byte(at), message);
            if !*skip_bad {
                return Err(error);
            }
            skipped.add(error);
        }
        Ok(())
    }
}

/// Takes a line that is neither empty nor a comment.
#[inline]
fn take_line<P: LineFormat>(line: &Line<'_>, parser: &mut P, sink: &mut Sink) -> Result<(), Complaint> {
    if line.is_too_long {
        return Err(Complaint { kind: TraceErrorKind::BadRecord, expected: "a line of at most 128 KiB" });
    }
    match line.bytes.trim_ascii_start() {
        [] => return Ok(()),
        [b'#', ..] if P::HAS_COMMENTS => return Ok(()),
        _ => {}
    }
    parser.line(line.bytes, sink)
}

/// Makes the error of a line. A line without its end was cut.
#[cold]
fn complaint_at(complaint: Complaint, line: &Line<'_>, name: &str) -> TraceError {
    let position = Position::Line(line.number);
    if line.is_ended || complaint.kind != TraceErrorKind::BadRecord {
        return complaint.at(name, position, line.bytes);
    }
    let message = format!("the file ends in the middle of a line: expected {}", complaint.expected);
    TraceError::new(TraceErrorKind::Truncated, name, position, message)
}

impl Iterator for TraceReader {
    type Item = TraceResult<Record>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.passed == self.sink.records.len()
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        let record = *self.sink.records.get(self.passed)?;
        self.passed += 1;
        Some(Ok(record))
    }
}

const _: () = assert!(LINE_BYTES_MAX == 128 << 10, "the complaint about long lines says 128 KiB");
