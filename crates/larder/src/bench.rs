//! `larder bench`: a content trace against a device: a cache in this process, or whatever is served over NBD.
//!
//! A trace has fingerprints and no bytes. So bytes are made of each fingerprint, the same for the same one, that compress as
//! well as the trace says (`content.rs`); the device behind the cache gets what the trace reads before it writes it
//! (`prepare.rs`); and then the requests are made and each read is compared with what was written last (`replay.rs`).
//!
//! Invariants: standard output carries the report alone. Requests that overlap are made one after the other, in the trace's
//! order, so that each read has one right answer.
//!
//! What it does not do: choose what to measure; and time anything but the requests.

pub(crate) mod blocks;
pub(crate) mod content;
mod counts;
mod pace;
mod prepare;
mod replay;
mod report;
pub(crate) mod requests;

use crate::{args::BenchCommand, error::Outcome};

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
