//! The options of `larder-lab trace`: describing, converting and making a block trace.
//!
//! It does not check that options of a generator belong to it; `trace::generate` does.

use super::{
    OutputArgs,
    values::{positive, request_count, scale, share},
};
use clap::{Args, Subcommand, ValueEnum};
use larder::size;
use larder_trace::{Columns, FormatId};
use std::path::PathBuf;

const TRACE_EXAMPLES: &str = "\
Examples:
  larder-lab trace info disk.trace.zst
  larder-lab trace convert trace.csv --to content --content dup=0.4,compress=2 -o made.trace.zst
  larder-lab trace generate homes@nitro --scale 0.01 -o homes.trace.zst

`larder trace record` records one. docs/TRACES.md has the formats, and says what each figure means.";

const INFO_EXAMPLES: &str = "\
Examples:
  larder-lab trace info disk.trace.zst
  larder-lab trace info old.csv --format csv --skip-bad
  larder-lab trace info mine.csv --columns time=1:us,op=2,offset=3:bytes,length=4:bytes,device=5
  larder-lab trace info disk.trace.zst --json | jq .duplicate_write_share

Files may be packed with zstd, gzip or xz. The format is named, but where the file itself says which it is: see
docs/TRACES.md.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  larder-lab trace convert homes.blkparse.gz --to content -o homes.trace.zst
  larder-lab trace convert disk.trace.zst --to austere --chunk 32K -o disk-32K.txt
  larder-lab trace convert trace.csv --to content --content dup=0.4,compress=2,seed=7 -o made.trace.zst
  larder-lab trace convert disk.trace.zst --to content --from 1000 --limit 500 -o part.trace.zst

What --content makes up is labelled as made up in the content format, and `trace info` shows it. No other format has a
place for that label: then a note says so.";

const GENERATE_EXAMPLES: &str = "\
Examples:
  larder-lab trace generate --list
  larder-lab trace generate zipf --requests 100000 --dup 0.5 -o zipf.trace.zst
  larder-lab trace generate homes@nitro --scale 0.01 --seed 7 -o homes.trace.zst
  larder-lab trace generate boot-storm --vms 60 --boot vm-boot.trace.zst --tag vm1 -o storm.trace.zst
  larder-lab trace generate restore --days-from snapshots.days.zst -o restore.trace.zst
  larder-lab trace generate random-reads --grid --scale 0.001 -o grid     (100 files in the folder grid)

The same options and the same seed give the same trace on every machine.";

/// `larder-lab trace`.
#[derive(Debug, Args)]
// Without a command clap would print the whole help.
#[command(after_help = TRACE_EXAMPLES, arg_required_else_help = false)]
pub struct TraceArgs {
    /// The command.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// The commands on traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Describe a trace
    Info(Box<InfoArgs>),
    /// Write a trace in another format, with other chunks, with made-up content, or a part of it
    Convert(Box<ConvertArgs>),
    /// Make a trace like those of the papers
    Generate(Box<GenerateArgs>),
}

/// The format of a trace that does not name it itself.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct FormatArgs {
    /// Its format, if the file does not name it
    #[arg(long, value_name = "NAME", value_parser = format_id())]
    pub format: Option<FormatId>,
    /// In place of a format: rows of columns, each with number and unit. An example is
    /// time=1:us,op=2,offset=3:bytes,length=4:bytes,device=5
    #[arg(long, value_name = "KEY=COLUMN[:UNIT],...", value_parser = columns, conflicts_with = "format")]
    pub columns: Option<Columns>,
}

impl FormatArgs {
    /// Returns the format, if one is named.
    pub fn id(&self) -> Option<FormatId> {
        self.columns.map(|_| FormatId::Columns).or(self.format)
    }
}

/// The options of reading a trace.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// The trace, packed or not
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub how: FormatArgs,
    /// The bytes of a block number in arc-lis, block-ids [default: 4K], csv, oracle-general
    /// [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    pub unit: Option<u64>,
    /// Count bad lines, and go on
    #[arg(long)]
    pub skip_bad: bool,
}

/// `larder-lab trace info`.
#[derive(Debug, Args)]
#[command(after_help = INFO_EXAMPLES)]
pub struct InfoArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    /// The block to count in, for a trace without content [default: 4K]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_chunk, allow_hyphen_values = true)]
    pub block: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `larder-lab trace convert`.
#[derive(Debug, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub struct ConvertArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    /// The format to write
    #[arg(long, value_name = "FORMAT")]
    pub to: ToFormat,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
    /// Chunk it, content by the two passes of the papers: a power of two from 4K to 128K
    #[arg(long, value_name = "SIZE", value_parser = size::parse_chunk, allow_hyphen_values = true)]
    pub chunk: Option<u32>,
    /// With --chunk: the content assumed for a block that was never read
    #[arg(long, value_name = "WHAT", default_value = "unique", requires = "chunk")]
    pub unknown: UnknownArg,
    /// Make up missing content, by any of dup=SHARE, compress=MEAN, variance=V, block=SIZE, seed=N
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = content)]
    pub content: Option<ContentArg>,
    /// Begin with this request, counted from 1
    #[arg(long, value_name = "N", default_value = "1", value_parser = request_count)]
    pub from: u64,
    /// Write so many requests at most
    #[arg(long, value_name = "N", value_parser = request_count)]
    pub limit: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `larder-lab trace generate`.
#[derive(Debug, Args)]
#[command(after_help = GENERATE_EXAMPLES)]
pub struct GenerateArgs {
    /// The kind of the trace: --list names all
    #[arg(value_name = "KIND", required_unless_present = "list")]
    pub kind: Option<String>,
    /// Name all kinds, with the sources of their figures
    #[arg(long, exclusive = true)]
    pub list: bool,
    /// The file to write; with --grid a folder
    #[arg(short, long, value_name = "FILE", required_unless_present = "list")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// The format to write
    #[arg(long, value_name = "FORMAT", default_value = "content")]
    pub to: ToFormat,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Another seed is another trace
    #[arg(long, value_name = "N", default_value = "0")]
    pub seed: u64,
    /// The paper's sizes and number of requests, times this; the value of an option stays as given
    #[arg(long, value_name = "X", default_value = "1", value_parser = scale)]
    pub scale: f64,
    /// Mean of the compression ratio
    #[arg(long, value_name = "X", default_value = "2", value_parser = positive)]
    pub compress: f64,
    /// Its variance
    #[arg(long, value_name = "X", default_value = "0.25", value_parser = positive)]
    pub variance: f64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub shape: ShapeArgs,
}

/// The options of some generators only. Without them each has its paper's figures.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of some kinds")]
pub struct ShapeArgs {
    /// zipf, random-reads: how many requests
    #[arg(long, value_name = "N", value_parser = request_count)]
    pub requests: Option<u64>,
    /// zipf, boot-storm, snapshots, restore: size of the disk (of one machine)
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub disk: Option<u64>,
    /// zipf: distinct addresses, in bytes
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub working_set: Option<u64>,
    /// zipf, random-reads: bytes of a request
    #[arg(long, value_name = "SIZE", value_parser = size::parse_chunk)]
    pub chunk: Option<u32>,
    /// zipf: the Zipf constant
    #[arg(long, value_name = "X", value_parser = positive)]
    pub zipf: Option<f64>,
    /// zipf: writes for each read
    #[arg(long, value_name = "X", value_parser = positive)]
    pub write_to_read: Option<f64>,
    /// zipf, snapshots, restore: the share of writes whose content was written before
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub dup: Option<f64>,
    /// random-reads, boot-storm: blocks for each distinct content
    #[arg(long, value_name = "X", value_parser = positive)]
    pub dedup_ratio: Option<f64>,
    /// random-reads: size of the cache; the working set is a multiple of it
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// random-reads: working set over cache
    #[arg(long, value_name = "X", value_parser = positive)]
    pub working_set_ratio: Option<f64>,
    /// random-reads: all 100 points, both ratios from 1 to 10, a file each
    #[arg(long, conflicts_with_all = ["dedup_ratio", "working_set_ratio"])]
    pub grid: bool,
    /// boot-storm: machines
    #[arg(long, value_name = "N")]
    pub vms: Option<u32>,
    /// boot-storm: the share of distinct contents that all machines have; each machine has the rest
    /// alone
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub overlap: Option<f64>,
    /// boot-storm: a machine shifts its addresses by up to this share of its disk
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub shift: Option<f64>,
    /// boot-storm: machines start within so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub spread: Option<f64>,
    /// boot-storm: a recorded boot, in place of a made-up one
    #[arg(long, value_name = "FILE")]
    pub boot: Option<PathBuf>,
    /// boot-storm: take the requests with this tag
    #[arg(long, value_name = "NAME", requires = "boot")]
    pub tag: Option<String>,
    /// boot-storm: the machine's disk begins at this byte of the recording
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "boot")]
    pub disk_from: Option<u64>,
    /// boot-storm: the boot is over after so many seconds of the recording
    #[arg(long, value_name = "SECONDS", value_parser = positive, requires = "boot")]
    pub until: Option<f64>,
    /// snapshots, restore: how many days
    #[arg(long, value_name = "N")]
    pub days: Option<u32>,
    /// snapshots, restore: the median share of the disk that is written in a day
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub overwrite: Option<f64>,
    /// restore: recorded days, in place of made-up ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["days", "disk", "dup", "overwrite"])]
    pub days_from: Option<PathBuf>,
    /// restore: the days to read back [default: all]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub restore_days: Vec<u64>,
    /// restore: bytes of a read
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub io: Option<u64>,
    /// restore: the reads alone, without the writes of the days before them
    #[arg(long)]
    pub no_writes: bool,
}

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToFormat {
    /// Ours, packed with zstd
    Content,
    /// AustereCache's
    Austere,
    /// libCacheSim's csv
    Csv,
    /// libCacheSim's oracleGeneral
    OracleGeneral,
}

/// The content assumed for a block that was never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnknownArg {
    /// Content that no other block has (Nitro)
    Unique,
    /// Zeroes (AustereCache)
    Zero,
}

/// The value of `--content`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContentArg {
    /// The share of writes that repeat content.
    pub dup: Option<f64>,
    /// Mean of the compression ratio.
    pub compress: Option<f64>,
    /// Its variance.
    pub variance: Option<f64>,
    /// Bytes of a block.
    pub block_bytes: Option<u32>,
    /// The seed.
    pub seed: Option<u64>,
}

/// Returns a parser of the formats' names for clap.
pub(super) fn format_id() -> impl clap::builder::TypedValueParser<Value = FormatId> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    let named = FormatId::ALL.into_iter().filter(|format| *format != FormatId::Columns);
    PossibleValuesParser::new(named.map(FormatId::name)).try_map(|name| name.parse::<FormatId>())
}

/// Parses the value of `--columns`.
pub(super) fn columns(text: &str) -> Result<Columns, String> {
    text.parse::<Columns>().map_err(|error| error.to_string())
}

/// Parses a description of generated content: `dup=0.4,compress=2`.
pub(super) fn content(text: &str) -> Result<ContentArg, String> {
    let mut content = ContentArg::default();
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let with_key = |why: String| format!("{key}: {why}");
        match key {
            "dup" => content.dup = Some(share(value).map_err(with_key)?),
            "compress" => content.compress = Some(positive(value).map_err(with_key)?),
            "variance" => content.variance = Some(positive(value).map_err(with_key)?),
            "block" => content.block_bytes = Some(size::parse_chunk(value).map_err(with_key)?),
            "seed" => content.seed = Some(value.parse().map_err(|_| with_key("a seed is a whole number".to_owned()))?),
            _ => return Err("write dup=SHARE,compress=MEAN,variance=V,block=SIZE,seed=N, or some of them".to_owned()),
        }
    }
    Ok(content)
}
