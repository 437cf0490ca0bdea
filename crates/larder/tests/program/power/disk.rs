//! A disk that forgets unflushed writes when its power goes.
//!
//! Invariants: a write, and a hole, is volatile until the next flush. A durable write makes its own
//! sectors durable, and no others. At a power loss each sector takes the content that was last
//! durable, or any later one: in any order, torn at 512 bytes.
//!
//! It knows nothing of processes; [`mount`](super::mount) does.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_device::rng::Rng;

pub const SECTOR: usize = 512;

/// The part of the unflushed writes that a power loss leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing.
    Everything,
    /// A random part, for each sector by itself.
    Some,
}

/// A disk with volatile sectors.
pub struct Disk {
    /// The content that reads see.
    now: Vec<u8>,
    /// The older contents of each sector that changed since it was last durable.
    ///
    /// These are its content then, and all later ones except the present one.
    older: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    pub flushes: u64,
    pub durable_writes: u64,
    pub writes: u64,
}

impl Disk {
    /// Returns a disk of zeroes.
    pub fn new(bytes: u64) -> Self {
        Disk { now: vec![0; bytes as usize], older: BTreeMap::new(), flushes: 0, durable_writes: 0, writes: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.now
    }

    fn change(&mut self, range: Range<usize>, put: impl FnOnce(&mut [u8])) {
        for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            let was: [u8; SECTOR] = self.now[sector * SECTOR..][..SECTOR].try_into().expect("a sector");
            self.older.entry(sector).or_default().push(was);
        }
        self.writes += 1;
        put(&mut self.now[range]);
    }

    /// Writes up to the end, and nothing past it.
    pub fn write(&mut self, offset: usize, data: &[u8]) -> usize {
        let len = data.len().min(self.now.len().saturating_sub(offset));
        self.change(offset..offset + len, |bytes| bytes.copy_from_slice(&data[..len]));
        len
    }

    /// Writes like [`Disk::write`], durably, as FUA does.
    ///
    /// Other sectors stay as volatile as they were.
    pub fn write_durably(&mut self, offset: usize, data: &[u8]) -> usize {
        let len = self.write(offset, data);
        (offset / SECTOR..(offset + len).div_ceil(SECTOR)).for_each(|sector| drop(self.older.remove(&sector)));
        self.durable_writes += 1;
        len
    }

    pub fn zero(&mut self, offset: usize, len: usize) {
        let end = (offset + len).min(self.now.len());
        self.change(offset.min(end)..end, |bytes| bytes.fill(0));
    }

    pub fn flush(&mut self) {
        self.flushes += 1;
        self.older.clear();
    }

    /// Returns the number of sectors that a power loss may take back.
    pub fn volatile_sectors(&self) -> usize {
        self.older.len()
    }

    /// Loses the power, and gets it back.
    pub fn lose_power(&mut self, loss: Loss, rng: &mut Rng) {
        for (sector, older) in std::mem::take(&mut self.older) {
            let kept = match loss {
                Loss::Everything => older.first(),
                Loss::Some => older.get(rng.index(older.len() + 1)),
            };
            if let Some(kept) = kept {
                self.now[sector * SECTOR..][..SECTOR].copy_from_slice(kept);
            }
        }
    }
}

#[test]
fn flushed_sectors_stay_and_the_others_take_any_content_that_they_had() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let mut disk = Disk::new(4 * SECTOR as u64);
        disk.write(0, &[1; 2 * SECTOR]);
        disk.flush();
        disk.write(SECTOR, &[2; SECTOR]);
        disk.zero(SECTOR, 2 * SECTOR);
        assert_eq!((disk.bytes()[SECTOR], disk.volatile_sectors(), disk.flushes), (0, 2, 1));
        disk.lose_power(Loss::Some, &mut Rng::new(seed));
        let first_of = |sector: usize| disk.bytes()[sector * SECTOR];
        assert_eq!((first_of(0), first_of(2), first_of(3)), (1, 0, 0));
        seen.insert(first_of(1));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    let mut disk = Disk::new(SECTOR as u64);
    disk.write(0, &[1; SECTOR]);
    disk.lose_power(Loss::Everything, &mut Rng::new(1));
    assert_eq!(disk.bytes()[0], 0);
    assert_eq!((disk.write(SECTOR, &[1]), disk.write(0, &[1; 2 * SECTOR])), (0, SECTOR));
}

#[test]
fn a_durable_write_makes_its_own_sectors_durable_and_no_others() {
    let mut disk = Disk::new(4 * SECTOR as u64);
    disk.write(0, &[1; 4 * SECTOR]);
    assert_eq!(disk.write_durably(SECTOR, &[2; 2 * SECTOR]), 2 * SECTOR);
    assert_eq!((disk.volatile_sectors(), disk.flushes, disk.durable_writes), (2, 0, 1));
    disk.write(2 * SECTOR, &[3; SECTOR]);
    disk.lose_power(Loss::Everything, &mut Rng::new(1));
    let found: Vec<u8> = (0..4).map(|sector| disk.bytes()[sector * SECTOR]).collect();
    assert_eq!(found, [0, 2, 2, 0]);
}
