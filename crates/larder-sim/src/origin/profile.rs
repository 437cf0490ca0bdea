//! Named origins: their figures, the sources of these, and their ranges.
//!
//! Role: [`PROFILES`] is the one list. [`OriginProfile::check`] refuses figures that cannot hold,
//! and names the field and its range.
//!
//! Invariant: every profile of the list is sound.
//!
//! It leaves the meaning of the figures for a queue to each medium's file.

use larder_ssd::{geometry::OutOfRange, time::Nanos};

/// The largest origin, in bytes: a pebibyte.
pub const SIZE_BYTES_MAX: u64 = 1 << 50;
/// The longest time, in nanoseconds: ten seconds.
pub const TIME_NS_MAX: u64 = 10_000_000_000;
/// The most bytes, or operations, a second.
pub const RATE_MAX: u64 = 1_000_000_000_000;
/// The fewest bytes a second.
pub const BYTES_PER_SECOND_MIN: u64 = 1_000;
/// Turns a minute.
pub const RPM: std::ops::RangeInclusive<u64> = 1_000..=60_000;
/// The most requests among which an arm chooses.
pub const QUEUE_DEPTH_MAX: u64 = 1 << 16;
/// The most disks of an array.
pub const DISKS_MAX: u64 = 256;
/// The smallest and the largest stripe unit, in bytes; it is a multiple of the smallest.
pub const STRIPE_UNIT_BYTES: std::ops::RangeInclusive<u64> = 512..=1 << 30;
/// The most channels of a flash drive.
pub const CHANNELS_MAX: u64 = 1 << 12;

/// A rotating disk: times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFigures {
    /// Turns a minute.
    pub rpm: u64,
    /// A seek to the next track.
    pub seek_track_ns: Nanos,
    /// A seek between two random places, on the mean.
    pub seek_mean_ns: Nanos,
    /// The rate at the outer edge, in bytes a second.
    pub outer_bytes_per_second: u64,
    /// The rate at the inner edge, in bytes a second.
    pub inner_bytes_per_second: u64,
    /// The command's own time, beside the rest. In a read by the arm it passes during the seek.
    pub command_ns: Nanos,
    /// The rate between the buffer and the host, in bytes a second.
    pub interface_bytes_per_second: u64,
    /// The bytes that the head reads ahead; 0: none.
    pub read_ahead_bytes: u64,
    /// Requests among which the arm chooses.
    pub queue_depth: u64,
    /// The wait after which the oldest request goes first.
    pub age_max_ns: Nanos,
}

/// Disks as RAID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaidFigures {
    /// The number of disks.
    pub disks: u32,
    /// The disks with parity in a row: 1 is RAID 5, 2 is RAID 6.
    pub parity_disks: u32,
    /// Bytes of one disk before the next one's.
    pub stripe_unit_bytes: u64,
    /// The figures of each disk.
    pub disk: DiskFigures,
}

/// A flash drive by its data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashFigures {
    /// The time until the flash has read.
    pub read_ns: Nanos,
    /// The time until the drive's buffer has a write, beside the interface's time.
    pub write_ns: Nanos,
    /// The least time of a command on the interface: it bounds the operations a second.
    pub command_ns: Nanos,
    /// The rate of sequential reads.
    pub read_bytes_per_second: u64,
    /// The rate of sequential writes.
    pub write_bytes_per_second: u64,
    /// The reads that the flash makes at the same time.
    pub channels: u64,
}

/// A volume behind a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFigures {
    /// The latency of a read, beside the gate.
    pub read_ns: Nanos,
    /// The latency of a write, beside the gate.
    pub write_ns: Nanos,
    /// The cap of operations.
    pub operations_per_second: u64,
    /// The size beyond which a request counts as several operations.
    pub operation_bytes: u64,
    /// The cap of bytes.
    pub bytes_per_second: u64,
}

/// The figures of an origin, by its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFigures {
    /// One rotating disk.
    Disk(DiskFigures),
    /// Several, as RAID 5 or 6.
    Raid(RaidFigures),
    /// A flash drive.
    Flash(FlashFigures),
    /// A volume behind a network.
    Network(NetworkFigures),
}

/// An origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginProfile {
    /// The name.
    pub name: &'static str,
    /// The medium, and the source of its figures.
    pub about: &'static str,
    /// The figures.
    pub figures: OriginFigures,
}

/// The disk of all profiles with disks.
pub const DISK_7200: DiskFigures = DiskFigures {
    rpm: 7200,
    seek_track_ns: 800_000,
    seek_mean_ns: 8_500_000,
    outer_bytes_per_second: 180_000_000,
    inner_bytes_per_second: 100_000_000,
    command_ns: 100_000,
    interface_bytes_per_second: 550_000_000,
    read_ahead_bytes: 2 << 20,
    queue_depth: 32,
    age_max_ns: 1_000_000_000,
};

/// All profiles.
pub const PROFILES: &[OriginProfile] = &[
    OriginProfile {
        name: "hdd-7200",
        about: "a 3.5-inch SATA disk of 7,200 turns a minute, its write cache off. Mean seek of 8.5 ms and latency of 4.17 ms: \
                Hitachi's specification of the Deskstar 7K1000.C, table 9. Typical of the class: 0.8 ms to the next track, 180 \
                MB/s outside and 100 MB/s inside, 0.1 ms a command but a read by the arm. It reads 2 MiB ahead. NCQ queues 32 commands",
        figures: OriginFigures::Disk(DISK_7200),
    },
    OriginProfile {
        name: "raid5-7200",
        about: "five such disks as RAID 5, in stripe units of 64 KiB, no cache of its own",
        figures: OriginFigures::Raid(RaidFigures {
            disks: 5,
            parity_disks: 1,
            stripe_unit_bytes: 64 << 10,
            disk: DISK_7200,
        }),
    },
    OriginProfile {
        name: "raid6-7200",
        about: "six such disks as RAID 6, in stripe units of 64 KiB, no cache of its own: as much data as raid5-7200",
        figures: OriginFigures::Raid(RaidFigures {
            disks: 6,
            parity_disks: 2,
            stripe_unit_bytes: 64 << 10,
            disk: DISK_7200,
        }),
    },
    OriginProfile {
        name: "sata-ssd",
        about: "a SATA SSD for consumers: Samsung's data sheet of the 860 EVO has 550 and 520 MB/s. It has random reads of 4 KiB 10,000 a \
                second at depth 1 and 98,000 at depth 32, writes 42,000 at depth 1",
        figures: OriginFigures::Flash(FlashFigures {
            read_ns: 90_000,
            write_ns: 14_000,
            command_ns: 10_000,
            read_bytes_per_second: 550_000_000,
            write_bytes_per_second: 520_000_000,
            channels: 32,
        }),
    },
    OriginProfile {
        name: "nvme-ssd",
        about: "an NVMe SSD for consumers: Samsung's data sheet of the 970 EVO has 3,400 and 2,500 MB/s. It has random reads of 4 KiB \
                15,000 a second at depth 1 and 500,000 at depth 128, writes 50,000 at depth 1",
        figures: OriginFigures::Flash(FlashFigures {
            read_ns: 66_000,
            write_ns: 18_000,
            command_ns: 2_000,
            read_bytes_per_second: 3_400_000_000,
            write_bytes_per_second: 2_500_000_000,
            channels: 128,
        }),
    },
    OriginProfile {
        name: "network",
        about: "a network volume with the baseline of Amazon EBS gp3 (\"Amazon EBS volume types\"): 3,000 operations of at most 256 KiB \
                a second, 125 MiB/s. Its latency is documented as single-digit milliseconds; the smallest is taken, 1 ms",
        figures: OriginFigures::Network(NetworkFigures {
            read_ns: 1_000_000,
            write_ns: 1_000_000,
            operations_per_second: 3_000,
            operation_bytes: 256 << 10,
            bytes_per_second: 125 << 20,
        }),
    },
];

fn within(field: &'static str, value: u64, from: u64, to: u64) -> Result<(), OutOfRange> {
    if (from..=to).contains(&value) {
        return Ok(());
    }
    Err(OutOfRange::new(field, value, format!("from {from} to {to}")))
}

/// Checks a time that may not be 0.
fn time(field: &'static str, value: Nanos) -> Result<(), OutOfRange> {
    within(field, value, 1, TIME_NS_MAX)
}

fn rate(field: &'static str, value: u64) -> Result<(), OutOfRange> {
    within(field, value, BYTES_PER_SECOND_MIN, RATE_MAX)
}

impl DiskFigures {
    /// Returns the nanoseconds of a turn.
    pub fn turn_ns(&self) -> Nanos {
        60_000_000_000 / self.rpm
    }

    fn check(&self) -> Result<(), OutOfRange> {
        within("rpm", self.rpm, *RPM.start(), *RPM.end())?;
        time("seek_track_ns", self.seek_track_ns)?;
        within("seek_mean_ns", self.seek_mean_ns, self.seek_track_ns, TIME_NS_MAX)?;
        rate("inner_bytes_per_second", self.inner_bytes_per_second)?;
        within("outer_bytes_per_second", self.outer_bytes_per_second, self.inner_bytes_per_second, RATE_MAX)?;
        time("command_ns", self.command_ns)?;
        rate("interface_bytes_per_second", self.interface_bytes_per_second)?;
        within("read_ahead_bytes", self.read_ahead_bytes, 0, SIZE_BYTES_MAX)?;
        within("queue_depth", self.queue_depth, 1, QUEUE_DEPTH_MAX)?;
        time("age_max_ns", self.age_max_ns)
    }
}

impl RaidFigures {
    fn check(&self) -> Result<(), OutOfRange> {
        within("parity_disks", self.parity_disks.into(), 1, 2)?;
        within("disks", self.disks.into(), u64::from(self.parity_disks) + 2, DISKS_MAX)?;
        let (least, most) = (*STRIPE_UNIT_BYTES.start(), *STRIPE_UNIT_BYTES.end());
        within("stripe_unit_bytes", self.stripe_unit_bytes, least, most)?;
        if !self.stripe_unit_bytes.is_multiple_of(least) {
            let range = format!("a multiple of {least}");
            return Err(OutOfRange::new("stripe_unit_bytes", self.stripe_unit_bytes, range));
        }
        self.disk.check()
    }
}

impl FlashFigures {
    fn check(&self) -> Result<(), OutOfRange> {
        time("read_ns", self.read_ns)?;
        time("write_ns", self.write_ns)?;
        time("command_ns", self.command_ns)?;
        rate("read_bytes_per_second", self.read_bytes_per_second)?;
        rate("write_bytes_per_second", self.write_bytes_per_second)?;
        within("channels", self.channels, 1, CHANNELS_MAX)
    }
}

impl NetworkFigures {
    fn check(&self) -> Result<(), OutOfRange> {
        time("read_ns", self.read_ns)?;
        time("write_ns", self.write_ns)?;
        within("operations_per_second", self.operations_per_second, 1, RATE_MAX)?;
        within("operation_bytes", self.operation_bytes, 512, SIZE_BYTES_MAX)?;
        rate("bytes_per_second", self.bytes_per_second)
    }
}

impl OriginProfile {
    /// Returns the profile of this name.
    pub fn named(name: &str) -> Option<OriginProfile> {
        PROFILES.iter().find(|profile| profile.name == name).copied()
    }

    /// Checks the figures.
    ///
    /// # Errors
    /// The first figure outside its range.
    pub fn check(&self) -> Result<(), OutOfRange> {
        match &self.figures {
            OriginFigures::Disk(figures) => figures.check(),
            OriginFigures::Raid(figures) => figures.check(),
            OriginFigures::Flash(figures) => figures.check(),
            OriginFigures::Network(figures) => figures.check(),
        }
    }
}
