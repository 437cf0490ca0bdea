//! The drive under the flash of a cache: a profile, a translation layer, and a capacity.
//!
//! Without a given capacity, a drive is as large as the flash of the cache, and hardly more. It is
//! cut from its profile: blocks and pages stay as they are, and there are fewer of them. Layers
//! have no room to work in if a plane has fewer than [`BLOCKS_PER_PLANE_MIN`] blocks. Then the
//! drive has fewer planes. If one plane is left, blocks have fewer pages, half as many at a time.
//! If a layer still has no room, it gets more and smaller blocks, up to [`BLOCKS_PER_PLANE_TRIED`]
//! a plane. With a clock the remaining planes stand for all of the profile's
//! ([`DriveProfile::cut_from`]), so that one cut serves erasures and time.
//!
//! A layer for write-evict units takes over the cache's units. A unit has to be whole blocks. If it
//! is not, blocks have fewer pages first, half as many at a time, until it is.
//!
//! A profile's over-provisioning is for layers that have to copy. Under a layer that drops data by
//! itself a drive has none, unless the user gives it. Its flash is then the cache's, rounded up to
//! whole rows of blocks, and the log lies on that.
//!
//! Drives that stand side by side have [one shape](super::with_equal_blocks), because erasures of
//! blocks of different sizes do not compare.
//!
//! Invariants: `with_all` refuses a number that cannot hold, with the field and its range. Planes
//! and pages of a block may be cut as above, given or not. Numbers that are given together hold or
//! do not, in any order.
//!
//! It leaves the placing of the flash on the drive to [`Host`].

use crate::host::Host;
use larder_ssd::{
    geometry::{
        DriveGeometry, OVER_PROVISIONING_PERCENT_MAX, OutOfRange, PAGE_BYTES, PAGES_MAX, PAGES_PER_BLOCK_MAX,
        PARALLEL_MAX,
    },
    kinds::FtlKind,
    profile::{DriveProfile, ProfileScale},
};

/// The fewest blocks of a plane of a drive that is cut to the size of a cache.
///
/// At 7% over-provisioning 8 of them are spare. A layer keeps one free, and writes up to four side
/// by side.
pub const BLOCKS_PER_PLANE_MIN: u32 = 128;
/// The largest minimum of blocks a plane that is tried if a layer has no room in fewer.
pub const BLOCKS_PER_PLANE_TRIED: u32 = 1024;
/// The parts of a percent in which a refusal names a sufficient over-provisioning.
const PERCENT_PARTS: f64 = 10.0;
/// The fewest pages of a block.
const PAGES_PER_BLOCK_MIN: u32 = 4;

/// The capacity of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The flash of the cache.
    OfCache,
    /// This many bytes for the host, or a little more; the cache uses the first of them.
    Bytes(u64),
}

/// The part of a drive that its capacity does not change: planes, and the size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveShape {
    /// Packages.
    pub packages: u32,
    /// Dies of a package.
    pub dies_per_package: u32,
    /// Planes of a die.
    pub planes_per_die: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
}

impl DriveShape {
    pub(super) fn of(geometry: &DriveGeometry) -> DriveShape {
        let DriveGeometry { packages, dies_per_package, planes_per_die, pages_per_block, .. } = *geometry;
        DriveShape { packages, dies_per_package, planes_per_die, pages_per_block }
    }

    /// Takes the lesser of each number.
    ///
    /// Drives are cut by halving, so the result suits both drives: their planes have more blocks.
    pub(super) fn least(self, other: DriveShape) -> DriveShape {
        DriveShape {
            packages: self.packages.min(other.packages),
            dies_per_package: self.dies_per_package.min(other.dies_per_package),
            planes_per_die: self.planes_per_die.min(other.planes_per_die),
            pages_per_block: self.pages_per_block.min(other.pages_per_block),
        }
    }

    fn give(self, geometry: &mut DriveGeometry) {
        let DriveShape { packages, dies_per_package, planes_per_die, pages_per_block } = self;
        *geometry = DriveGeometry { packages, dies_per_package, planes_per_die, pages_per_block, ..*geometry };
    }
}

/// A drive under a cache.
#[derive(Clone, Copy, Debug)]
pub struct DriveSetup {
    /// The hardware.
    pub profile: DriveProfile,
    /// The translation layer.
    pub ftl: &'static FtlKind,
    /// The capacity.
    pub capacity: Capacity,
    /// True if only the cache's chunks lie on it.
    ///
    /// Its metadata is elsewhere, as in a cache that keeps its indices in RAM.
    pub only_data: bool,
    /// Its planes and blocks, if given; otherwise it is cut as it needs.
    pub shape: Option<DriveShape>,
    /// True if the user gave the over-provisioning, which then holds under each layer.
    pub keeps_spare: bool,
}

impl PartialEq for DriveSetup {
    fn eq(&self, other: &DriveSetup) -> bool {
        let DriveSetup { profile, ftl, capacity, only_data, shape, keeps_spare } = other;
        let is_same = self.capacity == *capacity && self.only_data == *only_data && self.shape == *shape;
        is_same && self.keeps_spare == *keeps_spare && self.profile == *profile && self.ftl.name == ftl.name
    }
}

/// The kind of number that a field takes within its range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Any,
    Whole,
    PowerOfTwo,
}

/// A number of a drive that can be given.
struct Field {
    name: &'static str,
    /// The least and the most.
    range: (f64, f64),
    kind: FieldKind,
    set: fn(&mut DriveSetup, f64),
}

const fn whole(name: &'static str, range: (f64, f64), set: fn(&mut DriveSetup, f64)) -> Field {
    Field { name, range, kind: FieldKind::Whole, set }
}

const COUNT: (f64, f64) = (1.0, u32::MAX as f64);
const PARALLEL: (f64, f64) = (1.0, PARALLEL_MAX as f64);
/// Range of a part of an operation: at most 0.1 s, 20 times the longest of all profiles.
///
/// With the ranges below, no operation takes more than 0.25 s. A copy within a plane takes two
/// parts. SHA-1 over the largest page takes 0.12 s at the slowest clock, and that page takes 0.1 s
/// over the slowest link.
///
/// Traces end within 2^63 ns. A clock counts to 2^64, and the other half has room for 37 billion
/// operations, each of which waits for the one before. At a million a second, without overlap,
/// these take ten hours to model.
const TIME: (f64, f64) = (1.0, 100_000_000.0);
const CLOCK: (f64, f64) = (100_000_000.0, 100_000_000_000.0);
const LINK: (f64, f64) = (10_000_000.0, 1_000_000_000_000.0);
/// 1 TiB: it has fewer than 2^32 of the smallest pages.
const BUFFER: (f64, f64) = (0.0, (1u64 << 40) as f64);
/// The most is [`DriveProfile::capacity_max`] of the other numbers.
const CAPACITY: &str = "capacity";

/// All fields.
const FIELDS: &[Field] = &[
    whole(CAPACITY, (1.0, f64::INFINITY), |drive, value| drive.capacity = Capacity::Bytes(value as u64)),
    whole("packages", PARALLEL, |drive, value| drive.profile.geometry.packages = value as u32),
    whole("dies_per_package", PARALLEL, |drive, value| drive.profile.geometry.dies_per_package = value as u32),
    whole("planes_per_die", PARALLEL, |drive, value| drive.profile.geometry.planes_per_die = value as u32),
    whole("pages_per_block", (1.0, PAGES_PER_BLOCK_MAX as f64), |drive, value| {
        drive.profile.geometry.pages_per_block = value as u32;
    }),
    Field {
        name: "page_bytes",
        range: (*PAGE_BYTES.start() as f64, *PAGE_BYTES.end() as f64),
        kind: FieldKind::PowerOfTwo,
        set: |drive, value| drive.profile.geometry.page_bytes = value as u32,
    },
    Field {
        name: "over_provisioning_percent",
        range: (0.0, OVER_PROVISIONING_PERCENT_MAX),
        kind: FieldKind::Any,
        set: |drive, value| {
            drive.profile.geometry.over_provisioning_percent = value;
            drive.keeps_spare = true;
        },
    },
    Field {
        name: "collection_threshold_percent",
        range: (0.0, 99.0),
        kind: FieldKind::Any,
        set: |drive, value| drive.profile.collection_threshold_percent = value,
    },
    whole("rated_cycles", COUNT, |drive, value| drive.profile.rated_cycles = value as u32),
    whole("buffer_bytes", BUFFER, |drive, value| drive.profile.buffer_bytes = value as u64),
    whole("read_ns", TIME, |drive, value| drive.profile.timing.read_ns = value as u64),
    whole("program_ns", TIME, |drive, value| drive.profile.timing.program_ns = value as u64),
    whole("erase_ns", TIME, |drive, value| {
        drive.profile.timing.erase_ns = value as u64;
        drive.profile.erase_ns_by_block_bytes = None;
    }),
    whole("transfer_ns", TIME, |drive, value| drive.profile.timing.transfer_ns = value as u64),
    whole("hz", CLOCK, |drive, value| drive.profile.controller.hz = value as u64),
    whole("link_bytes_per_second", LINK, |drive, value| drive.profile.link_bytes_per_second = value as u64),
];

impl Field {
    /// Refuses a value of another kind, or outside the range.
    fn check(&self, value: f64, (least, most): (f64, f64)) -> Result<(), String> {
        let (words, is_kind) = match self.kind {
            FieldKind::Any => ("", true),
            FieldKind::Whole => ("a whole number ", value.fract() == 0.0),
            FieldKind::PowerOfTwo => ("a power of two ", value.fract() == 0.0 && (value as u64).is_power_of_two()),
        };
        if is_kind && (least..=most).contains(&value) {
            return Ok(());
        }
        Err(format!("{} is {value}, but has to be {words}from {least} to {most}", self.name))
    }
}

impl DriveSetup {
    /// Makes a drive as large as the flash of its cache.
    pub fn new(profile: DriveProfile, ftl: &'static FtlKind) -> DriveSetup {
        DriveSetup { profile, ftl, capacity: Capacity::OfCache, only_data: false, shape: None, keeps_spare: false }
    }

    /// Lists the names of the numbers that [`DriveSetup::with`] sets.
    pub fn fields() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|field| field.name)
    }

    /// Returns the same drive with another number.
    ///
    /// # Errors
    /// As [`DriveSetup::with_all`].
    pub fn with(self, name: &str, value: f64) -> Result<DriveSetup, String> {
        self.with_all(&[(name, value)])
    }

    /// Returns the same drive with these numbers, in any order.
    ///
    /// # Errors
    /// A sentence: there is no such field, it is given twice, a number is out of its range, or they
    /// cannot hold together.
    pub fn with_all(mut self, numbers: &[(&str, f64)]) -> Result<DriveSetup, String> {
        let mut given: Vec<(&Field, f64)> = Vec::new();
        for &(name, value) in numbers {
            let Some(field) = FIELDS.iter().find(|field| field.name == name) else {
                let names: Vec<&str> = DriveSetup::fields().collect();
                return Err(format!("a drive has no number {name:?}; it has {}", names.join(", ")));
            };
            if let Some((_, first)) = given.iter().find(|(other, _)| other.name == name) {
                return Err(format!("{name} is given twice, as {first} and as {value}: give it once"));
            }
            given.push((field, value));
        }
        let is_capacity = |(field, _): &&(&Field, f64)| field.name == CAPACITY;
        for (field, value) in given.iter().filter(|number| !is_capacity(number)) {
            field.check(*value, field.range)?;
            (field.set)(&mut self, *value);
        }
        self.fit_blocks()?;
        // The range of the capacity follows from the other numbers.
        let (least, most) = (1.0, self.profile.capacity_max(ProfileScale::Blocks) as f64);
        for (field, value) in given.iter().filter(is_capacity) {
            field.check(*value, (least, most))?;
            (field.set)(&mut self, *value);
        }
        Ok(self)
    }

    /// Reduces the profile's blocks a plane to the number that the other numbers allow.
    ///
    /// The capacity decides the number of blocks, so the profile's number is no reason to refuse
    /// other numbers.
    fn fit_blocks(&mut self) -> Result<(), String> {
        let geometry = &mut self.profile.geometry;
        let DriveGeometry { packages, dies_per_package, planes_per_die, pages_per_block, .. } = *geometry;
        let row =
            [packages, dies_per_package, planes_per_die, pages_per_block].map(u128::from).iter().product::<u128>();
        let rows = u128::from(PAGES_MAX) / row;
        if rows == 0 {
            let product = "packages x dies_per_package x planes_per_die x pages_per_block";
            return Err(OutOfRange::new(product, row, format!("at most {PAGES_MAX}")).to_string());
        }
        geometry.blocks_per_plane = geometry.blocks_per_plane.min(rows as u32);
        Ok(())
    }

    /// Makes the drive for a cache whose flash and write-evict units take these bytes.
    ///
    /// `weu_bytes` is `None` if the cache has no such units.
    ///
    /// # Errors
    /// A sentence: the drive is too small for the cache, or cannot be, or its layer for write-evict
    /// units cannot have the cache's.
    pub fn build(&self, flash_bytes: u64, weu_bytes: Option<u64>) -> Result<Host, String> {
        self.made(flash_bytes, weu_bytes)
            .map_err(|error| format!("a drive {} with {}: {error}", self.profile.name, self.ftl.name))
    }

    /// Removes the over-provisioning if the layer has no need of it and the user did not give it.
    fn without_needless_spare(mut self) -> DriveSetup {
        if self.ftl.drops && !self.keeps_spare {
            self.profile.geometry.over_provisioning_percent = 0.0;
        }
        self
    }

    pub(crate) fn made(&self, flash_bytes: u64, weu_bytes: Option<u64>) -> Result<Host, OutOfRange> {
        let bytes = match self.capacity {
            Capacity::OfCache => flash_bytes,
            Capacity::Bytes(bytes) if bytes < flash_bytes => {
                let range = format!("{flash_bytes} or more: the flash of the cache lies on it");
                return Err(OutOfRange::new("capacity", bytes, range));
            }
            Capacity::Bytes(bytes) => bytes,
        };
        let weu_bytes = weu_bytes.filter(|_| self.ftl.make_for_weus.is_some());
        let drive = self.without_needless_spare();
        drive.tried(bytes, weu_bytes).map_err(|error| drive.with_enough(error, bytes, weu_bytes))
    }

    /// Makes the drive with room for these bytes, and tries more blocks a plane if needed.
    fn tried(&self, bytes: u64, weu_bytes: Option<u64>) -> Result<Host, OutOfRange> {
        let first = self.with_room(bytes, weu_bytes, BLOCKS_PER_PLANE_MIN);
        let more = std::iter::successors(Some(2 * BLOCKS_PER_PLANE_MIN), |blocks| Some(2 * blocks));
        let mut tries = more.take_while(|blocks| first.is_err() && *blocks <= BLOCKS_PER_PLANE_TRIED);
        tries.find_map(|blocks| self.with_room(bytes, weu_bytes, blocks).ok()).map_or(first, Ok)
    }

    /// Adds the sufficient over-provisioning to a refusal for too little of it.
    ///
    /// Blocks are whole, so a percentage may suffice although a larger one does not. The function
    /// tries all percentages in order, and names the first that suffices.
    fn with_enough(&self, error: OutOfRange, bytes: u64, weu_bytes: Option<u64>) -> OutOfRange {
        let percent = self.profile.geometry.over_provisioning_percent;
        let most = (OVER_PROVISIONING_PERCENT_MAX * PERCENT_PARTS) as u32;
        let does = |parts: &u32| {
            let mut drive = *self;
            drive.profile.geometry.over_provisioning_percent = f64::from(*parts) / PERCENT_PARTS;
            drive.tried(bytes, weu_bytes).is_ok()
        };
        if error.field != "over_provisioning_percent" {
            return error;
        }
        let little = (percent * PERCENT_PARTS) as u32;
        let Some(enough) = (little + 1..=most).find(does) else { return error };
        let range =
            format!("at least {}, with which the layer has room: {}", f64::from(enough) / PERCENT_PARTS, error.range);
        OutOfRange::new(error.field, percent, range)
    }

    /// Makes the drive with room for these bytes and at least `blocks_min` blocks a plane.
    fn with_room(&self, bytes: u64, weu_bytes: Option<u64>, blocks_min: u32) -> Result<Host, OutOfRange> {
        let mut wanted = bytes;
        loop {
            let cut = match self.shape {
                Some(shape) => shaped(&self.profile, wanted, shape),
                None => fitted(&self.profile, wanted, weu_bytes, blocks_min),
            };
            // The refusal names the given capacity, not the tried one.
            let cut = cut.map_err(|error| match error.field == CAPACITY && wanted > bytes {
                true => OutOfRange::new(
                    CAPACITY,
                    bytes,
                    format!("so little that with the layer's own share it is {}", error.range),
                ),
                false => error,
            })?;
            let host = Host::new(&cut, self.ftl, weu_bytes)?;
            // A layer for whole units needs whole units, and some layers keep more for themselves
            // than the profile does.
            let rounded = bytes.next_multiple_of(host.unit_bytes());
            let has = u64::from(host.ftl().logical_pages()) * u64::from(host.profile().geometry.page_bytes);
            if has >= rounded {
                return Ok(host);
            }
            wanted += rounded - has;
        }
    }
}

/// Cuts the drive with room for these bytes, in the given blocks and planes.
fn shaped(profile: &DriveProfile, bytes: u64, shape: DriveShape) -> Result<DriveProfile, OutOfRange> {
    let mut from = *profile;
    shape.give(&mut from.geometry);
    from.cut_from = Some(profile.geometry);
    from.scaled_to(bytes, ProfileScale::Blocks)
}

/// Cuts the drive with room for these bytes, in whole units if it has such; see the module.
fn fitted(
    profile: &DriveProfile,
    bytes: u64,
    weu_bytes: Option<u64>,
    blocks_min: u32,
) -> Result<DriveProfile, OutOfRange> {
    let mut from = *profile;
    if let Some(pages) = weu_bytes.and_then(|weu_bytes| pages_dividing(&from, weu_bytes)) {
        from.geometry.pages_per_block = pages;
    }
    loop {
        let scaled = from.scaled_to(bytes, ProfileScale::Blocks)?;
        if scaled.geometry.blocks_per_plane >= blocks_min {
            return Ok(scaled);
        }
        let geometry = &mut from.geometry;
        from.cut_from = Some(profile.geometry);
        let parts = [&mut geometry.planes_per_die, &mut geometry.dies_per_package, &mut geometry.packages];
        if let Some(part) = parts.into_iter().find(|part| **part > 1) {
            *part = part.div_ceil(2);
        } else if geometry.pages_per_block >= 2 * PAGES_PER_BLOCK_MIN
            && (weu_bytes.is_none() || geometry.pages_per_block.is_multiple_of(2))
        {
            geometry.pages_per_block /= 2;
        } else {
            return Ok(scaled);
        }
    }
}

/// Returns the most pages that a block can have if whole blocks make a unit of `weu_bytes`.
///
/// It halves the profile's pages per block. It returns `None` if no such number divides the unit;
/// the layer then refuses the unit.
fn pages_dividing(profile: &DriveProfile, weu_bytes: u64) -> Option<u32> {
    let DriveGeometry { pages_per_block, page_bytes, .. } = profile.geometry;
    let halves = std::iter::successors(Some(pages_per_block), |pages| Some(pages / 2).filter(|_| pages % 2 == 0));
    halves
        .take_while(|pages| *pages == pages_per_block || *pages >= PAGES_PER_BLOCK_MIN)
        .find(|pages| weu_bytes.is_multiple_of(u64::from(*pages) * u64::from(page_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_ssd::{kinds::FTLS, profile::PROFILES};

    #[test]
    fn every_profile_is_cut_to_the_size_of_a_cache() {
        for profile in PROFILES {
            for mib in [8, 100, 1000, 20_000] {
                let fitted = fitted(profile, mib << 20, None, BLOCKS_PER_PLANE_MIN).expect("a drive");
                let (geometry, whole) = (fitted.geometry, profile.geometry);
                let is_less = geometry.planes() < whole.planes();
                assert!(!is_less || fitted.cut_from == Some(whole), "{} of {mib} MiB: what it was", profile.name);
                assert!(geometry.logical_bytes() >= mib << 20, "{} of {mib} MiB", profile.name);
                assert!(geometry.blocks_per_plane >= BLOCKS_PER_PLANE_MIN, "{} of {mib} MiB", profile.name);
                let is_cut = geometry.pages_per_block < whole.pages_per_block;
                assert!(!is_cut || geometry.planes() == 1, "{} of {mib} MiB: planes go before pages", profile.name);
                let most = (mib << 20) + 2 * u64::from(geometry.planes()) * geometry.block_bytes();
                assert!(geometry.logical_bytes() <= most, "{} of {mib} MiB: hardly more", profile.name);
            }
            let first = &FTLS[0];
            let host = DriveSetup::new(*profile, first).build(64 << 20, None).expect("a drive");
            assert!(u64::from(host.ftl().logical_pages()) * u64::from(host.profile().geometry.page_bytes) >= 64 << 20);
        }
    }

    #[test]
    fn what_over_provisioning_would_do_is_said() {
        for kind in FTLS {
            for profile in PROFILES {
                let with = |percent| {
                    DriveSetup::new(*profile, kind).with("over_provisioning_percent", percent).expect("a number")
                };
                let Some(why) = with(0.0).build(64 << 20, None).err() else { continue };
                let name = format!("{} with {}: {why}", profile.name, kind.name);
                let least = least_said(&why).unwrap_or_else(|| panic!("{name}"));
                assert!(with(least).build(64 << 20, None).is_ok(), "{name}");
                assert!(with(least - 0.1).build(64 << 20, None).is_err(), "{name}");
            }
        }
    }

    /// Reads the figure in "has to be at least 9.3, with which the layer has room".
    fn least_said(why: &str) -> Option<f64> {
        why.split("has to be at least ").nth(1)?.split(", with which the layer has room: ").next()?.parse().ok()
    }

    /// By default, a drive that drops data is as large as its cache, to a row of blocks.
    ///
    /// Other drives have their profile's over-provisioning beside that. Each drive has the
    /// over-provisioning that is given.
    #[test]
    fn a_layer_that_drops_has_no_spare_flash_unless_it_is_asked_for() {
        const FLASH: u64 = 64 << 20;
        for profile in PROFILES {
            let own = profile.geometry.over_provisioning_percent;
            for kind in FTLS {
                let spare = |drive: DriveSetup| {
                    let host = drive.build(FLASH, None).expect("a drive");
                    let geometry = host.profile().geometry;
                    let row = u64::from(geometry.planes()) * geometry.block_bytes();
                    assert_eq!(kind.drops, host.ftl().drops_unasked() || host.ftl().write_unit_pages() > 1);
                    (geometry.physical_bytes() - FLASH, row, geometry.over_provisioning_percent)
                };
                let name = format!("{} with {}", profile.name, kind.name);
                let drive = DriveSetup::new(*profile, kind);
                let (bytes, row, percent) = spare(drive);
                let least = (FLASH as f64 * own / 100.0) as u64;
                match kind.drops {
                    true => assert!(bytes < row && percent == 0.0, "{name}: {bytes} in rows of {row}"),
                    false => assert!(bytes >= least && percent == own, "{name}: {bytes}"),
                }
                let asked = drive.with("over_provisioning_percent", own).expect("a number");
                assert!(spare(asked).0 >= least && spare(asked).2 == own, "{name}");
            }
        }
    }

    /// Blocks are whole: here 9.3% suffice, 9.4% and 9.5% do not, and 9.6% suffice again.
    #[test]
    fn what_is_said_to_be_the_least_is_the_least() {
        let caftl = |name: &str| {
            let profile = DriveProfile::named("caftl").expect("a drive");
            let drive = DriveSetup::new(profile, FtlKind::named(name).expect("a layer"));
            drive.with("pages_per_block", 7.0).expect("a number")
        };
        for name in ["page", "caftl"] {
            let with = |parts: u32| {
                let percent = f64::from(parts) / PERCENT_PARTS;
                caftl(name).with("over_provisioning_percent", percent).expect("a number").build(9 << 20, None).map(drop)
            };
            let least = (0..).find(|parts| with(*parts).is_ok()).expect("some do");
            let refused: Vec<u32> = (least..least + 20).filter(|parts| with(*parts).is_err()).collect();
            println!("{name}: {least} tenths of a percent do, and of those above not {refused:?}");
            for parts in 0..least + 20 {
                let Err(why) = with(parts) else { continue };
                let after = (parts + 1..).find(|parts| with(*parts).is_ok()).expect("some do");
                assert_eq!(least_said(&why), Some(f64::from(after) / PERCENT_PARTS), "{why}");
            }
            assert!(name == "page" || !refused.is_empty(), "there is a gap, else a search by halves would do");
        }
    }

    #[test]
    fn a_number_that_cannot_hold_is_refused_with_its_field_and_range() {
        let drive = DriveSetup::new(PROFILES[0], &FTLS[0]);
        for (name, value, words) in [
            ("over_provisioning_percent", -1.0, "from 0 to 1000"),
            ("page_bytes", 5000.0, "a power of two from 512 to 1048576"),
            ("page_bytes", 4096.5, "a power of two from 512 to 1048576"),
            ("page_bytes", 256.0, "a power of two from 512 to 1048576"),
            ("packages", 0.0, "a whole number from 1 to 1024"),
            ("packages", 2000.0, "a whole number from 1 to 1024"),
            ("read_ns", 0.0, "from 1 to 100000000"),
            ("program_ns", 9007199254740992.0, "from 1 to 100000000"),
            ("hz", 1.0, "from 100000000 to"),
            ("link_bytes_per_second", 1.0, "from 10000000 to"),
            ("capacity", f64::INFINITY, "a whole number from 1 to 152"),
            ("rated_cycles", f64::NAN, "from 1"),
        ] {
            let sentence = drive.with(name, value).expect_err("refused");
            assert!(sentence.starts_with(&format!("{name} is ")) && sentence.contains(words), "{sentence}");
        }
        assert!(drive.with("wings", 2.0).expect_err("refused").contains("over_provisioning_percent"));
        let sentence = drive.with("capacity", 1e6).expect("a number").build(2_000_000, None).err().expect("refused");
        assert!(sentence.contains("capacity is 1000000, but has to be 2000000 or more"), "{sentence}");
        let sentence = drive.with("over_provisioning_percent", 0.0).expect("a number").build(1 << 26, None).err();
        assert!(sentence.is_some_and(|why| why.contains("over_provisioning_percent is 0")), "no spare blocks");
        for Field { name, range: (least, most), .. } in FIELDS {
            assert!(drive.with(name, *least).is_ok(), "{name} is {least}");
            assert_eq!(drive.with(name, *most).is_ok(), *name != CAPACITY, "{name} is {most}");
        }
    }

    #[test]
    fn the_most_of_a_capacity_is_the_most() {
        for (name, value) in [("packages", 7.0), ("over_provisioning_percent", 0.0), ("pages_per_block", 48.0)] {
            for profile in PROFILES {
                let drive = DriveSetup::new(*profile, &FTLS[0]).with(name, value).expect("a number");
                let most = drive.profile.capacity_max(ProfileScale::Blocks);
                let scaled = |bytes| drive.profile.scaled_to(bytes, ProfileScale::Blocks);
                assert!(scaled(most).is_ok_and(|scaled| scaled.geometry.logical_bytes() >= most), "{}", profile.name);
                assert!(drive.with(CAPACITY, most as f64).is_ok());
                let words = format!("capacity is {}, but has to be", most + 1);
                assert!(scaled(most + 1).expect_err("refused").to_string().starts_with(&words), "{}", profile.name);
                let sentence = drive.with(CAPACITY, most as f64 + 1.0).expect_err("refused");
                assert_eq!(sentence, format!("{words} a whole number from 1 to {most}"));
            }
        }
    }

    #[test]
    fn the_order_of_numbers_decides_nothing() {
        let drive = DriveSetup::new(PROFILES[0], &FTLS[0]);
        let numbers = [("packages", 1.0), ("pages_per_block", 32768.0), ("capacity", 4e9)];
        let backward: Vec<_> = numbers.iter().rev().copied().collect();
        let made = drive.with_all(&numbers).expect("a drive");
        assert!(made == drive.with_all(&backward).expect("a drive"));
        assert!(drive.with("pages_per_block", 32768.0).is_ok(), "there are as many blocks as its capacity takes");
        let many = [("packages", 1024.0), ("dies_per_package", 1024.0), ("planes_per_die", 1024.0)];
        assert!(drive.with_all(&many).expect_err("refused").contains("pages_per_block is 68719476736"));
        let twice = drive.with_all(&[("capacity", 1e9), ("capacity", 2e9)]).expect_err("refused");
        assert!(twice.starts_with("capacity is given twice"), "{twice}");
    }

    #[test]
    fn the_longest_times_are_as_long_as_their_bounds_are_said_to_allow() {
        let longest = FIELDS.iter().filter_map(|field| match field.name {
            name if name.ends_with("_ns") => Some((name, field.range.1)),
            name @ ("hz" | "link_bytes_per_second") => Some((name, field.range.0)),
            "page_bytes" => Some((field.name, field.range.1)),
            _ => None,
        });
        let numbers: Vec<_> = longest.collect();
        let profile = DriveSetup::new(PROFILES[0], &FTLS[0]).with_all(&numbers).expect("a drive").profile;
        let parts = [2 * profile.timing.erase_ns, profile.hash_ns(larder_ssd::op::Hash::Sha1), profile.link_ns()];
        assert!(numbers.len() == 7 && parts.iter().all(|ns| *ns <= 250_000_000), "{parts:?}");
    }
}
