//! A cache to replay, a design of caches, and a cache that was made.
//!
//! It makes no cache, and lists no design.

use super::options::{Accounting, OptionId, Options};
use crate::{
    cache::{ReplayCache, WritePolicy},
    host::Host,
};
use larder_core::{NamedDesign, slotted::FlashSize};
use std::fmt;

/// A requested amount of flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlashAmount {
    /// So many bytes, for data and metadata together.
    Bytes(u64),
    /// This share of the working set, in percent, for data and metadata together.
    PercentOfWorkingSet(f64),
    /// Room for so many data chunks; metadata comes on top.
    DataChunks(u64),
}

impl FlashAmount {
    /// Returns it in bytes or chunks, for a working set of `working_set_chunks` (only a share needs
    /// it).
    ///
    /// # Errors
    /// A sentence, if nothing is left.
    pub fn resolve(self, working_set_chunks: u64, chunk_bytes: u32) -> Result<FlashSize, String> {
        match self {
            FlashAmount::Bytes(bytes) => Ok(FlashSize::Bytes(bytes)),
            FlashAmount::DataChunks(chunks) => Ok(FlashSize::DataChunks(chunks)),
            FlashAmount::PercentOfWorkingSet(percent) => {
                let working_set = working_set_chunks as f64 * f64::from(chunk_bytes);
                let bytes = (working_set * percent / 100.0) as u64;
                if bytes == 0 {
                    return Err(format!("{self} of a working set of {working_set} bytes is no flash at all"));
                }
                Ok(FlashSize::Bytes(bytes))
            }
        }
    }
}

impl fmt::Display for FlashAmount {
    /// Writes it as on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashAmount::Bytes(bytes) => write!(f, "{bytes}"),
            FlashAmount::PercentOfWorkingSet(percent) => write!(f, "{percent}%"),
            FlashAmount::DataChunks(chunks) => write!(f, "{chunks}c"),
        }
    }
}

/// A cache to replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Its design.
    pub design: &'static ReplayDesign,
    /// Bytes of a chunk: a power of two.
    pub chunk_bytes: u32,
    /// Its flash.
    pub flash: FlashAmount,
    /// The moment when writes reach the origin.
    pub policy: WritePolicy,
    /// Its other options.
    pub options: Options,
}

/// A cache that was made.
pub struct Built {
    /// The cache.
    pub cache: Box<dyn ReplayCache>,
    /// Bytes of flash that it takes, metadata included.
    pub flash_bytes: u64,
    /// The part of them for chunks.
    pub data_bytes: u64,
    /// The drive that the flash lies on, if one is simulated.
    pub drive: Option<Box<Host>>,
}

/// A design by name.
pub struct ReplayDesign {
    /// The name on the command line.
    pub name: &'static str,
    /// A description in a few words.
    pub about: &'static str,
    /// True if the design stores a content once, unless an option decides that.
    pub dedups: bool,
    /// The options that the design takes.
    pub options: &'static [OptionId],
    /// Those that it takes besides in its paper's accounting.
    pub paper_options: &'static [OptionId],
    /// The row of `larder-core`'s table.
    pub(super) row: NamedDesign,
    /// Sizes the cache as the engine does.
    pub(super) build: Build,
    /// Sizes the cache of its paper's accounting, if there is one.
    pub(super) build_paper: Option<Build>,
}

/// Sizes a cache and makes it.
pub(super) type Build = fn(&Setup, FlashSize) -> Result<Built, String>;

impl PartialEq for ReplayDesign {
    fn eq(&self, other: &ReplayDesign) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for ReplayDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl ReplayDesign {
    /// Returns whether it takes this option in this accounting.
    pub fn takes(&self, id: OptionId, accounting: Accounting) -> bool {
        self.options.contains(&id) || accounting == Accounting::Paper && self.paper_options.contains(&id)
    }
}

impl Options {
    /// Returns the options given here or else in `others`, if `design` has them.
    ///
    /// So options for several designs go to those that have them.
    pub fn or_from(&self, others: &Options, design: &ReplayDesign) -> Options {
        let takes_one = design.takes(OptionId::Accounting, Accounting::Engine);
        let accounting = self.accounting.or(others.accounting.filter(|_| takes_one));
        let has = |id| design.takes(id, accounting.unwrap_or_default());
        Options {
            dedup: self.dedup.or(others.dedup.filter(|_| has(OptionId::Dedup))),
            compress: self.compress.or(others.compress.filter(|_| has(OptionId::Compress))),
            subchunk_bytes: self.subchunk_bytes.or(others.subchunk_bytes.filter(|_| has(OptionId::Subchunk))),
            lba_entries: self.lba_entries.or(others.lba_entries.filter(|_| has(OptionId::LbaEntries))),
            ram_bytes: self.ram_bytes.or(others.ram_bytes.filter(|_| has(OptionId::Ram))),
            weu_bytes: self.weu_bytes.or(others.weu_bytes.filter(|_| has(OptionId::Weu))),
            fp_index_percent: self.fp_index_percent.or(others.fp_index_percent.filter(|_| has(OptionId::FpIndex))),
            granularity: self.granularity.or(others.granularity.filter(|_| has(OptionId::Granularity))),
            orphans: self.orphans.or(others.orphans.filter(|_| has(OptionId::Orphans))),
            accounting,
            drive: self.drive.or(others.drive),
        }
    }
}
