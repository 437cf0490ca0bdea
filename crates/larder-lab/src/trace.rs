//! `larder-lab trace`: describing, converting and making a block trace. One file a command.
//!
//! Invariants: a file is written under a temporary name and takes its own when it is whole
//! ([`larder::trace::out`]). Made-up content is labelled, or a note says that the format has no
//! place for the label.
//!
//! It does not replay a trace.

pub(crate) mod convert;
mod generate;
mod info;
mod opening;
mod pipe;
pub(crate) mod watch;
mod written;

use crate::args::TraceCommand;
use larder::error::Outcome;
pub(crate) use larder::trace::failure;
pub(crate) use opening::{Use, open, provenance_name};

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(command: &TraceCommand) -> Outcome {
    match command {
        TraceCommand::Info(args) => info::run(args),
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Generate(args) => generate::run(args),
    }
}
