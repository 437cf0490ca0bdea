//! Named drives: geometry, times, rated erase cycles, buffer and controller.
//!
//! Role: [`PROFILES`] names them, each with the source of its numbers. [`DriveProfile::scaled_to`]
//! makes one of any capacity, by the number of its blocks or by their size. Nitro section 5.4
//! varies "the size of each block or flash chip".
//!
//! Invariant: every profile of the table is sound, for time as well.
//!
//! It leaves the overlap of these times to the model of time.

use super::{
    geometry::{DriveGeometry, OutOfRange, PAGES_MAX, PAGES_PER_BLOCK_MAX},
    op::Hash,
};

/// The times of the parts of an operation, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the cells to the plane's register, a page.
    pub read_ns: u64,
    /// From the register to the cells, a page.
    pub program_ns: u64,
    /// A block.
    pub erase_ns: u64,
    /// A page over the package's bus, either way.
    pub transfer_ns: u64,
}

/// The drive's processor, as far as hashing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its clock.
    pub hz: u64,
    /// Cycles of SHA-1 over 4 KiB.
    pub sha1_cycles_4k: u64,
    /// Cycles of CRC32 over 4 KiB.
    pub crc32_cycles_4k: u64,
}

/// CAFTL Table 2's cycles on an ARM Cortex R4 at the fastest clock of its section 4.3.2.
///
/// That section varies 304, 392, 619, 934 MHz.
pub const CORTEX_R4: Controller = Controller { hz: 934_000_000, sha1_cycles_4k: 47_548, crc32_cycles_4k: 4_120 };

/// A drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveProfile {
    /// The name.
    pub name: &'static str,
    /// A description, and the source of its numbers.
    pub about: &'static str,
    /// The geometry.
    pub geometry: DriveGeometry,
    /// The times.
    pub timing: Timing,
    /// Erasures of blocks of other sizes: (bytes, nanoseconds) of a smaller and a larger block.
    ///
    /// Between them the time goes along a line. `None`: an erasure takes the same at any size of
    /// the block.
    pub erase_ns_by_block_bytes: Option<[(u64, u64); 2]>,
    /// Erasures that a block stands.
    pub rated_cycles: u32,
    /// RAM of the drive that holds writes until they are programmed, in bytes.
    pub buffer_bytes: u64,
    /// A plane collects when no more than this share of its blocks is free, in percent.
    pub collection_threshold_percent: f64,
    /// The processor.
    pub controller: Controller,
    /// The most that passes between the drive and its host, in bytes a second.
    pub link_bytes_per_second: u64,
    /// The geometry before it was cut to fewer planes, if it was.
    ///
    /// With a clock, its planes and buses are at work ([`time`](super::time)).
    pub cut_from: Option<DriveGeometry>,
}

/// SATA at 3 Gbit/s with 8b/10b coding, that of CAFTL's and Nitro's years.
pub const SATA_2: u64 = 300_000_000;
/// Four lanes of PCI Express 3.0 with 128b/130b coding.
pub const PCIE_3_X4: u64 = 3_938_000_000;

/// The number that varies to make a drive of another capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileScale {
    /// The number of blocks.
    Blocks,
    /// The size of each block, by its pages.
    BlockSize,
}

/// Erasures take 2 ms in blocks of 128 KiB and 3.8 ms in those of 2 MiB (Nitro section 5.4).
const NITRO_ERASE: [(u64, u64); 2] = [(128 << 10, 2_000_000), (2 << 20, 3_800_000)];

/// All profiles.
pub const PROFILES: &[DriveProfile] = &[
    DriveProfile {
        name: "caftl",
        about: "CAFTL's simulated drive: Tables 1 and 2, the 16 MB buffer and 934 MHz of its section 4.2. Its 8 \
                planes a package are 2 dies of 4 planes, and a page takes 100 us over the bus. These are of its simulator: Agrawal et al., Design Tradeoffs for SSD Performance (USENIX ATC 2008), Table 1. Rated \
                cycles: 10,000 to 100,000 are CAFTL section 1.2's; the smaller",
        geometry: DriveGeometry {
            packages: 10,
            dies_per_package: 2,
            planes_per_die: 4,
            blocks_per_plane: 2048,
            pages_per_block: 64,
            page_bytes: 4096,
            over_provisioning_percent: 15.0,
        },
        timing: Timing { read_ns: 25_000, program_ns: 200_000, erase_ns: 1_500_000, transfer_ns: 100_000 },
        erase_ns_by_block_bytes: None,
        rated_cycles: 10_000,
        buffer_bytes: 16 << 20,
        collection_threshold_percent: 5.0,
        controller: CORTEX_R4,
        link_bytes_per_second: SATA_2,
        cut_from: None,
    },
    DriveProfile {
        name: "nitro-mlc",
        about: "Nitro's simulated drive (section 5.4): blocks of 2 MiB that take 3.8 ms to erase, 7% \
                over-provisioning. The paper names Micron's MLC specification and no more. Typical figures of such parts: pages of 8 KiB, 50 us, 1.3 ms, 200 MB/s, 3,000 cycles. 256 GB as the drive \
                of its prototype",
        geometry: DriveGeometry {
            packages: 8,
            dies_per_package: 2,
            planes_per_die: 2,
            blocks_per_plane: 4096,
            pages_per_block: 256,
            page_bytes: 8192,
            over_provisioning_percent: 7.0,
        },
        timing: Timing { read_ns: 50_000, program_ns: 1_300_000, erase_ns: 3_800_000, transfer_ns: 41_000 },
        erase_ns_by_block_bytes: Some(NITRO_ERASE),
        rated_cycles: 3_000,
        buffer_bytes: 64 << 20,
        collection_threshold_percent: 1.0,
        controller: CORTEX_R4,
        link_bytes_per_second: SATA_2,
        cut_from: None,
    },
    DriveProfile {
        name: "tlc-nvme",
        about: "A 1 TB NVMe drive of TLC flash about 2020: reads of 45 us and programs of 450 us are Samsung's for its sixth-generation V-NAND (announcement of August 2019). The bus of 1.2 Gb/s a pin is in Kang et al., A 512Gb 3-bit/Cell 3D 6th-Generation V-NAND Flash Memory with 82MB/s Write Throughput and 1.2Gb/s \
                Interface (ISSCC 2019). It sells 1 TiB of flash as 1 TB: 9.95%. Typical figures of that class: 16 KiB \
                pages in blocks of 16 MiB, 3.5 ms to erase, 3,000 cycles",
        geometry: DriveGeometry {
            packages: 8,
            dies_per_package: 4,
            planes_per_die: 2,
            blocks_per_plane: 1024,
            pages_per_block: 1024,
            page_bytes: 16 << 10,
            over_provisioning_percent: 9.95,
        },
        timing: Timing { read_ns: 45_000, program_ns: 450_000, erase_ns: 3_500_000, transfer_ns: 13_653 },
        erase_ns_by_block_bytes: None,
        rated_cycles: 3_000,
        buffer_bytes: 64 << 20,
        collection_threshold_percent: 1.0,
        controller: CORTEX_R4,
        link_bytes_per_second: PCIE_3_X4,
        cut_from: None,
    },
    DriveProfile {
        name: "qlc-nvme",
        about: "A 4 TB NVMe drive of QLC flash about 2020: reads of 110 us, programs of 2 ms, 1.2 Gb/s a pin. The die is in Kim et al. (A 1Tb 4b/cell NAND Flash Memory with tPROG=2ms, tR=110us and 1.2Gb/s \
                High-Speed IO Rate, ISSCC 2020). It sells 4 TiB of flash as 4 TB: 9.95%. Typical figures of \
                that class: 16 KiB pages in blocks of 32 MiB, 5 ms to erase, 1,000 cycles",
        geometry: DriveGeometry {
            packages: 8,
            dies_per_package: 4,
            planes_per_die: 2,
            blocks_per_plane: 2048,
            pages_per_block: 2048,
            page_bytes: 16 << 10,
            over_provisioning_percent: 9.95,
        },
        timing: Timing { read_ns: 110_000, program_ns: 2_000_000, erase_ns: 5_000_000, transfer_ns: 13_653 },
        erase_ns_by_block_bytes: None,
        rated_cycles: 1_000,
        buffer_bytes: 256 << 20,
        collection_threshold_percent: 1.0,
        controller: CORTEX_R4,
        link_bytes_per_second: PCIE_3_X4,
        cut_from: None,
    },
];

impl DriveProfile {
    /// Finds the profile of this name.
    pub fn named(name: &str) -> Option<DriveProfile> {
        PROFILES.iter().find(|profile| profile.name == name).copied()
    }

    /// Refuses a drive whose erasures and wear cannot be counted.
    ///
    /// # Errors
    /// The first field outside its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        self.geometry.check()?;
        if self.rated_cycles == 0 {
            return Err(OutOfRange::new("rated_cycles", 0, "at least 1"));
        }
        Ok(())
    }

    /// Refuses a drive whose time cannot be modelled.
    ///
    /// # Errors
    /// The errors of [`DriveProfile::check`], and the first time or clock that is zero.
    pub fn check_time(&self) -> Result<(), OutOfRange> {
        self.check()?;
        let Timing { read_ns, program_ns, erase_ns, transfer_ns } = self.timing;
        let Controller { hz, sha1_cycles_4k, crc32_cycles_4k } = self.controller;
        let fields = [
            ("read_ns", read_ns),
            ("program_ns", program_ns),
            ("erase_ns", erase_ns),
            ("transfer_ns", transfer_ns),
            ("hz", hz),
            ("sha1_cycles_4k", sha1_cycles_4k),
            ("crc32_cycles_4k", crc32_cycles_4k),
            ("link_bytes_per_second", self.link_bytes_per_second),
        ];
        match fields.into_iter().find(|(_, value)| *value == 0) {
            Some((field, value)) => Err(OutOfRange::new(field, value, "at least 1 where time is asked for")),
            None => Ok(()),
        }
    }

    /// Computes the time in which the controller hashes a page, in nanoseconds.
    ///
    /// It is cycles by clock (CAFTL section 4.1.2), and by the page's size.
    pub fn hash_ns(&self, hash: Hash) -> u64 {
        let cycles = match hash {
            Hash::Sha1 => self.controller.sha1_cycles_4k,
            Hash::Crc32 => self.controller.crc32_cycles_4k,
        };
        let cycles = u128::from(cycles) * u128::from(self.geometry.page_bytes) / 4096;
        (cycles * 1_000_000_000 / u128::from(self.controller.hz.max(1))) as u64
    }

    /// Computes the time of a page over the host's link, in nanoseconds.
    pub fn link_ns(&self) -> u64 {
        u64::from(self.geometry.page_bytes) * 1_000_000_000 / self.link_bytes_per_second.max(1)
    }

    /// Scales this drive to room for at least `logical_bytes`, and hardly more.
    ///
    /// # Errors
    /// If that is more than 32 bits of pages number, or blocks would have more pages than any may.
    pub fn scaled_to(&self, logical_bytes: u64, scale: ProfileScale) -> Result<DriveProfile, OutOfRange> {
        let mut profile = *self;
        let geometry = &mut profile.geometry;
        let pages = logical_bytes.div_ceil(u64::from(geometry.page_bytes)).max(1) as f64;
        let pages = (pages * (1.0 + geometry.over_provisioning_percent / 100.0)).ceil();
        let most = self.capacity_max(scale);
        if logical_bytes > most {
            let range = format!("at most {most}: that and its spare pages are the most that there can be");
            return Err(OutOfRange::new("capacity", logical_bytes, range));
        }
        // The floor of `logical_pages` can lose a page: one more makes up for it.
        let pages = pages as u64 + u64::from(geometry.over_provisioning_percent > 0.0);
        match scale {
            ProfileScale::Blocks => {
                let a_row = u64::from(geometry.planes()) * u64::from(geometry.pages_per_block);
                geometry.blocks_per_plane = pages.div_ceil(a_row) as u32;
            }
            ProfileScale::BlockSize => {
                let size = pages.div_ceil(u64::from(geometry.blocks()));
                if size > u64::from(PAGES_PER_BLOCK_MAX) {
                    let range = format!("at most {PAGES_PER_BLOCK_MAX}: vary the number of blocks");
                    return Err(OutOfRange::new("pages_per_block", size, range));
                }
                geometry.pages_per_block = size as u32;
            }
        }
        profile.timing.erase_ns = profile.erase_ns();
        profile.geometry.check()?;
        Ok(profile)
    }

    /// Returns the largest capacity to which this drive can be [scaled](DriveProfile::scaled_to).
    ///
    /// A capacity is whole pages in whole rows of the fixed parts. A page number of 32 bits limits
    /// the pages, spare ones included. The result is 0 if not even one row has room.
    pub fn capacity_max(&self, scale: ProfileScale) -> u64 {
        let geometry = &self.geometry;
        let planes = [geometry.packages, geometry.dies_per_package, geometry.planes_per_die]
            .map(u128::from)
            .iter()
            .product::<u128>();
        let a_row = planes
            * u128::from(match scale {
                ProfileScale::Blocks => geometry.pages_per_block,
                ProfileScale::BlockSize => geometry.blocks_per_plane,
            });
        let rows = u128::from(PAGES_MAX) / a_row.max(1) * a_row;
        // `scaled_to` rounds up by one page.
        let physical = (rows as u64).saturating_sub(u64::from(geometry.over_provisioning_percent > 0.0));
        let part = 1.0 + geometry.over_provisioning_percent / 100.0;
        let mut pages = (physical as f64 / part) as u64;
        while (pages as f64 * part).ceil() > physical as f64 {
            pages -= 1;
        }
        pages * u64::from(geometry.page_bytes)
    }

    /// Computes the time to erase a block of this geometry's size.
    fn erase_ns(&self) -> u64 {
        let Some([(small, small_ns), (large, large_ns)]) = self.erase_ns_by_block_bytes else {
            return self.timing.erase_ns;
        };
        let bytes = self.geometry.block_bytes().clamp(small, large);
        small_ns + (large_ns - small_ns) * (bytes - small) / (large - small)
    }
}
