//! The error of a trace: its kind, the file, the place in the file, and the expectation there.
//!
//! Invariants: `Display` is one sentence that a user can act on. The error is one word wide, so
//! that a `Result` of a record stays small.
//!
//! It does not decide whether the reader goes on. It leaves this to `ReaderOptions::skip_bad` of
//! the reader.

use std::{fmt, io};

/// Characters of a bad line that an error shows.
const SHOWN_BYTES_MAX: usize = 60;

/// The kind of a failure, for callers that act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceErrorKind {
    /// The file cannot be opened, read or written.
    Io,
    /// The file, or the compressed stream in it, ends in the middle of an item.
    Truncated,
    /// Other bytes follow the compressed stream, which is whole.
    Behind,
    /// The compressed stream is damaged.
    Corrupt,
    /// A line or binary record breaks the format.
    BadRecord,
    /// A read, write or trim has no bytes.
    ZeroSize,
    /// A request is longer than any device takes.
    TooLong,
    /// A request reaches past the end of the device, or past the largest address.
    PastEnd,
    /// No format fits the file.
    UnknownFormat,
    /// The trace lacks content that the caller needs, or has it at the wrong granularity.
    Content,
    /// A parameter of a generator, of chunking or of a writer cannot be met.
    Parameter,
}

/// The place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The file as a whole.
    Whole,
    /// A line, from 1.
    Line(u64),
    /// A byte offset after decompression, from 0.
    Byte(u64),
}

/// A failure to read, chunk, generate or write a trace.
#[derive(Debug)]
pub struct TraceError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: TraceErrorKind,
    file: String,
    position: Position,
    message: String,
    source: Option<io::Error>,
}

/// Result of an operation on a trace.
pub type TraceResult<T> = Result<T, TraceError>;

impl TraceError {
    /// Makes an error at `position` of `file` (empty for none); `message` names the expectation.
    pub fn new(kind: TraceErrorKind, file: &str, position: Position, message: impl Into<String>) -> TraceError {
        TraceError(Box::new(Inner { kind, file: file.to_owned(), position, message: message.into(), source: None }))
    }

    /// Makes an error from an error of the operating system.
    pub fn io(file: &str, position: Position, message: impl Into<String>, source: io::Error) -> TraceError {
        let mut error = TraceError::new(TraceErrorKind::Io, file, position, message);
        error.0.source = Some(source);
        error
    }

    /// Makes an error about a parameter that cannot be met.
    pub fn parameter(message: impl Into<String>) -> TraceError {
        TraceError::new(TraceErrorKind::Parameter, "", Position::Whole, message)
    }

    /// Returns the kind, which a caller can match on.
    pub fn kind(&self) -> TraceErrorKind {
        self.0.kind
    }

    /// Returns the file's name, as it was given; empty if no file is concerned.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// Returns the place in the file.
    pub fn position(&self) -> Position {
        self.0.position
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { file, position, message, source, .. } = &*self.0;
        match position {
            _ if file.is_empty() => {}
            Position::Whole => write!(f, "{file}: ")?,
            Position::Line(line) => write!(f, "{file}, line {line}: ")?,
            Position::Byte(byte) => write!(f, "{file}, byte {byte}: ")?,
        }
        match source {
            Some(source) => write!(f, "{message}: {source}"),
            None => write!(f, "{message}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

/// The reason to refuse a line or record, without file and place. It allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub kind: TraceErrorKind,
    pub expected: &'static str,
}

impl Complaint {
    /// The complaint about a read, write or trim of no bytes.
    pub const ZERO_SIZE: Complaint =
        Complaint { kind: TraceErrorKind::ZeroSize, expected: "expected a size above 0, found 0" };

    /// Makes a complaint about a line that breaks the format; `expected` is the right text for it.
    pub const fn expected(expected: &'static str) -> Complaint {
        Complaint { kind: TraceErrorKind::BadRecord, expected }
    }

    /// Adds file and place. The error shows `line` if it is text.
    pub fn at(self, file: &str, position: Position, line: &[u8]) -> TraceError {
        let message = match self.kind {
            TraceErrorKind::BadRecord => format!("expected {}, found {}", self.expected, shown(line)),
            _ => self.expected.to_owned(),
        };
        TraceError::new(self.kind, file, position, message)
    }
}

/// Returns a line as an error shows it: quoted, escaped and cut.
pub(crate) fn shown(line: &[u8]) -> String {
    let head = line.get(..SHOWN_BYTES_MAX).unwrap_or(line);
    let dots = if head.len() < line.len() { "..." } else { "" };
    format!("\"{}{dots}\"", head.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_sentence_with_file_and_line() {
        let error = Complaint::expected("ten columns").at("a.trace", Position::Line(7), b"x\ty");
        assert_eq!(error.to_string(), "a.trace, line 7: expected ten columns, found \"x\\ty\"");
        assert_eq!((error.kind(), error.position()), (TraceErrorKind::BadRecord, Position::Line(7)));
        assert!(error.to_string().len() < 100);
        assert_eq!(size_of::<TraceError>(), size_of::<usize>());
        let long = Complaint::expected("less").at("f", Position::Byte(0), &[b'x'; 1000]).to_string();
        assert!(long.len() < 120 && long.contains("..."), "{long}");
    }
}
