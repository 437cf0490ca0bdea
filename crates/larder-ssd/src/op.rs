//! Operations of a translation layer on the flash, with their causes and their listeners.
//!
//! Role: [`FlashOp`] is one operation, and [`Cause`] indexes the counts. An [`OpSink`] hears of all
//! operations of a drive in the order in which the flash sees them. The model of time schedules
//! them; a test keeps a shadow flash with them.
//!
//! Invariant: an [`FlashOp::Program`] names the source of its bytes, so that a sink that hears all
//! operations knows the content of every page.
//!
//! It does not time an operation.

use larder_types::Fingerprint;

use super::geometry::{BlockId, Lpn, Ppa};

/// The cause of a read, a program or an erasure of flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A page that the host reads or writes.
    ///
    /// It may pass the drive's buffer, which the translation layer does not know.
    Host,
    /// Collection: valid pages leave a victim, and it is erased.
    Collection,
    /// Static wear levelling: still data moves to a worn block.
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
    /// Eviction: blocks that the drive erases with no copy made (Nitro section 6.1's modified SSD).
    Eviction,
}

impl Cause {
    /// The number of causes.
    pub const COUNT: usize = Cause::ALL.len();

    /// All causes, each at its own index.
    pub const ALL: [Cause; 11] = [
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
    ];

    /// Returns the name, as in reports: `snake_case`.
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
        }
    }
}

/// The source of a programmed page's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSource {
    /// The host's write of this logical page. The content is that of
    /// [`PageWrite`](super::ftl::PageWrite).
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
    /// The number of hashes.
    pub const COUNT: usize = 2;
}

/// An operation of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashOp {
    /// The read of a page.
    Read {
        /// The page.
        ppa: Ppa,
        /// The cause.
        cause: Cause,
    },
    /// The program of a page.
    Program {
        /// The page.
        ppa: Ppa,
        /// The source of its bytes.
        source: PageSource,
        /// The cause.
        cause: Cause,
    },
    /// The erasure of a block.
    Erase {
        /// The block.
        block: BlockId,
        /// The cause.
        cause: Cause,
    },
    /// The controller's hash of a page.
    Hash {
        /// The hash function.
        hash: Hash,
        /// The cause: the host's page, or out of line.
        cause: Cause,
    },
    /// The loss of a logical page that the drive has dropped by itself (silent eviction).
    ///
    /// It costs nothing; the host has to know.
    Evicted {
        /// The page.
        lpn: Lpn,
    },
}

/// A listener to all operations of a drive. Closures are sinks, too.
pub trait OpSink {
    /// Hears that `op` comes next.
    fn op(&mut self, op: &FlashOp);
}

impl<F: FnMut(&FlashOp)> OpSink for F {
    fn op(&mut self, op: &FlashOp) {
        self(op);
    }
}

/// A sink without effect, for users of the counts alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl OpSink for Nobody {
    fn op(&mut self, _: &FlashOp) {}
}
