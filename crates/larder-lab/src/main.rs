//! The program `larder-lab`: block traces, their replay, the papers' experiments, measurements.
//!
//! Role: `larder` serves data, and this is the laboratory beside it. Both have the same words,
//! sizes, errors and signals, and open caches in the same way: the library `larder` has them.
//!
//! Invariants: standard output carries the requested text alone; progress and complaints go to
//! standard error, a complaint as one sentence. Exit codes: 0 done, 1 failed, 2 wrong usage.

mod args;
mod bench;
mod paper;
mod sim;
mod trace;

use args::Command;
use larder::error::Outcome;
use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    larder::run_program("larder-lab", run)
}

fn run(arguments: Vec<OsString>) -> Outcome {
    let Some(cli) = args::parse(arguments)? else { return Ok(()) };
    match cli.command {
        Command::Trace(options) => trace::run(&options.command),
        Command::Sim(options) => sim::run(&options.command),
        Command::Paper(options) => paper::run(&options.command),
        Command::Bench(options) => bench::run(&options.command),
    }
}
