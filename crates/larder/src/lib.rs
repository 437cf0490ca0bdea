//! The command line `larder`: composes devices, the engine and the servers.
//!
//! The program is a thin shell around it, so that its parsers can be fuzzed. `larder-lab` takes its
//! words, sizes, errors and signals from here, and opens caches and origins by it.
//!
//! Invariants: standard output carries the requested text alone; progress and complaints go to
//! standard error, a complaint as one sentence. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a
//! repair that cost data.
//!
//! It leaves caching and serving to the crates below.

mod account;
mod answers;
pub mod args;
mod asking;
mod bare;
pub mod client;
pub mod config_file;
pub mod control;
mod create;
mod detach;
mod dump;
mod ending;
pub mod error;
mod export_uri;
pub mod flash;
mod flush;
#[cfg(test)]
mod fuzz_seeds;
mod held;
mod holder;
mod laboratory;
mod lasting;
mod later;
mod lines;
mod memory;
mod opening;
pub mod origin;
pub mod output;
mod readings;
mod reload;
mod run_dir;
mod serve;
mod serving;
mod set;
pub mod signals;
pub mod size;
pub mod state_dir;
mod state_files;
pub mod state_record;
pub mod state_trust;
mod status;
mod steps;
pub mod trace;
mod verify;
pub mod volume;
mod waiting;

use args::Command;
pub use create::refuse_flash_as_origin;
use error::Outcome;
pub use lasting::refuse_standing;
use reload::OptionFile;
use std::{ffi::OsString, process::ExitCode};

/// Runs the command of this process's arguments, and returns its exit code.
pub fn main() -> ExitCode {
    run_program("larder", run)
}

/// Runs a program of this name over this process's arguments, and returns its exit code.
pub fn run_program(name: &'static str, run: impl FnOnce(Vec<OsString>) -> Outcome) -> ExitCode {
    output::name_program(name);
    // Before the first thread.
    signals::unblock();
    signals::outlive_file_limits();
    let done = run(std::env::args_os().collect());
    lines::end();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(sentence) = failure.sentence() {
                output::complain(&sentence);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: Vec<OsString>) -> Outcome {
    laboratory::take_over(&arguments)?;
    let Some((cli, matches)) = args::parse(arguments.clone())? else { return Ok(()) };
    match cli.command {
        Command::Create(options) => create::run(&options),
        Command::Serve(options) => {
            let (options, file) = match options.config.clone() {
                None => (*options, None),
                Some(path) => {
                    let (options, file) = OptionFile::read(path, arguments, matches)?;
                    (options, Some(file))
                }
            };
            serve::run(&options, file)
        }
        Command::Status(options) => status::run(&options),
        Command::Flush(options) => flush::run(&options),
        Command::Set(options) => set::run(&options),
        Command::Detach(options) => detach::run(&options),
        Command::Verify(options) => verify::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Trace(options) => trace::run(&options.command),
    }
}
