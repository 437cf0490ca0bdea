//! What a translation layer did to the flash: each operation, why it was done, and who is told.
//!
//! Role: [`Op`] is one operation, [`Cause`] indexes the counts, and a [`Sink`] hears of all operations of a drive in
//! the order in which the flash sees them. The model of time schedules them; a test keeps a shadow flash with them.
//!
//! Invariant: a [`Op::Program`] says where its bytes come from, so that who hears all operations knows what every page
//! holds.
//!
//! What it does not do: say when an operation starts or how long it takes.

use larder_core::Fingerprint;

use super::geometry::{BlockId, Lpn, Ppa};

/// Why flash was read, programmed or erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A page that the host reads or writes, straight or by way of the drive's buffer, which the translation layer does
    /// not know.
    Host,
    /// Collection: valid pages leave a victim, and it is erased.
    Collection,
    /// Static wear levelling: what lies still is moved to a worn block.
    WearLevelling,
    /// A merge of log blocks into data blocks (hybrid mapping), or a block freed by one.
    Merge,
    /// Pages that a merge programs with nothing, so that a block's pages come in order.
    MergePadding,
    /// Pages of metadata about pages, such as fingerprints (CAFTL section 3.3.3).
    Metadata,
    /// Journal of mapping changes (CAFTL section 3.3.2).
    Journal,
    /// Mapping tables written out or read in (CAFTL section 3.3.2).
    MapTable,
    /// Sorted runs of an external merge sort (CAFTL section 3.5).
    SortRun,
    /// Pages read to be fingerprinted out of line (CAFTL section 3.5).
    OutOfLine,
    /// What was dropped by the drive itself: blocks erased with no copy made (Nitro section 6.1's modified SSD).
    Eviction,
    /// What is read and written after power came back.
    Recovery,
}

impl Cause {
    /// How many there are.
    pub const COUNT: usize = Cause::ALL.len();

    /// All, each at its own index.
    pub const ALL: [Cause; 12] = [
        Cause::Host,
        Cause::Collection,
        Cause::WearLevelling,
        Cause::Merge,
        Cause::MergePadding,
        Cause::Metadata,
        Cause::Journal,
        Cause::MapTable,
        Cause::SortRun,
        Cause::OutOfLine,
        Cause::Eviction,
        Cause::Recovery,
    ];

    /// The name, as in reports: `snake_case`.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Host => "host",
            Cause::Collection => "collection",
            Cause::WearLevelling => "wear_levelling",
            Cause::Merge => "merge",
            Cause::MergePadding => "merge_padding",
            Cause::Metadata => "metadata",
            Cause::Journal => "journal",
            Cause::MapTable => "map_table",
            Cause::SortRun => "sort_run",
            Cause::OutOfLine => "out_of_line",
            Cause::Eviction => "eviction",
            Cause::Recovery => "recovery",
        }
    }
}

/// Where the bytes of a programmed page come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the host: what it writes to this logical page. The content is that of [`PageWrite`](super::ftl::PageWrite).
    Host(Lpn, Option<Fingerprint>),
    /// A copy of this physical page, as it is at that moment.
    Copy(Ppa),
    /// Nothing: the page is only programmed because its block's order asks for it.
    Padding,
    /// Tables, journal or metadata of the translation layer itself.
    Internal,
}

/// A hash that the controller computes of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// The fingerprint (CAFTL section 3.2.2).
    Sha1,
    /// The light-weight one (CAFTL section 3.4.2).
    Crc32,
}

impl Hash {
    /// How many there are.
    pub const COUNT: usize = 2;
}

/// One thing that a drive does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A page is read.
    Read {
        /// Which.
        ppa: Ppa,
        /// Why.
        cause: Cause,
    },
    /// A page is programmed.
    Program {
        /// Which.
        ppa: Ppa,
        /// With what.
        source: Source,
        /// Why.
        cause: Cause,
    },
    /// A block is erased.
    Erase {
        /// Which.
        block: BlockId,
        /// Why.
        cause: Cause,
    },
    /// The controller hashes a page.
    Hash {
        /// With what.
        hash: Hash,
        /// Why: of the host's page, or out of line.
        cause: Cause,
    },
    /// The drive has dropped a logical page by itself: from now on nothing is there (silent eviction). Costs nothing;
    /// the host has to know.
    Evicted {
        /// Which.
        lpn: Lpn,
    },
}

/// Who is told of all that a drive does. Closures are sinks, too.
pub trait Sink {
    /// `op` comes next.
    fn op(&mut self, op: &Op);
}

impl<F: FnMut(&Op)> Sink for F {
    fn op(&mut self, op: &Op) {
        self(op);
    }
}

/// Nobody: for who wants the counts alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Sink for Nobody {
    fn op(&mut self, _: &Op) {}
}
