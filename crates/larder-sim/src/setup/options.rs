//! The options of a cache to replay, and their names.
//!
//! It does not know which design has which.

use super::drive::DriveSetup;
use crate::executor::sizing::Granularity;
use larder_core::slotted::Orphans;

/// The costs that are charged to a cache, and so its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounting {
    /// The engine's costs, and its steps: the [executor](crate::executor) of all designs.
    #[default]
    Engine,
    /// The costs and steps of the design's paper.
    Paper,
}

impl Accounting {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Accounting::Engine => "engine",
            Accounting::Paper => "paper",
        }
    }
}

/// Options of some designs, and the drive beneath, for any. `None` leaves the choice to the design.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// True if a content is stored once.
    pub dedup: Option<bool>,
    /// True if chunks are stored compressed.
    pub compress: Option<bool>,
    /// Bytes of a subchunk (AustereCache §3.2).
    pub subchunk_bytes: Option<u32>,
    /// Addresses that the cache can know, those without data included.
    pub lba_entries: Option<u64>,
    /// Bytes of RAM that the index may take.
    pub ram_bytes: Option<u64>,
    /// Bytes of a WEU.
    pub weu_bytes: Option<u32>,
    /// Fingerprints kept, in percent of the most possible (Nitro §3.2).
    pub fp_index_percent: Option<u8>,
    /// The unit of eviction.
    pub granularity: Option<Granularity>,
    /// The fate of data without an address (CacheDedup §3.1).
    pub orphans: Option<Orphans>,
    /// The costs that are charged; by default the engine's.
    pub accounting: Option<Accounting>,
    /// The drive that the flash lies on; by default none is simulated.
    pub drive: Option<DriveSetup>,
}

/// An option by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OptionId {
    Dedup,
    Compress,
    Subchunk,
    LbaEntries,
    Ram,
    Weu,
    FpIndex,
    Granularity,
    Orphans,
    Accounting,
}

impl OptionId {
    /// All options.
    pub const ALL: [OptionId; 10] = [
        OptionId::Dedup,
        OptionId::Compress,
        OptionId::Subchunk,
        OptionId::LbaEntries,
        OptionId::Ram,
        OptionId::Weu,
        OptionId::FpIndex,
        OptionId::Granularity,
        OptionId::Orphans,
        OptionId::Accounting,
    ];

    /// Returns the name on the command line, without its dashes.
    pub fn name(self) -> &'static str {
        match self {
            OptionId::Dedup => "dedup",
            OptionId::Compress => "compress",
            OptionId::Subchunk => "subchunk",
            OptionId::LbaEntries => "lba-entries",
            OptionId::Ram => "ram",
            OptionId::Weu => "weu",
            OptionId::FpIndex => "fp-index",
            OptionId::Granularity => "granularity",
            OptionId::Orphans => "orphans",
            OptionId::Accounting => "accounting",
        }
    }
}

impl Options {
    /// Returns the options that were given.
    pub fn given(&self) -> impl Iterator<Item = OptionId> {
        let given = *self;
        OptionId::ALL.into_iter().filter(move |id| given.has(*id))
    }

    fn has(&self, id: OptionId) -> bool {
        match id {
            OptionId::Dedup => self.dedup.is_some(),
            OptionId::Compress => self.compress.is_some(),
            OptionId::Subchunk => self.subchunk_bytes.is_some(),
            OptionId::LbaEntries => self.lba_entries.is_some(),
            OptionId::Ram => self.ram_bytes.is_some(),
            OptionId::Weu => self.weu_bytes.is_some(),
            OptionId::FpIndex => self.fp_index_percent.is_some(),
            OptionId::Granularity => self.granularity.is_some(),
            OptionId::Orphans => self.orphans.is_some(),
            OptionId::Accounting => self.accounting.is_some(),
        }
    }
}
