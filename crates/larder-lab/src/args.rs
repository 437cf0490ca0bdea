//! The command line of `larder-lab`: commands, options, their help and examples.
//!
//! Invariants: a wrong argument is one sentence that names it and the allowed values.
//!
//! It does not look at any file.

mod bench;
pub(crate) mod drives;
mod paper;
mod sim;
mod trace;
mod values;

pub use bench::{BenchArgs, BenchCommand, BenchPrepareArgs, BenchReplayArgs, BenchTrace, PaceArg};
use clap::{Parser, Subcommand};
pub use larder::args::{ModeArg, OutputArgs, Switch};
use larder::{args::Missing, error::Outcome};
pub use paper::{NamedTrace, PaperArgs, PaperCommand, PaperRunArgs};
pub use sim::{
    CacheArgs, CompareArgs, DriveArgs, ReportArgs, RunArgs, SimArgs, SimCommand, SimPaceArg, SweepArgs, TimeArgs,
    TraceFile, TraceInput,
};
use std::ffi::OsString;
pub use trace::{
    ContentArg, ConvertArgs, FormatArgs, GenerateArgs, InfoArgs, InputArgs, ShapeArgs, ToFormat, TraceArgs,
    TraceCommand, UnknownArg,
};
pub use values::request_count;

const EXAMPLES: &str = "\
Examples:
  larder-lab trace info disk.trace.zst
  larder-lab sim compare --trace disk.trace.zst --flash 1G --plot designs.svg
  larder-lab paper list
  larder-lab bench replay --trace disk.trace.zst --flash cache

`larder` makes and serves caches, and records traces.

Sizes are binary: 8K is 8192 bytes. Exit codes: 0 done, 1 failed, 2 wrong usage.";

/// The sentences about a command that is missing.
const MISSING: Missing = &[
    ("trace", "say what to do: info, convert or generate (`larder-lab trace --help` explains)"),
    (
        "sim",
        "say what to do: run, compare, sweep, designs, profiles, ftls or origins (`larder-lab sim --help` explains)",
    ),
    ("", "say what to do: trace, sim, paper or bench (`larder-lab --help` explains)"),
];

/// The laboratory beside Larder: it replays traces, runs the papers' experiments, measures caches
#[derive(Debug, Parser)]
#[command(name = "larder-lab", version, after_help = EXAMPLES, subcommand_required = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look at block traces, convert and make them
    Trace(TraceArgs),
    /// Replay block traces through caches of any design, and compare them
    Sim(SimArgs),
    /// Run the papers' experiments again
    Paper(PaperArgs),
    /// Replay content traces against caches and served devices
    Bench(BenchArgs),
}

/// Reads a command line; `None` if it asked for help or the version, which were printed.
///
/// # Errors
/// The fault of the command line.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Outcome<Option<Cli>> {
    Ok(larder::args::parse_as(arguments, MISSING)?.map(|(cli, _)| cli))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_missing_command_is_one_sentence_that_names_the_commands() {
        for (line, words) in [
            ("larder-lab", "trace, sim, paper or bench"),
            ("larder-lab trace", "info, convert or generate"),
            ("larder-lab sim", "designs, profiles, ftls or origins"),
        ] {
            let failure = parse(line.split(' ').map(OsString::from)).expect_err(line);
            let sentence = failure.sentence().expect("a sentence");
            assert!(sentence.starts_with("say what to do: ") && sentence.contains(words), "{line}: {sentence}");
        }
    }
}
