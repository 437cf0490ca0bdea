//! `larder trace record`: recording a block trace.
//!
//! Invariants: a file is written under a temporary name and takes its own when it is whole
//! ([`out`]).
//!
//! It leaves all other work on traces to `larder-lab`.

mod log;
pub mod out;
mod record;
mod recorder;

use crate::{
    args::TraceCommand,
    error::{Failure, Outcome},
};
use larder_trace::{TraceError, TraceErrorKind};
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(command: &TraceCommand) -> Outcome {
    match command {
        TraceCommand::Record(args) => record::run(args),
    }
}

/// Returns the sentence of an error.
///
/// An error without a file's name is about `output` after a failed write, else about `input`.
pub fn failure(error: &TraceError, input: Option<&Path>, output: Option<&Path>) -> Failure {
    let of = if error.kind() == TraceErrorKind::Io { output } else { input };
    match of.filter(|_| error.file().is_empty()) {
        Some(path) => Failure::failed(format_args!("{}: {error}", path.display())),
        None => Failure::failed(error),
    }
}
