//! `larder-lab bench`: a content trace against a device: a cache in here, or an export over NBD.
//!
//! A trace has fingerprints and no bytes. So each fingerprint is expanded to bytes, always the same
//! ones, that compress as well as the trace says (`larder-papers/src/content.rs`). The device
//! behind the cache gets the content that the trace reads before it writes it (`prepare.rs`). Then
//! the requests are made, and each read is compared with the last write (`replay.rs`).
//!
//! Invariants: standard output carries the report alone. Requests that overlap are made one after
//! the other, in the trace's order, so that each read has one right answer.
//!
//! It does not choose the trace, or time anything but the requests.

mod counts;
mod pace;
mod prepare;
mod replay;
mod report;
mod requests;

use crate::args::BenchCommand;
use larder::error::Outcome;

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Prepare(args) => prepare::run(args),
        BenchCommand::Replay(args) => replay::run(args),
    }
}
