//! The reason for an early end of a command: a sentence for people, and its exit code.
//!
//! Invariants: the text is one sentence on one line, names the thing, and says how it should be.
//!
//! It leaves printing to `main`.

use larder_device::{IoError, IoErrorKind};
use larder_engine::EngineError;
use std::{fmt, path::Path};

/// Exit code of a command that failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit code of wrong usage.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a repair that came to its end, at the cost of data.
pub const EXIT_DATA_LOST: u8 = 3;

/// The failure of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The usage was right, but the work failed.
    Failed(String),
    /// The usage was wrong.
    Usage(String),
    /// Standard output has it all already.
    Reported,
    /// The work is done, at the cost of data; standard output has it all already.
    DataLost,
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Returns a failure with this sentence.
    pub fn failed(sentence: impl fmt::Display) -> Failure {
        Failure::Failed(sentence.to_string())
    }

    /// Returns the failure for an engine's error about the flash at `flash`.
    pub fn engine(flash: &Path, error: &EngineError) -> Failure {
        match error {
            // These speak of the origin, by its name.
            EngineError::WrongOrigin(sentence) | EngineError::OriginChanged(sentence) => Failure::failed(sentence),
            EngineError::Origin { .. } => Failure::failed(error),
            EngineError::Io(error) | EngineError::Flash(error) if error.kind == IoErrorKind::NoSpace => {
                Failure::failed(format_args!("{}: {error}: make room on its file system", flash.display()))
            }
            EngineError::Io(error) | EngineError::Flash(error) if error.kind == IoErrorKind::Quota => {
                Failure::failed(format_args!("{}: {error}: raise the quota, or free some of it", flash.display()))
            }
            error => Failure::failed(format_args!("{}: {error}", flash.display())),
        }
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Failed(_) | Failure::Reported => EXIT_FAILED,
            Failure::Usage(_) => EXIT_USAGE,
            Failure::DataLost => EXIT_DATA_LOST,
        }
    }

    /// Returns the sentence, on one line.
    pub fn sentence(&self) -> Option<String> {
        match self {
            Failure::Failed(text) | Failure::Usage(text) => {
                let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
                Some(without_error_numbers(line.trim_end_matches('.')))
            }
            Failure::Reported | Failure::DataLost => None,
        }
    }
}

/// Removes the numbers that the standard library adds to the system's words: " (os error 28)".
fn without_error_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.split_once(')').map_or("", |(_, after)| after));
    std::iter::once(first).chain(rest).collect()
}

/// Returns the system's words for a device error if it has some, else the error's own.
pub fn reason(error: &IoError) -> String {
    match (&error.detail, error.errno) {
        (Some(detail), _) => detail.to_string(),
        (None, Some(errno)) => system_reason(&std::io::Error::from_raw_os_error(errno)),
        (None, None) => error.to_string(),
    }
}

/// Returns an error of the system without its number: "No such file or directory".
pub fn system_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_one_line_without_a_full_stop() {
        let failure = Failure::failed("Cannot serve\n  at x: taken.");
        assert_eq!(failure.sentence().as_deref(), Some("Cannot serve at x: taken"));
        let numbered = Failure::failed("it failed (gone (os error 5)): x (os error 28)");
        assert_eq!(numbered.sentence().as_deref(), Some("it failed (gone): x"));
        assert_eq!((failure.exit_code(), Failure::Usage(String::new()).exit_code()), (1, 2));
        assert_eq!(system_reason(&std::io::Error::from_raw_os_error(libc::ENOENT)), "no such file or directory");
    }
}
