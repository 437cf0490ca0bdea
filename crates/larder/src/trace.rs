//! `larder trace record`: recording a block trace.
//!
//! Invariants: a file is written under a temporary name and takes its own when it is whole
//! ([`out`]).
//!
//! It leaves all other work on traces to `larder-lab`.

mod failure;
mod log;
pub mod out;
mod record;
mod recorder;

use crate::{args::TraceCommand, error::Outcome};
pub use failure::failure;

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(command: &TraceCommand) -> Outcome {
    match command {
        TraceCommand::Record(args) => record::run(args),
    }
}
