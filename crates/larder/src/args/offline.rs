//! The options of the commands that read an unserved flash: `larder verify` and `larder dump`.
//!
//! It checks options against each other only as far as clap can; the commands do the rest.

use crate::size;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

const VERIFY_EXAMPLES: &str = "\
Examples:
  larder verify --flash /ssd/cache
  larder verify --flash /ssd/cache --json | jq .problems
  larder verify --flash /ssd/cache --repair --dry-run     (tells the work of a repair, and its losses)
  larder verify --flash /ssd/cache --repair

A repair makes the cache one that opens. It forgets damaged records: clean data is on the origin. Dirty data is lost,
and the repair names each range of the volume that had it. It writes to the flash alone.

Exit codes:
  0  nothing is wrong, or all was repaired and nothing lost
  1  something is damaged, or could not be repaired
  2  wrong usage
  3  repaired, but data is lost or may be older than it was (with --dry-run: it would be)";

const DUMP_EXAMPLES: &str = "\
Examples:
  larder dump --flash /ssd/cache
  larder dump --flash /ssd/cache checkpoint --area 1
  larder dump --flash /ssd/cache checkpoint --block 2    (the entries of that block)
  larder dump --flash /ssd/cache log --limit 20
  larder dump --flash /ssd/cache log --all               (every whole frame that lies in the log, old ones too)
  larder dump --flash /ssd/cache mappings --json | jq '.mappings[0]'
  larder dump --flash /ssd/cache history --lba 4711      (all that checkpoint and log say of a chunk)
  larder dump --flash /ssd/cache record --lba 4711 --hex
  larder dump --flash /ssd/cache segments --slot 3";

/// `larder verify`.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub struct VerifyArgs {
    /// The flash of the cache
    #[arg(long, value_name = "PATH")]
    pub flash: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Forget all that is damaged, so that the cache opens; names the cost
    #[arg(long)]
    pub repair: bool,
    /// Name the actions of a repair, and write nothing
    #[arg(long, requires = "repair")]
    pub dry_run: bool,
    /// Forget also dirty data that may have been overwritten in a lost part of the log
    #[arg(long, requires = "repair")]
    pub drop_suspect: bool,
    /// Take data that the device fails to read for lost; without this, nothing is written if a read
    /// failed
    #[arg(long, requires = "repair")]
    pub unread_is_lost: bool,
    /// The state directory, if it is not where the flash was served with it
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub state: Option<PathBuf>,
    /// Repair the flash also if its state directory knows a newer one, or is lost
    #[arg(long, requires = "repair")]
    pub adopt: bool,
}

/// `larder dump`.
#[derive(Debug, Args)]
#[command(after_help = DUMP_EXAMPLES)]
pub struct DumpArgs {
    /// The part to print
    #[arg(value_name = "PART", default_value = "superblock")]
    pub part: DumpPart,
    /// The flash of the cache
    #[arg(long, value_name = "PATH")]
    pub flash: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print this many entries at most
    #[arg(long, value_name = "N", default_value = "100", allow_negative_numbers = true)]
    pub limit: usize,
    /// checkpoint: the content of this area, 0 or 1, whichever the superblock names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=1), allow_negative_numbers = true)]
    pub area: Option<u8>,
    /// checkpoint: the entries of the block with this number
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub block: Option<u32>,
    /// log: every whole frame that lies in the log, not only those since the checkpoint
    #[arg(long)]
    pub all: bool,
    /// log: the frame at this flash offset; record: the one at this flash offset
    #[arg(long, value_name = "OFFSET", value_parser = size::parse, allow_hyphen_values = true)]
    pub at: Option<u64>,
    /// segments: those of this slot of the flash, a free one too
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub slot: Option<u32>,
    /// record, history, mappings: of the chunk with this number
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub lba: Option<u64>,
    /// record: its content, too
    #[arg(long)]
    pub hex: bool,
}

/// Parts of a flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpPart {
    /// The fields of the superblocks
    Superblock,
    /// The division of the flash
    Layout,
    /// A checkpoint and its blocks, or the entries of one
    Checkpoint,
    /// Frames and entries of the metadata log
    Log,
    /// The slots of the flash: of WEUs, chunks or subchunks
    Slots,
    /// Mappings, by address, with the place of each; trimmed runs apart
    Mappings,
    /// Trimmed runs that the origin does not know of yet, by address
    Trims,
    /// The fingerprints of the FP index, least recent first
    Fingerprints,
    /// Segments in the slots, and their records
    Segments,
    /// One record: of a chunk, or at a place
    Record,
    /// All entries of checkpoint and log for a chunk
    History,
}

impl DumpPart {
    /// Returns true if the command prints the part in its stored form.
    ///
    /// Such a part does not need the tables of an opening.
    pub fn reads_as_it_lies(self) -> bool {
        matches!(self, DumpPart::Superblock | DumpPart::Layout | DumpPart::Checkpoint | DumpPart::Log)
    }
}
