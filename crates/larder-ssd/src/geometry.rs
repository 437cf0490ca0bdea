//! The geometry of a drive, and the numbers of its parts.
//!
//! Role: [`DriveGeometry`] counts packages, dies, planes, blocks and pages. It refuses numbers that
//! cannot hold, and names the field, its value and its range.
//!
//! Numbers: block `b` lies in plane `b % planes`, so that blocks in a row lie in planes in a row.
//! Page `p` lies in block `p / pages_per_block`. So the entries of one block are side by side in
//! every table by page, and its plane costs a division and a remainder. A plane's die is
//! `plane % (packages × dies)`, and that `% packages` is its package. So blocks in a row lie in
//! packages in a row, then in other dies, then in other planes.
//!
//! Invariant: a `DriveGeometry` that [`DriveGeometry::check`] took has at most [`PAGES_MAX`] pages,
//! so that a `u32` numbers them and [`Ppa::NONE`] numbers no page. Derived counts are meant for
//! such geometries.
//!
//! It leaves times to `profile.rs`, and the use of blocks to the layers.

use std::{error::Error, fmt};

/// The most physical pages of a geometry: `u32::MAX` means no page.
pub const PAGES_MAX: u64 = u32::MAX as u64;
/// The most of packages, of dies a package, and of planes a die.
pub const PARALLEL_MAX: u32 = 1024;
/// The most pages a block.
pub const PAGES_PER_BLOCK_MAX: u32 = 1 << 16;
/// The smallest and the largest page, in bytes. A page is a power of two.
pub const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=1 << 20;
/// The most over-provisioning, in percent of the logical capacity.
pub const OVER_PROVISIONING_PERCENT_MAX: f64 = 1000.0;

/// A logical page: the host's address, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lpn(pub u32);

/// A physical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppa(pub u32);

impl Ppa {
    /// No page, in tables that have no room for an `Option`.
    pub const NONE: Ppa = Ppa(u32::MAX);

    /// Returns this page, unless it is [`Ppa::NONE`].
    pub fn some(self) -> Option<Ppa> {
        (self != Ppa::NONE).then_some(self)
    }
}

/// An erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A plane: it does one operation at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaneId(pub u32);

/// A number of a drive that cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The name of a field or a derived number.
    ///
    /// Fields are those of [`DriveGeometry`] or [`DriveProfile`](super::profile::DriveProfile).
    pub field: &'static str,
    /// The value.
    pub value: String,
    /// The allowed values.
    pub range: String,
}

impl OutOfRange {
    /// Refuses `value`.
    pub fn new(field: &'static str, value: impl ToString, range: impl Into<String>) -> Self {
        OutOfRange { field, value: value.to_string(), range: range.into() }
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is {}, but has to be {}", self.field, self.value, self.range)
    }
}

impl Error for OutOfRange {}

/// Refuses a `value` that is not `from` to `to`.
pub(super) fn within(field: &'static str, value: u32, from: u32, to: u32) -> Result<(), OutOfRange> {
    if (from..=to).contains(&value) {
        return Ok(());
    }
    Err(OutOfRange::new(field, value, format!("from {from} to {to}")))
}

/// The geometry of a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveGeometry {
    /// Flash packages, each with a bus of its own to the controller.
    pub packages: u32,
    /// Dies of a package.
    pub dies_per_package: u32,
    /// Planes of a die.
    pub planes_per_die: u32,
    /// Erase blocks of a plane.
    pub blocks_per_plane: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Bytes of data of a page; logical pages are as large.
    pub page_bytes: u32,
    /// Flash beyond the logical capacity, in percent of the logical capacity.
    ///
    /// It may be 0: the translation layer decides its need of spare blocks
    /// ([`DriveGeometry::check_spare_blocks`]).
    pub over_provisioning_percent: f64,
}

impl DriveGeometry {
    /// Refuses a geometry that cannot be built.
    ///
    /// # Errors
    /// The first field outside its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        within("packages", self.packages, 1, PARALLEL_MAX)?;
        within("dies_per_package", self.dies_per_package, 1, PARALLEL_MAX)?;
        within("planes_per_die", self.planes_per_die, 1, PARALLEL_MAX)?;
        within("blocks_per_plane", self.blocks_per_plane, 1, u32::MAX)?;
        within("pages_per_block", self.pages_per_block, 1, PAGES_PER_BLOCK_MAX)?;
        if !PAGE_BYTES.contains(&self.page_bytes) || !self.page_bytes.is_power_of_two() {
            let range = format!("a power of two from {} to {}", PAGE_BYTES.start(), PAGE_BYTES.end());
            return Err(OutOfRange::new("page_bytes", self.page_bytes, range));
        }
        let percent = self.over_provisioning_percent;
        if !(0.0..=OVER_PROVISIONING_PERCENT_MAX).contains(&percent) {
            let range = format!("from 0 to {OVER_PROVISIONING_PERCENT_MAX}");
            return Err(OutOfRange::new("over_provisioning_percent", percent, range));
        }
        // At most 2^30 planes, 2^32 blocks each and 2^16 pages: a u128 holds all of it.
        let planes = u128::from(self.packages) * u128::from(self.dies_per_package) * u128::from(self.planes_per_die);
        let pages = planes * u128::from(self.blocks_per_plane) * u128::from(self.pages_per_block);
        if pages > u128::from(PAGES_MAX) {
            let range = format!("at most {PAGES_MAX}: fewer blocks, or larger pages");
            return Err(OutOfRange::new("physical pages", pages, range));
        }
        if self.logical_pages() == 0 {
            return Err(OutOfRange::new("logical pages", 0, "at least 1"));
        }
        Ok(())
    }

    /// Refuses fewer than `blocks` blocks of a plane beyond its share of the logical capacity.
    ///
    /// # Errors
    /// Names `over_provisioning_percent`, and the present and required spare blocks.
    pub fn check_spare_blocks(&self, blocks: u64) -> Result<(), OutOfRange> {
        let spare = self.spare_blocks_per_plane();
        if spare >= blocks {
            return Ok(());
        }
        let range = format!(
            "so much that a plane of {} blocks has at least {blocks} spare; it has {spare}",
            self.blocks_per_plane
        );
        Err(OutOfRange::new("over_provisioning_percent", self.over_provisioning_percent, range))
    }

    /// Refuses a write-evict unit without a place on this drive, or not of whole erase blocks.
    ///
    /// # Errors
    /// Names the bytes, the size of a block, and the logical capacity.
    pub fn check_weu(&self, weu_bytes: u64) -> Result<(), OutOfRange> {
        let (block, capacity) = (self.block_bytes(), self.logical_bytes());
        if weu_bytes > 0 && weu_bytes <= capacity && weu_bytes.is_multiple_of(block) {
            return Ok(());
        }
        let range = format!("whole erase blocks of {block}, and at most {capacity} (the drive's capacity)");
        Err(OutOfRange::new("weu_bytes", weu_bytes, range))
    }

    /// Returns the planes of all dies.
    pub fn planes(&self) -> u32 {
        self.packages * self.dies_per_package * self.planes_per_die
    }

    /// Returns the blocks of all planes.
    pub fn blocks(&self) -> u32 {
        self.planes() * self.blocks_per_plane
    }

    /// Returns the physical pages.
    pub fn pages(&self) -> u32 {
        self.blocks() * self.pages_per_block
    }

    /// Returns the pages that the host can address: all, less the over-provisioning.
    pub fn logical_pages(&self) -> u32 {
        (f64::from(self.pages()) / (1.0 + self.over_provisioning_percent / 100.0)) as u32
    }

    /// Returns the bytes that the host can address.
    pub fn logical_bytes(&self) -> u64 {
        u64::from(self.logical_pages()) * u64::from(self.page_bytes)
    }

    /// Returns the bytes of flash.
    pub fn physical_bytes(&self) -> u64 {
        u64::from(self.pages()) * u64::from(self.page_bytes)
    }

    /// Returns the bytes of an erase block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.pages_per_block) * u64::from(self.page_bytes)
    }

    /// Returns the whole blocks of a plane that evenly spread logical pages would leave free.
    pub fn spare_blocks_per_plane(&self) -> u64 {
        let used = u64::from(self.logical_pages()).div_ceil(u64::from(self.planes()));
        u64::from(self.blocks_per_plane).saturating_sub(used.div_ceil(u64::from(self.pages_per_block)))
    }

    /// Returns the block of a page.
    pub fn block_of(&self, ppa: Ppa) -> BlockId {
        BlockId(ppa.0 / self.pages_per_block)
    }

    /// Returns the place of a page in its block, from 0.
    pub fn page_in_block(&self, ppa: Ppa) -> u32 {
        ppa.0 % self.pages_per_block
    }

    /// Returns page `page` of `block`.
    pub fn ppa(&self, block: BlockId, page: u32) -> Ppa {
        Ppa(block.0 * self.pages_per_block + page)
    }

    /// Returns the plane of a block.
    pub fn plane_of(&self, block: BlockId) -> PlaneId {
        PlaneId(block.0 % self.planes())
    }

    /// Returns block `index` of `plane`, of `blocks_per_plane`.
    pub fn block_in_plane(&self, plane: PlaneId, index: u32) -> BlockId {
        BlockId(index * self.planes() + plane.0)
    }
}
