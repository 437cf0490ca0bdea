//! The values that each sector may hold: before a crash, after it, and on the origin alone.
//!
//! Invariants: a read returns the newest completed write. After a crash a sector holds the newest
//! value completed when the last flush began, the newest one with FUA, or a later one. The first
//! read after the crash settles the value. The origin alone holds values that were written at some
//! time, and no others.
//!
//! It does not know writes that overlap in flight: a script has none.

use larder_core::types::SECTOR_BYTES;
use larder_device::rng::mix64;
use larder_engine::WriteMode;
use std::collections::BTreeMap;

/// The stamp of a sector of zeroes.
pub const ZERO: u32 = 0;

/// Returns the words of a sector. Odd stamps compress, even ones do not.
fn words(stamp: u32) -> impl Iterator<Item = u64> {
    let seed = if stamp == ZERO { 0 } else { mix64(u64::from(stamp)) };
    let step = u64::from(stamp.is_multiple_of(2)) * 2;
    (0..(SECTOR_BYTES / 8) as u64).map(move |i| seed.wrapping_mul(1 + step * i).rotate_left(17 * step as u32))
}

/// Fills a sector with the content of its stamp.
pub fn fill(stamp: u32, sector: &mut [u8]) {
    for (piece, word) in sector.as_chunks_mut::<8>().0.iter_mut().zip(words(stamp)) {
        *piece = word.to_le_bytes();
    }
}

/// Returns true if the sector holds the content of the stamp.
pub fn holds(sector: &[u8], stamp: u32) -> bool {
    if stamp == ZERO {
        return sector == [0; SECTOR_BYTES];
    }
    sector.as_chunks::<8>().0.iter().zip(words(stamp)).all(|(piece, word)| u64::from_le_bytes(*piece) == word)
}

#[derive(Clone)]
struct Version {
    stamp: u32,
    /// When the write completed, on the model's clock.
    completed: Option<u64>,
}

#[derive(Clone)]
struct Sector {
    /// The values that a crash may leave, oldest first.
    versions: Vec<Version>,
    /// All values written here.
    ever: Vec<u32>,
}

impl Sector {
    fn new() -> Sector {
        Sector { versions: vec![Version { stamp: ZERO, completed: Some(0) }], ever: vec![ZERO] }
    }

    fn current(&self) -> u32 {
        let newest = self.versions.iter().rev().find(|version| version.completed.is_some());
        newest.expect("one version is complete").stamp
    }

    fn complaint(&self, at: usize, bytes: &[u8]) -> String {
        let allowed: Vec<u32> = self.versions.iter().map(|version| version.stamp).collect();
        let found = self.ever.iter().find(|&&stamp| holds(bytes, stamp));
        format!("sector {at} holds {found:?}, allowed are {allowed:?}")
    }

    /// Keeps each crash from taking this sector behind its state at `when`.
    fn durable(&mut self, when: u64) {
        let floor = self.versions.iter().rposition(|version| version.completed.is_some_and(|at| at <= when));
        self.versions.drain(..floor.unwrap_or(0));
    }
}

/// All sectors that were ever written; the others are zeroes. And the write mode.
#[derive(Clone, Default)]
pub struct Model {
    sectors: BTreeMap<usize, Sector>,
    clock: u64,
    /// The mode, and the one that a switch under way may have made durable.
    modes: Vec<WriteMode>,
}

impl Model {
    /// Returns a volume without writes.
    pub fn new(mode: WriteMode) -> Model {
        Model { modes: vec![mode], ..Model::default() }
    }

    pub fn mode_switch_begins(&mut self, mode: WriteMode) {
        self.modes.push(mode);
    }

    pub fn mode_is(&mut self, mode: WriteMode) {
        self.modes = vec![mode];
    }

    /// Checks the mode after a crash, and that only write-back has dirty data.
    pub fn found_mode(&mut self, mode: WriteMode, dirty: bool) -> Result<(), String> {
        if !self.modes.contains(&mode) {
            return Err(format!("the mode is {mode:?}, allowed are {:?}", self.modes));
        }
        self.modes = vec![mode];
        match dirty && mode != WriteMode::Back {
            true => Err(format!("dirty data in {mode:?}")),
            false => Ok(()),
        }
    }

    /// Begins a write.
    pub fn begin(&mut self, at: usize, stamps: &[u32]) {
        for (at, &stamp) in (at..).zip(stamps) {
            let sector = self.sectors.entry(at).or_insert_with(Sector::new);
            sector.versions.push(Version { stamp, completed: None });
            sector.ever.push(stamp);
        }
    }

    /// Completes the write that began last on these sectors.
    pub fn complete(&mut self, at: usize, count: usize) {
        self.clock += 1;
        for (_, sector) in self.sectors.range_mut(at..at + count) {
            let newest = sector.versions.last_mut().expect("a write began");
            newest.completed = Some(self.clock);
        }
    }

    /// Begins a flush that covers all completed writes: hand its result to [`Model::flushed`].
    pub fn flush_begins(&self) -> u64 {
        self.clock
    }

    pub fn flushed(&mut self, began: u64) {
        self.sectors.values_mut().for_each(|sector| sector.durable(began));
    }

    /// Makes the newest values of these sectors durable.
    pub fn durable(&mut self, at: usize, count: usize) {
        self.sectors.range_mut(at..at + count).for_each(|(_, sector)| sector.durable(u64::MAX));
    }

    /// Checks for the newest completed value: a read returns it when nothing is in flight.
    pub fn is(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let Some(sector) = self.sectors.get(&at) else { return self.was_written(at, bytes) };
        let expected = sector.current();
        match holds(bytes, expected) {
            true => Ok(()),
            false => Err(format!("{} and not {expected}", sector.complaint(at, bytes))),
        }
    }

    /// Checks for the newest completed value, or one of a later write that never completed.
    pub fn is_or_newer(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let Some(sector) = self.sectors.get(&at) else { return self.was_written(at, bytes) };
        let newest = sector.versions.iter().rposition(|version| version.completed.is_some()).unwrap_or(0);
        match sector.versions[newest..].iter().any(|version| holds(bytes, version.stamp)) {
            true => Ok(()),
            false => Err(format!("{} and not older", sector.complaint(at, bytes))),
        }
    }

    /// Returns the sectors that were ever written, each with true if a crash may have left several
    /// values.
    pub fn written(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        self.sectors.iter().map(|(&at, sector)| (at, sector.versions.len() > 1))
    }

    /// Accepts one of the allowed values after a crash, which is the only one from then on.
    pub fn found(&mut self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let Some(sector) = self.sectors.get_mut(&at) else {
            return if holds(bytes, ZERO) { Ok(()) } else { Err(format!("sector {at} was never written")) };
        };
        match sector.versions.iter().rev().find(|version| holds(bytes, version.stamp)) {
            Some(version) => {
                let stamp = version.stamp;
                sector.versions = vec![Version { stamp, completed: Some(0) }];
                Ok(())
            }
            None => Err(sector.complaint(at, bytes)),
        }
    }

    /// Accepts an allowed value after a crash on a device that has every flushed write.
    ///
    /// It does not settle the value.
    pub fn may_hold(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let Some(sector) = self.sectors.get(&at) else { return self.was_written(at, bytes) };
        match sector.versions.iter().rev().any(|version| holds(bytes, version.stamp)) {
            true => Ok(()),
            false => Err(sector.complaint(at, bytes)),
        }
    }

    /// Accepts any earlier value of the sector, on the origin alone.
    pub fn was_written(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let ever = self.sectors.get(&at).map_or(&[ZERO][..], |sector| &sector.ever);
        match ever.iter().rev().any(|&stamp| holds(bytes, stamp)) {
            true => Ok(()),
            false => Err(format!("sector {at} of the origin holds what was never written there ({ever:?} were)")),
        }
    }
}

/// Returns the content of these stamps.
pub fn bytes_of(stamps: &[u32]) -> larder_device::IoBuf {
    let mut buf = larder_device::IoBuf::new(stamps.len() * SECTOR_BYTES);
    for (&stamp, sector) in stamps.iter().zip(buf.chunks_mut(SECTOR_BYTES)) {
        fill(stamp, sector);
    }
    buf
}
