//! The options of `larder-lab bench`: content traces against devices.
//!
//! It does not open anything.

use super::{TraceFile, values};
use crate::sim::spec;
use clap::{Args, Subcommand, ValueEnum};
use larder::args::no_design;
use spec::Warmup;
use std::{convert::Infallible, ops::RangeInclusive, path::PathBuf};

const BENCH_EXAMPLES: &str = "\
Example, with the disk in a file:
  larder-lab bench prepare --trace disk.trace.zst --origin disk.img
  larder create --flash cache --size 1G --origin disk.img
  larder-lab bench replay --trace disk.trace.zst --flash cache

docs/LAB.md says how bytes are made of fingerprints, and what each figure means.";

const PREPARE_EXAMPLES: &str = "\
Examples:
  larder-lab bench prepare --trace disk.trace.zst --origin disk.img
  larder-lab bench prepare --trace blocks.csv --content dup=0.5,compress=2 --origin /dev/sdb --force

A file that is not there is made, as large as the trace reaches.";

const REPLAY_EXAMPLES: &str = "\
Examples:
  larder-lab bench replay --trace disk.trace.zst --flash cache --outstanding 8
  larder-lab bench replay --trace disk.trace.zst --nbd 'nbd+unix:///?socket=/run/larder.sock' --counts-of cache --json
  larder-lab bench replay --trace disk.trace.zst --nbd nbd://127.0.0.1:10809/any --pace trace --speed 10

Each read is compared with what was written there last: a wrong byte is told, and the exit code is 1. Use a new cache and a
newly prepared disk for each replay, for a replay changes both.";

/// `larder-lab bench`.
#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLES, arg_required_else_help = false)]
pub struct BenchArgs {
    /// The command.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Write to a disk the content that a trace reads there before it writes it
    Prepare(Box<BenchPrepareArgs>),
    /// Replay a content trace against a cache in this process, or over NBD, and verify each read
    Replay(Box<BenchReplayArgs>),
}

/// The trace, and the way to read it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The trace")]
pub struct BenchTrace {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub file: TraceFile,
    /// Take the first requests only
    #[arg(long, value_name = "N", value_parser = values::request_count, allow_hyphen_values = true)]
    pub limit: Option<u64>,
}

/// `larder-lab bench prepare`.
#[derive(Debug, Args)]
#[command(after_help = PREPARE_EXAMPLES)]
pub struct BenchPrepareArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: BenchTrace,
    /// The disk: a path, nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[allow(rustdoc::broken_intra_doc_links, reason = "the help text has the brackets of an address")]
    #[arg(long, value_name = "URI")]
    pub origin: String,
    /// Overwrite other data on the disk
    #[arg(long)]
    pub force: bool,
}

/// The times of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaceArg {
    /// As fast as it goes
    Full,
    /// At the trace's times
    Trace,
}

/// `larder-lab bench replay`.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct BenchReplayArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: BenchTrace,
    /// The flash of a cache without a server: this process opens it
    #[arg(long, value_name = "PATH", conflicts_with = "nbd")]
    pub flash: Option<PathBuf>,
    /// A served export: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[allow(rustdoc::broken_intra_doc_links, reason = "the help text has the brackets of an address")]
    #[arg(long, value_name = "URI")]
    pub nbd: Option<String>,
    /// With --nbd: the flash of the Larder that serves it; its server tells the counts
    #[arg(long, value_name = "PATH", requires = "nbd", conflicts_with = "flash")]
    pub counts_of: Option<PathBuf>,
    /// With --flash: read nothing ahead, and insert the reads of scans, as `larder-lab sim` does
    #[arg(long, conflicts_with = "nbd")]
    pub no_read_ahead: bool,
    /// Requests that may be under way at once
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub outstanding: u16,
    /// The times of requests
    #[arg(long, value_name = "WHEN", default_value = "full")]
    pub pace: PaceArg,
    /// With --pace trace: so many times as fast [default: 1]
    #[arg(long, value_name = "X", value_parser = speed)]
    pub speed: Option<f64>,
    /// Measure only after this many requests, or after this share of them: N or P%
    #[arg(long, value_name = "N|P%", default_value = "0", value_parser = spec::warmup, allow_hyphen_values = true)]
    pub warmup: Warmup,
    /// Refused, with the right way: a flash has its design.
    #[arg(long, value_name = "NAME", hide = true, value_parser = no_design)]
    pub design: Option<Infallible>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The least and the greatest speed of a replay.
const SPEEDS: RangeInclusive<f64> = 0.001..=1_000_000.0;

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| SPEEDS.contains(speed));
    let wrong =
        || format!("write how many times as fast, from {} to {}, as in 10 or 0.5", SPEEDS.start(), SPEEDS.end());
    speed.ok_or_else(wrong)
}
