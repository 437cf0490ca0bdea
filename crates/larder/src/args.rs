//! The command line: commands, options, their help and examples.
//!
//! Invariants: the names of long options are also the keys of the option file of `larder serve`. A
//! wrong argument is one sentence that names it and the allowed values.
//!
//! It does not look at any file.

mod complaints;
mod offline;
mod origin;
mod trace;
mod values;

use crate::{
    error::{Failure, Outcome},
    size,
};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, error::ErrorKind};
pub use complaints::Missing;
use larder_device::throttled::Profile;
use larder_engine::{Compression, WearLimit, WriteMode, designs::ENGINE_DESIGNS};
use larder_format::DesignId;
use larder_serve::nbd::ServeAddress;
pub use offline::{DumpArgs, DumpPart, VerifyArgs};
pub use origin::OriginLimits;
use std::{convert::Infallible, ffi::OsString, path::PathBuf, time::Duration};
pub use trace::{OutputArgs, RecordArgs, TraceArgs, TraceCommand};
use values::{
    END_TIMEOUT, address, design, end_timeout, fp_index_percent, profile, ram_budget, request_max, seconds, wear,
};
pub use values::{OriginChangedArg, TrimArg, no_design};

const EXAMPLES: &str = "\
Examples:
  Put a 100 GiB cache file before a disk, and serve the result:
    larder create --flash /ssd/cache --size 100G --origin /dev/sdb
    larder serve --flash /ssd/cache --nbd unix:/run/larder.sock
  See what it does, from anywhere:
    larder status --flash /ssd/cache
  Use it as a file, and from there as a loop device:
    nbdfuse /mnt/disk 'nbd+unix:///?socket=/run/larder.sock' &

`larder-lab` has the laboratory: sim, paper, bench, and trace info, convert and generate.

Sizes are binary: 8K is 8192 bytes. Exit codes: 0 done, 1 failed, 2 wrong usage; 3
from `verify --repair`: done, and data was lost.";

/// The sentences about a command that is missing.
const MISSING: Missing = &[
    ("trace", "say what to do: record (`larder trace --help` explains)"),
    ("", "say what to do: create, serve, status, flush, set, detach, verify, dump or trace (`larder --help` explains)"),
];

const CREATE_EXAMPLES: &str = "\
Examples:
  larder create --flash /ssd/cache --size 100G --origin /dev/sdb
  larder create --flash /dev/nvme0n1p3 --origin /dev/sdb --mode write-through --compress zstd
  larder create --flash /ssd/cache --size 20G --origin nbd://storage:10809/volume --chunk 16K";

const SERVE_EXAMPLES: &str = "\
Examples:
  larder serve --flash /ssd/cache --nbd unix:/run/larder.sock
  larder serve --flash /ssd/cache --nbd unix:/run/larder.sock --nbd tcp:127.0.0.1:10809 --export disk
  larder serve --flash /ssd/cache --config /etc/larder.toml
  larder serve --flash /ssd/cache --nbd unix:/run/larder.sock --state /var/lib/larder
  larder serve --no-cache --origin /dev/sdb --nbd unix:/run/plain.sock     (to compare)

The option file is TOML; its keys are the long options without the dashes:
  flash = \"/ssd/cache\"
  nbd = [\"unix:/run/larder.sock\", \"tcp:127.0.0.1:10809\"]
  destage-rate = \"64M\"
Options of the command line go before those of the file.

SIGTERM, SIGINT, SIGQUIT and SIGHUP end it: requests finish, everything is flushed, a checkpoint is written. Dirty data
stays on the flash for the next time. With --config, SIGHUP has the file read again instead. A second signal other than
SIGHUP ends it at once; the next start then recovers.";

const STATUS_EXAMPLES: &str = "\
Examples:
  larder status --flash /ssd/cache
  larder status --flash /ssd/cache --json | jq .read_hit_ratio

Counts are since the cache was opened; of a cache that is not served they are 0.";

const FLUSH_EXAMPLES: &str = "\
Example:
  larder flush --flash /ssd/cache     (afterwards the origin alone is complete)";

const SET_EXAMPLES: &str = "\
Example:
  larder set --flash /ssd/cache --mode write-through     (returns when no dirty data remains)";

const DETACH_EXAMPLES: &str = "\
Example:
  larder detach --flash /ssd/cache     (afterwards the origin is complete, and the flash is free)";

/// A flash cache that stores more and wears less: fast flash before a slow device. It keeps data
/// deduplicated and compressed, and serves the result as a block device.
#[derive(Debug, Parser)]
#[command(name = "larder", version, after_help = EXAMPLES, subcommand_required = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a cache on a flash file or device, for an origin
    Create(CreateArgs),
    /// Serve a cached volume as a network block device
    Serve(Box<ServeArgs>),
    /// Show the content and activity of a cache, served or not
    Status(StatusArgs),
    /// Write all dirty data to the origin
    Flush(FlushArgs),
    /// Change the write mode of a cache, served or not
    Set(SetArgs),
    /// Write everything to the origin and end the cache for ever
    Detach(DetachArgs),
    /// Check everything on the flash of a cache that is not served, or repair it
    Verify(VerifyArgs),
    /// Print the content of the flash of a cache that is not served
    Dump(DumpArgs),
    /// Record a block trace
    Trace(TraceArgs),
}

/// `larder create`.
#[derive(Debug, Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub struct CreateArgs {
    /// The fast device: a block device, or a file
    #[arg(long, value_name = "PATH")]
    pub flash: PathBuf,
    /// The slow device: a path, nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[allow(rustdoc::broken_intra_doc_links, reason = "the help text has the brackets of an address")]
    #[arg(long, value_name = "URI")]
    pub origin: String,
    /// Size of a new flash file; an existing one may grow to it
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    pub size: Option<u64>,
    /// Chunk size, a power of two from 4K to 128K
    #[arg(long, value_name = "SIZE", default_value = "8K", value_parser = size::parse_chunk, allow_hyphen_values = true)]
    pub chunk: u32,
    /// Write-evict unit, a power of two from 512K to 4M [default: 2M]
    ///
    /// With `larder` the default is 512K to 2M, by the size of the flash. Slots of one chunk have
    /// none.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_weu, allow_hyphen_values = true)]
    pub weu: Option<u32>,
    /// The time at which the origin gets a write
    #[arg(long, value_name = "MODE", default_value = "write-back")]
    pub mode: ModeArg,
    /// The design that decides which data is cached
    #[arg(long, value_name = "NAME", default_value = ENGINE_DESIGNS[0].name, value_parser = design())]
    pub design: DesignId,
    /// Compression of stored chunks [default: lz4]. It is off if the design has slots of one chunk
    /// or, as austere with chunks of 4K, could save nothing
    #[arg(long, value_name = "NAME")]
    pub compress: Option<CompressArg>,
    /// Store duplicate chunks once [default: on, or as the design has it]
    #[arg(long, value_name = "on|off")]
    pub dedup: Option<Switch>,
    /// Size of the FP index: 100, 75, 50 or 25 percent, or 0 for no deduplication [default: 100]
    #[arg(long, value_name = "PERCENT", value_parser = fp_index_percent, allow_hyphen_values = true)]
    pub fp_index: Option<u8>,
    /// RAM budget of the indices; fewer chunks are cached if it binds. 0 sets none, 1M is the least
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = ram_budget, allow_hyphen_values = true)]
    pub ram: u64,
    /// Name of the volume; clients see it as the export's name
    #[arg(long, value_name = "NAME", default_value = "")]
    pub name: String,
    /// Limits of the origin
    #[command(flatten)]
    pub origin_limits: OriginLimits,
    /// Overwrite the content of the flash, and take even the flash of another cache as the origin
    #[arg(long)]
    pub force: bool,
}

/// `larder serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// The flash of the cache to serve
    #[arg(long, value_name = "PATH")]
    pub flash: Option<PathBuf>,
    /// Address to serve at: unix:PATH or tcp:HOST:PORT; may be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub nbd: Vec<ServeAddress>,
    /// Name of the export [default: the volume's name]
    #[arg(long, value_name = "NAME")]
    pub export: Option<String>,
    /// The origin's place now, if it has moved; with --no-cache, the origin to serve
    #[arg(long, value_name = "URI")]
    pub origin: Option<String>,
    /// Limits of the origin
    #[command(flatten)]
    pub origin_limits: OriginLimits,
    /// How long writes wait for a full flash before it counts as failed [default: as long as it is
    /// full]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true, conflicts_with = "no_cache")]
    pub flash_full_timeout: Option<Duration>,
    /// Serve the origin without a cache, to compare
    #[arg(long)]
    pub no_cache: bool,
    /// Directory for state off the flash, so that writes go on when it fails; remembered from then
    /// on
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Believe the flash though its state directory is lost
    #[arg(long)]
    pub adopt: bool,
    /// Drop the dirty data of a flash that was away while the origin was written
    #[arg(long)]
    pub discard: bool,
    /// If the origin was written to since the cache ended: forget the clean copies, or believe them
    #[arg(long, value_name = "WHAT")]
    pub origin_changed: Option<OriginChangedArg>,
    /// A client's TRIM gives the origin zeroes, a discard if it promises zeroes after one, or
    /// nothing
    #[arg(long, value_name = "WHAT", default_value = "zero", conflicts_with = "no_cache")]
    pub trim: TrimArg,
    /// Give the origin the timing of hdd-7200, raid5-7200, sata-ssd or nvme
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    pub origin_profile: Option<Profile>,
    /// Give the flash the timing of such a device
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    pub flash_profile: Option<Profile>,
    /// Threads that hash and compress [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub workers: Option<u16>,
    /// Bytes that the flash may be written in any 24 hours: 50G/day, 0.3dwpd (times its size), or
    /// none. Without it, the last budget goes on
    #[arg(long, value_name = "BUDGET", value_parser = wear, allow_hyphen_values = true)]
    pub wear: Option<WearLimit>,
    /// Limit of destaging while little is dirty, bytes a second; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = size::parse)]
    pub destage_rate: u64,
    /// Destaging begins when this share of the flash is dirty
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub dirty_low: u8,
    /// From this share on destaging has no limit
    #[arg(long, value_name = "PERCENT", default_value = "40", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub dirty_high: u8,
    /// From this share on writes wait for destaging
    #[arg(long, value_name = "PERCENT", default_value = "70", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub dirty_max: u8,
    /// RAM for read data that waits to be cached; more is not cached
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    pub insert_queue: u64,
    /// RAM for data read ahead of sequential readers; 0 for no read-ahead
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size::parse)]
    pub prefetch: u64,
    /// Every write and trim is durable when it is over, as with FUA: slower, for clients without
    /// flushes
    #[arg(long, conflicts_with = "no_cache")]
    pub durable_writes: bool,
    /// Longest request that clients may send
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = request_max)]
    pub request_max: u32,
    /// RAM for the requests and replies of all clients, shared fairly; requests beyond it wait
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    pub ram_requests: u64,
    /// Connections at once, at each address
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub connections: u16,
    /// How long the end may take: requests, flushes, the checkpoint, all of it; then it is cut off
    #[arg(long, value_name = "SECONDS", default_value = END_TIMEOUT, value_parser = end_timeout())]
    pub end_timeout: u32,
    /// Read options from this file, too, and again at SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Refused, with advice: a flash has its design.
    #[arg(long, value_name = "NAME", hide = true, value_parser = no_design)]
    pub design: Option<Infallible>,
}

/// `larder status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// The flash of the cache
    #[arg(long, value_name = "PATH")]
    pub flash: PathBuf,
    /// The state directory, if it has moved, or to find the server of a cache whose flash is
    /// missing
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `larder flush`.
#[derive(Debug, Args)]
#[command(after_help = FLUSH_EXAMPLES)]
pub struct FlushArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: DestagedArgs,
}

/// The options of a command after which the origin has all data.
#[derive(Debug, Args)]
pub struct DestagedArgs {
    /// The flash of the cache
    #[arg(long, value_name = "PATH")]
    pub flash: PathBuf,
    /// The origin's place now, if it has moved
    #[arg(long, value_name = "URI")]
    pub origin: Option<String>,
    /// The state directory, if it has moved
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// If the origin was written to since the cache ended: forget the clean copies, or believe them
    #[arg(long, value_name = "WHAT")]
    pub origin_changed: Option<OriginChangedArg>,
    /// For a cache without a server: kept trims reach the origin as zeroes or as a discard, or stay
    #[arg(long, value_name = "WHAT", default_value = "zero")]
    pub trim: TrimArg,
}

/// `larder set`.
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
pub struct SetArgs {
    /// The flash of the cache
    #[arg(long, value_name = "PATH")]
    pub flash: PathBuf,
    /// The new write mode
    #[arg(long, value_name = "MODE")]
    pub mode: ModeArg,
    /// The origin's place now, if it has moved
    #[arg(long, value_name = "URI")]
    pub origin: Option<String>,
    /// The state directory, if it has moved
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// If the origin was written to since the cache ended: forget the clean copies, or believe them
    #[arg(long, value_name = "WHAT")]
    pub origin_changed: Option<OriginChangedArg>,
    /// Refused, with advice: a flash has its design.
    #[arg(long, value_name = "NAME", hide = true, value_parser = no_design)]
    pub design: Option<Infallible>,
}

/// `larder detach`.
#[derive(Debug, Args)]
#[command(after_help = DETACH_EXAMPLES)]
pub struct DetachArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: DestagedArgs,
}

/// A write mode by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// At destage, later
    #[value(name = "write-back")]
    Back,
    /// Before the write is answered; the cache keeps a copy
    #[value(name = "write-through")]
    Through,
    /// Before the write is answered; the cache forgets its copy
    #[value(name = "write-around")]
    Around,
}

impl From<ModeArg> for WriteMode {
    fn from(mode: ModeArg) -> WriteMode {
        match mode {
            ModeArg::Back => WriteMode::Back,
            ModeArg::Through => WriteMode::Through,
            ModeArg::Around => WriteMode::Around,
        }
    }
}

/// A compression by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum CompressArg {
    Lz4,
    Zstd,
    Off,
}

impl From<CompressArg> for Compression {
    fn from(compression: CompressArg) -> Compression {
        match compression {
            CompressArg::Lz4 => Compression::Lz4,
            CompressArg::Zstd => Compression::Zstd,
            CompressArg::Off => Compression::Off,
        }
    }
}

/// `on` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Switch {
    On,
    Off,
}

/// Reads a command line; `None` if it asked for help or the version, which were printed.
///
/// # Errors
/// The fault of the command line.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Outcome<Option<(Cli, clap::ArgMatches)>> {
    parse_as(arguments, MISSING)
}

/// Returns clap's paragraphs about a command line of `larder` as one sentence.
pub fn sentence(error: &clap::Error) -> String {
    complaints::sentence(error, MISSING)
}

/// Reads a command line of any program, as [`parse`] does.
///
/// # Errors
/// The fault of the command line; `missing` has the words for one without a command.
pub fn parse_as<T: CommandFactory + FromArgMatches>(
    arguments: impl IntoIterator<Item = OsString>,
    missing: Missing,
) -> Outcome<Option<(T, clap::ArgMatches)>> {
    let matches = match T::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // A reader that is gone is no failure of ours.
            let _ = error.print();
            return Ok(None);
        }
        Err(error) => return Err(Failure::Usage(complaints::sentence(&error, missing))),
    };
    let parsed =
        T::from_arg_matches(&matches).map_err(|error| Failure::Usage(complaints::sentence(&error, missing)))?;
    Ok(Some((parsed, matches)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, String> {
        let arguments = line.split(' ').map(OsString::from);
        match parse(arguments) {
            Ok(Some((cli, _))) => Ok(cli),
            Ok(None) => Err("help".to_owned()),
            Err(failure) => Err(failure.sentence().unwrap_or_default()),
        }
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn create_has_the_defaults_of_the_design() {
        let cli = parsed("larder create --flash f --origin o").expect("a good line");
        let Command::Create(create) = cli.command else { panic!("not create") };
        assert_eq!((create.chunk, create.weu, create.fp_index, create.ram), (8 << 10, None, None, 0));
        assert_eq!((create.mode, create.compress, create.dedup), (ModeArg::Back, None, None));
        assert!(!create.force && create.size.is_none());
    }

    #[test]
    fn a_wrong_argument_is_one_sentence_that_says_what_is_right() {
        let create = "larder create --flash f --origin o";
        for (line, words) in [
            (format!("{create} --chunk 6000"), "--chunk 6000: a chunk is a power of two from 4K to 128K"),
            (format!("{create} --size -1"), "--size -1: a size is a whole number"),
            (format!("{create} --weu 3M"), "--weu 3M: a WEU is a power of two from 512K to 4M"),
            (format!("{create} --mode back"), "--mode back: write one of write-back, write-through, write-around"),
            (format!("{create} --dedup maybe"), "--dedup maybe: write one of on, off"),
            (format!("{create} --fp-index 60"), "--fp-index 60: the FP index has 100, 75, 50, 25 or 0 percent"),
            (format!("{create} --wings 2"), "--wings"),
            ("larder create --flash f".to_owned(), "--origin <URI>"),
            ("larder".to_owned(), "say what to do"),
            ("larder fly".to_owned(), "'fly'"),
            ("larder serve --nbd pigeon:7".to_owned(), "--nbd pigeon:7: write unix:PATH or tcp:HOST:PORT"),
            ("larder serve --dirty-max 101".to_owned(), "--dirty-max 101: 101 is not in 1..=100"),
            (
                "larder serve --no-cache --durable-writes".to_owned(),
                "'--no-cache' cannot be used with '--durable-writes'",
            ),
            ("larder serve --origin-profile tape".to_owned(), "a profile is one of hdd-7200"),
        ] {
            let sentence = parsed(&line).expect_err(&line);
            assert!(sentence.contains(words), "{line}: {sentence}");
            assert!(!sentence.contains('\n'), "{line}: {sentence}");
        }
    }

    #[test]
    fn serve_takes_several_addresses() {
        let cli = parsed("larder serve --flash f --nbd unix:/a --nbd tcp:127.0.0.1:0").expect("a good line");
        let Command::Serve(serve) = cli.command else { panic!("not serve") };
        assert_eq!(serve.nbd.len(), 2);
        assert_eq!(serve.destage_rate, 32 << 20);
    }
}
