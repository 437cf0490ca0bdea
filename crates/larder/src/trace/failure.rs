//! The sentence of an error of a trace.
//!
//! It does not write it.

use crate::error::Failure;
use larder_trace::{TraceError, TraceErrorKind};
use std::path::Path;

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
