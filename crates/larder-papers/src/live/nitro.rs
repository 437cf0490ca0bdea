//! Nitro's experiments on a system without data reduction of its own ("TPS", §6.2): Figure 7.
//!
//! The origin is five disks of 7,200 turns as RAID 5 (the paper: eleven), the flash a SATA SSD
//! (§5.4). Extents are of 8 KiB.
//!
//! It does not run the paper's other system ("COS"), which deduplicates on its disks: Larder has
//! none.

mod fig7;
mod fig8;
mod table2;

use super::rig::CacheOf;
use super::{Clocks, LiveRun, Source};
use crate::{
    Heading, StandIn,
    nitro::{EXTENT_BYTES, extents},
};
use larder_device::throttled::Profile;

const PAPER: &str = "Nitro (ATC '14)";
/// The media.
const DISK: Profile = Profile::Raid5Hdd7200;
const FLASH: Profile = Profile::SataSsd;

const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@nitro, in extents of 8 KiB",
    scale: 0.02,
    records: |scale| extents("webvm@nitro", scale),
};
const HOMES: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@nitro, in extents of 8 KiB",
    scale: 0.006,
    records: |scale| extents("homes@nitro", scale),
};
const MAIL: StandIn = StandIn {
    name: "Mail",
    about: "profile mail@nitro, in extents of 8 KiB",
    scale: 0.001,
    records: |scale| extents("mail@nitro", scale),
};

/// The paper's experiments.
pub static LIVE: &[LiveRun] = &[
    LiveRun {
        heading: Heading {
            name: "nitro-table2",
            paper: PAPER,
            figure: "Table 2",
            about: "IOPS and read response time of five variants against no cache, warm and cold",
        },
        source: Source::Traces(&[WEBVM, HOMES, MAIL]),
        clocks: Clocks::Either,
        run: table2::run,
    },
    LiveRun {
        heading: Heading {
            name: "nitro-fig7",
            paper: PAPER,
            figure: "Figure 7",
            about: "read response time by working set and deduplication",
        },
        source: Source::Made {
            name: "Random reads",
            about: "random reads of a working set of 1 to 10 times the cache, 1 to 10 times deduplicated",
            scale: 0.002,
        },
        clocks: Clocks::Either,
        run: fig7::run,
    },
    LiveRun {
        heading: Heading {
            name: "nitro-fig8",
            paper: PAPER,
            figure: "Figure 8",
            about: "overhead where nothing and where everything hits: a boot storm of 60 virtual machines",
        },
        source: Source::Made {
            name: "Boot storm",
            about: "60 boots of one made-up virtual machine, 90% of its contents shared",
            scale: 0.05,
        },
        clocks: Clocks::RealOnly("what it shows is computing"),
        run: fig8::run,
    },
];

/// The paper's name of a variant.
struct Variant {
    name: &'static str,
    design: &'static str,
    dedup: bool,
    compress: bool,
}

const fn variant(name: &'static str, design: &'static str, dedup: bool, compress: bool) -> Variant {
    Variant { name, design, dedup, compress }
}

const EXTENT: Variant = variant("Extent (ND, NC)", "lru", false, false);
const WEU: Variant = variant("WEU (ND, NC)", "nitro", false, false);
const WEU_C: Variant = variant("WEU (ND, C)", "nitro", false, true);
const WEU_D: Variant = variant("WEU (D, NC)", "nitro", true, false);
const WEU_DC: Variant = variant("WEU (D, C)", "nitro", true, true);

impl Variant {
    /// Returns a cache with room for so many bytes of unreduced extents.
    fn cache(&self, data_bytes: u64) -> Result<CacheOf, String> {
        let Variant { dedup, compress, .. } = *self;
        Ok(CacheOf { dedup, compress, ..CacheOf::named(self.design, EXTENT_BYTES, data_bytes)? })
    }
}
