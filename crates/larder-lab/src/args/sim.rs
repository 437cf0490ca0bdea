//! The options of `larder-lab sim`: replaying traces through caches of any design.
//!
//! It does not know the options of a design; `larder_sim::setup` does.

use super::{ContentArg, FormatArgs, ModeArg, Switch, UnknownArg, drives, trace, values};
use crate::sim::spec;
use clap::{Args, Subcommand};
use larder::size;
use larder_sim::{
    origin::profile::OriginProfile,
    setup::{Accounting, FlashAmount, Granularity, Orphans, drive::DriveSetup},
};
use larder_ssd::kinds::FtlKind;
use spec::{DesignSpec, Parameter, Warmup};
use std::path::PathBuf;

const SIM_EXAMPLES: &str = "\
Examples:
  larder-lab sim run --trace disk.trace.zst --design nitro --flash 10%
  larder-lab sim compare --trace disk.trace.zst --flash 1G --plot designs.svg
  larder-lab sim sweep --trace disk.trace.zst --flash 1%,2%,5%,10%,20% -o disk.sweep --plot sizes.svg
  larder-lab sim compare --trace disk.trace.zst --flash 1G --ssd nitro-mlc --ftl page,page-trim,caftl

docs/LAB.md says what each figure means, how a flash is divided between data and metadata, and what the bound is.";

const RUN_EXAMPLES: &str = "\
Examples:
  larder-lab sim run --trace OLTP.lis.zst --format arc-lis --design arc --flash 1000c
  larder-lab sim run --trace homes.trace.zst --design austere --flash 10% --chunk 32K --mode write-through --accounting paper
  larder-lab sim run --trace disk.trace.zst --design nitro --flash 4G --ram 64M --warmup 20% --json | jq .read_hit_ratio

Designs: larder, lru, arc, d-lru, d-arc, cd-arc, austere, nitro and others (`larder-lab sim designs` says what each is and which
options it has).";

const COMPARE_EXAMPLES: &str = "\
Examples:
  larder-lab sim compare --trace disk.trace.zst --flash 10%
  larder-lab sim compare --trace disk.trace.zst --flash 1024c --accounting paper --lba-entries 4096 --mode write-through --json
  larder-lab sim compare --trace disk.trace.zst --flash 1G --design larder,lru,nitro,nitro:dedup=off --plot it.svg
  larder-lab sim compare --trace disk.trace.zst --flash 1G --design lru,nitro --ssd caftl:over_provisioning_percent=20 --ftl page,caftl \
      --metric ssd_erasures --plot erasures.svg
  larder-lab sim compare --trace disk.trace.zst --flash 1G --ssd tlc-nvme --origin raid5-7200 --pace own

Without --design all designs are compared, larder first. An option goes to those designs that have it. A design may have
options of its own behind its name.";

const SWEEP_EXAMPLES: &str = "\
Examples:
  larder-lab sim sweep --trace disk.trace.zst --flash 1%,2%,5%,10%,20% -o disk.sweep --plot hits.svg
  larder-lab sim sweep --trace disk.trace.zst --design nitro --flash 1G --ram 4M,8M,16M,32M -o ram.sweep --plot ram.svg
  larder-lab sim sweep --trace disk.trace.zst --design austere --accounting paper --flash 5%,10% --vary subchunk=2K,4K,8K -o sub.sweep --csv sub.csv
  larder-lab sim sweep --trace disk.trace.zst --design lru,nitro --flash 5%,10%,20% --ssd tlc-nvme --origin raid5-7200 \
      -o time.sweep --metric time_iops --plot iops.svg

Each replay that is done is a line of the file -o. Run the same sweep again after it was cut off, or with more sizes: only
missing replays run.";

/// `larder-lab sim`.
#[derive(Debug, Args)]
#[command(after_help = SIM_EXAMPLES, arg_required_else_help = false)]
pub struct SimArgs {
    /// The command.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// The commands of the laboratory.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Replay a trace through one cache
    Run(Box<RunArgs>),
    /// Replay a trace through several designs, side by side
    Compare(Box<CompareArgs>),
    /// Replay a trace through caches of many sizes, RAM budgets and options
    Sweep(Box<SweepArgs>),
    /// Name the designs, with a description of each and its options
    Designs,
    /// Name the drives that can lie beneath a cache, and their numbers
    Profiles,
    /// Name the translation layers that drives can have
    Ftls,
    /// Name the origins with a model of time
    Origins,
}

/// A trace, and the way to read it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The trace")]
pub struct TraceFile {
    /// The trace, packed or not
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub how: FormatArgs,
    /// The bytes of a block number, in formats that count blocks. Without it, a block is a chunk in
    /// arc-lis and block-ids
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    pub unit: Option<u64>,
    /// Count bad lines, and go on
    #[arg(long)]
    pub skip_bad: bool,
    /// Make up missing content, by any of dup=SHARE, compress=MEAN, variance=V, block=SIZE, seed=N
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = trace::content)]
    pub content: Option<ContentArg>,
}

/// The trace of a replay.
#[derive(Debug, Args)]
#[command(next_help_heading = "The trace")]
pub struct TraceInput {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub file: TraceFile,
    /// The content assumed for a block that was never read, if chunks are larger than the trace's
    /// blocks
    #[arg(long, value_name = "WHAT", default_value = "unique")]
    pub unknown: UnknownArg,
    /// Count only after this many requests of chunks, or after this share of them: N or P%
    #[arg(long, value_name = "N|P%", default_value = "0", value_parser = spec::warmup, allow_hyphen_values = true)]
    pub warmup: Warmup,
}

/// The options that caches have in common.
#[derive(Debug, Args)]
#[command(next_help_heading = "The cache")]
pub struct CacheArgs {
    /// Chunk size, a power of two from 4K to 128K [default: the block of the trace's content, else
    /// 4K]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_chunk, allow_hyphen_values = true)]
    pub chunk: Option<u32>,
    /// The time at which the origin learns of a write
    #[arg(long, value_name = "MODE", default_value = "write-back")]
    pub mode: ModeArg,
    /// Store a content once
    #[arg(long, value_name = "on|off")]
    pub dedup: Option<Switch>,
    /// Store chunks compressed
    #[arg(long, value_name = "on|off")]
    pub compress: Option<Switch>,
    /// austere in --accounting paper: bytes of a subchunk [default: a quarter of the chunk, at
    /// least 4K]
    #[arg(long, value_name = "SIZE", value_parser = spec::bytes, allow_hyphen_values = true)]
    pub subchunk: Option<u32>,
    /// Addresses that the cache can know [default: as `larder create`]. Designs other than nitro
    /// and cd-arc take it with --accounting paper alone
    #[arg(long, value_name = "N", value_parser = values::request_count, allow_hyphen_values = true)]
    pub lba_entries: Option<u64>,
    /// nitro, cd-arc: write-evict unit, a power of two from 512K to 4M [default: 2M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_weu, allow_hyphen_values = true)]
    pub weu: Option<u32>,
    /// nitro, cd-arc: size of the FP index in percent of a full one, 0 to 100
    #[arg(long, value_name = "PERCENT", value_parser = spec::percent, allow_hyphen_values = true)]
    pub fp_index: Option<u8>,
    /// nitro, cd-arc: the unit of eviction, weu or extent; extents are not compressed
    #[arg(long, value_name = "WHAT", value_parser = spec::granularity)]
    pub granularity: Option<Granularity>,
    /// d-lru, d-arc, with --accounting paper: keep or forget data without an address [default:
    /// keep]
    #[arg(long, value_name = "keep|forget", value_parser = spec::orphans)]
    pub orphans: Option<Orphans>,
    /// The engine's layout, steps and costs, or the paper's [default: engine]. For nitro and cd-arc
    /// both are the same
    #[arg(long, value_name = "engine|paper", value_parser = spec::accounting)]
    pub accounting: Option<Accounting>,
}

/// The drive beneath.
#[derive(Debug, Args)]
#[command(next_help_heading = "The drive beneath")]
pub struct DriveArgs {
    /// Simulate the drive under the flash, PROFILE[:NUMBER=VALUE]..., and count its erasures.
    /// Without capacity=SIZE the drive is cut to the size of the flash
    #[arg(long, value_name = "PROFILE", value_parser = drives::profile)]
    pub ssd: Option<DriveSetup>,
    /// Its translation layers, one for `run`; otherwise a row for each [default: page-trim]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = drives::ftl, requires = "ssd")]
    pub ftl: Vec<&'static FtlKind>,
}

/// The options of modelled time.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
pub struct TimeArgs {
    /// Model the time of the whole, cache, drive and this origin: IOPS and response times
    #[arg(long, value_name = "PROFILE", value_parser = drives::origin, requires = "ssd")]
    pub origin: Option<OriginProfile>,
    /// The times of requests: the trace's own, or as fast as they go [default: full]
    #[arg(long, value_name = "own|full", requires = "origin")]
    pub pace: Option<SimPaceArg>,
    /// Requests under way at full load [default: 16]
    #[arg(long, value_name = "N", requires = "origin", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub outstanding: Option<u32>,
}

/// The times of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SimPaceArg {
    /// At the trace's own times.
    Own,
    /// As fast as they go.
    Full,
}

/// The flash and the RAM of a cache.
#[derive(Debug, Args)]
pub struct RoomArgs {
    /// Flash: bytes (64M), a share of the working set (10%), or data chunks with metadata on top
    /// (5000c)
    #[arg(long, value_name = "SIZE|P%|Nc", value_parser = spec::flash, allow_hyphen_values = true)]
    pub flash: FlashAmount,
    /// RAM budget of each index; if it binds, the cache is smaller
    #[arg(long, value_name = "SIZE", value_parser = spec::ram, allow_hyphen_values = true)]
    pub ram: Option<u64>,
}

/// `larder-lab sim run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: TraceInput,
    /// The design
    #[arg(long, value_name = "NAME", value_parser = spec::design)]
    pub design: DesignSpec,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub room: RoomArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub drive: DriveArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub time: TimeArgs,
    /// Also compute the most reads that any cache could hit; takes memory for each request
    #[arg(long, value_name = "on|off", default_value = "off")]
    pub bound: Switch,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `larder-lab sim compare`.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: TraceInput,
    /// The designs, each perhaps with options of its own: NAME[:OPTION=VALUE]... [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = spec::design)]
    pub design: Vec<DesignSpec>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub room: RoomArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub drive: DriveArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub time: TimeArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: ReportArgs,
}

/// `larder-lab sim sweep`.
#[derive(Debug, Args)]
#[command(after_help = SWEEP_EXAMPLES)]
pub struct SweepArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: TraceInput,
    /// The designs, each perhaps with options of its own: NAME[:OPTION=VALUE]... [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = spec::design)]
    pub design: Vec<DesignSpec>,
    /// Flash sizes: bytes (64M), shares of the working set (10%), data chunks and metadata (5000c)
    #[arg(long, value_name = "SIZE|P%|Nc,...", value_delimiter = ',', value_parser = spec::flash, required = true, allow_hyphen_values = true)]
    pub flash: Vec<FlashAmount>,
    /// RAM budgets of the index
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = spec::ram, allow_hyphen_values = true)]
    pub ram: Vec<u64>,
    /// Values of another option. It is one of chunk, mode, dedup, compress, subchunk, lba-entries,
    /// weu, fp-index, granularity, orphans and accounting
    #[arg(long, value_name = "OPTION=VALUE,...", value_parser = spec::parameter)]
    pub vary: Vec<Parameter>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub drive: DriveArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub time: TimeArgs,
    /// The file that keeps the finished replays: begun, or continued
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replays at a time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub report: ReportArgs,
}

/// The report of several replays.
#[derive(Debug, Args)]
#[command(next_help_heading = "The report")]
pub struct ReportArgs {
    /// Also compute the most reads that any cache could hit [default: on unless the trace is long]
    #[arg(long, value_name = "on|off")]
    pub bound: Option<Switch>,
    /// Print a list of JSON objects
    #[arg(long)]
    pub json: bool,
    /// Write a CSV file, too; - for standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw a chart, too: an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// The chart's values: a figure of the JSON objects
    #[arg(long, value_name = "FIGURE", default_value = "read_hit_ratio", value_parser = spec::metric)]
    pub metric: &'static str,
}
