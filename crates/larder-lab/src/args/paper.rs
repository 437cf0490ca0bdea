//! The options of `larder-lab paper`: the papers' experiments.
//!
//! It does not know the experiments; `larder_papers` does.

use super::{
    ModeArg,
    trace::{columns, format_id},
};
use clap::{Args, Subcommand};
use larder_papers::live::Time;
use larder_trace::{Columns, FormatId};
use std::path::PathBuf;

const PAPER_EXAMPLES: &str = "\
Examples:
  larder-lab paper list
  larder-lab paper run austere-fig7 --plot fig7.svg
  larder-lab paper run austere-fig7 --trace Homes=homes.trace.zst

docs/REPRODUCTION.md has the results of each.";

const RUN_EXAMPLES: &str = "\
Examples:
  larder-lab paper run austere-fig7
  larder-lab paper run austere-fig7 --scale 0.01 --json
  larder-lab paper run austere-fig7 --trace WebVM=webvm.blkparse.gz --trace Homes=homes.blkparse.gz
  larder-lab paper run austere-fig7 --trace mine.trace.zst --plot mine.svg
  larder-lab paper run nitro-table2 --clock real
  larder-lab paper run caftl-fig1 --path /dev/sdb --path ~/images
  larder-lab paper run pareto --only Zipf,Mail --flash 10%,20% --mode write-through --plot pareto.svg

Without a trace, generated ones are replayed. They are like the paper's in the figures that it prints of them. A trace
that has the name of one of the paper's stands beside the paper's figures of that one. Experiments with figures of time run
the caches themselves, over memory with the timing of a disk and of a SATA SSD.";

/// `larder-lab paper`.
#[derive(Debug, Args)]
#[command(after_help = PAPER_EXAMPLES, arg_required_else_help = false)]
pub struct PaperArgs {
    /// The command.
    #[command(subcommand)]
    pub command: PaperCommand,
}

/// The commands on experiments.
#[derive(Debug, Subcommand)]
pub enum PaperCommand {
    /// Name the experiments, with the result that each shows
    List(PaperListArgs),
    /// Run an experiment, and put our figures beside the published ones
    Run(Box<PaperRunArgs>),
}

/// `larder-lab paper list`.
#[derive(Debug, Args)]
pub struct PaperListArgs {
    /// Print a list of JSON objects
    #[arg(long)]
    pub json: bool,
}

/// A trace on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTrace {
    /// The paper's name for it, if it is one of the paper's.
    pub name: Option<String>,
    /// The file.
    pub file: PathBuf,
}

/// `larder-lab paper run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct PaperRunArgs {
    /// The experiment
    pub name: String,
    /// A trace with content in place of the generated ones, perhaps with the paper's name for it.
    /// May be given several times
    #[arg(long, value_name = "[NAME=]FILE", value_parser = named_trace)]
    pub trace: Vec<NamedTrace>,
    /// A disk, an image or a folder whose pages are read, in experiments about the content of
    /// disks. May be given several times
    #[arg(long, value_name = "PATH", conflicts_with_all = ["trace", "scale"])]
    pub path: Vec<PathBuf>,
    /// Size of the generated data, as a share of the paper's. The default of each trace makes a run
    /// of a minute or two
    #[arg(long, value_name = "S", value_parser = scale, conflicts_with = "trace", allow_hyphen_values = true)]
    pub scale: Option<f64>,
    /// Replays these of the generated traces alone
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with_all = ["trace", "path"])]
    pub only: Vec<String>,
    /// Sizes of the flash in shares of the working set, in an experiment over a grid of caches
    #[arg(long, value_name = "P%,...", value_delimiter = ',', value_parser = share, allow_hyphen_values = true)]
    pub flash: Vec<f64>,
    /// Modes of the caches, in an experiment over a grid of caches
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    pub mode: Vec<ModeArg>,
    /// The format of the given traces, if the files do not name it
    #[arg(long, value_name = "NAME", value_parser = format_id(), requires = "trace")]
    pub format: Option<FormatId>,
    /// In place of a format: rows of columns, each with number and unit; see
    /// `larder-lab trace info --help`
    #[arg(long, value_name = "KEY=COLUMN[:UNIT],...", value_parser = columns, requires = "trace", conflicts_with = "format")]
    pub columns: Option<Columns>,
    /// The clock of an experiment on devices: virtual counts the media's time alone, real all of
    /// it. The default is virtual, and real for experiments about computing
    #[arg(long, value_name = "CLOCK", value_parser = clock)]
    pub clock: Option<Time>,
    /// Count bad lines of traces, and go on
    #[arg(long)]
    pub skip_bad: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write a CSV file, too; - for standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw the charts, too: an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Parses `NAME=FILE` or `FILE`; a path that has a slash before its first `=` is a file.
fn named_trace(text: &str) -> Result<NamedTrace, String> {
    let (name, file) = match text.split_once('=') {
        Some((name, file)) if !name.contains('/') => (Some(name.to_owned()), file),
        _ => (None, text),
    };
    match file.is_empty() {
        true => Err("expected a file, or NAME=FILE with the paper's name for the trace".to_owned()),
        false => Ok(NamedTrace { name, file: file.into() }),
    }
}

fn clock(text: &str) -> Result<Time, String> {
    match text {
        "virtual" => Ok(Time::Virtual),
        "real" => Ok(Time::Real),
        _ => Err("expected virtual or real".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let found = text.strip_suffix('%').and_then(|share| share.parse().ok());
    let found = found.filter(|percent: &f64| *percent > 0.0 && *percent <= 1000.0);
    found.ok_or_else(|| "expected a share of the working set above 0% and up to 1000%, as in 10%".to_owned())
}

fn scale(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|scale: &f64| *scale > 0.0 && *scale <= 1000.0);
    found.ok_or_else(|| "expected a number above 0, up to 1000, as in 0.01".to_owned())
}
