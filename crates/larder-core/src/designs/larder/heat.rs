//! The heat of addresses: reads since the last write, and the re-read rate of regions.
//!
//! A region is 16 neighbouring chunks. An address has the reads since its last write, up to three,
//! whether it was requested before, and the kind of its last request. A region is *rewritten* once
//! the log had to forget a mapping at its edge, because a write replaced the chunk.
//!
//! Invariants: the number of regions is bounded. A region that was not used for a full turn of the
//! hand goes first.
//!
//! It does not know contents.

use super::{class::Class, growth};
use crate::types::{Lba, mix};
use hashbrown::{HashMap, HashTable, hash_map::Entry};
use std::hash::{BuildHasherDefault, Hasher};

/// Chunks of a region.
const REGION_CHUNKS: u64 = 16;
/// Regions of a neighbourhood.
const NEIGHBOURS: u64 = 64;
/// Rewritten regions from which on a whole neighbourhood counts as rewritten.
const REWRITTEN_MIN: u32 = 8;
/// Weight of the last read in the rate.
const WEIGHT: f32 = 0.06;
/// The rate of a region without reads.
const RATE_FIRST: f32 = 0.3;

/// Spreads region numbers.
#[derive(Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = mix(self.0 ^ u64::from(byte)));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mix(value);
    }
}

/// The heat of an address after its last request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat {
    /// Reads since the last write, 3 for more.
    pub own: u8,
    /// True if the last request was a read of an address that had been requested before.
    pub is_reread: bool,
    /// The share of re-reads among the reads of the region.
    pub rate: f64,
}

/// A region, 20 bytes.
#[derive(Clone, Copy)]
struct Region {
    number_low: u32,
    /// Two bits each: reads since the last write.
    own: u32,
    touched: u16,
    reread: u16,
    rate: f32,
    number_high: u16,
    used: bool,
    /// True if a write replaced a cached chunk.
    is_rewritten: bool,
}

impl Region {
    fn new(number: u64) -> Region {
        Region {
            number_low: number as u32,
            number_high: (number >> 32) as u16,
            own: 0,
            touched: 0,
            reread: 0,
            rate: RATE_FIRST,
            used: false,
            is_rewritten: false,
        }
    }

    fn number(&self) -> u64 {
        u64::from(self.number_high) << 32 | u64::from(self.number_low)
    }

    /// Forgets the requests of the chunks from `first` up to `end`.
    fn forget(&mut self, first: u64, end: u64) {
        for at in 0..REGION_CHUNKS {
            if (first..end).contains(&(self.number() * REGION_CHUNKS + at)) {
                self.touched &= !(1 << at);
                self.reread &= !(1 << at);
                self.own &= !(3 << (2 * at));
            }
        }
    }
}

/// See the module.
pub struct Regions {
    /// In the order of the hand.
    all: Vec<Region>,
    by_number: HashTable<u32>,
    hand: usize,
    regions_max: usize,
    /// Rewritten regions of each neighbourhood that has any.
    rewritten: HashMap<u64, u32, BuildHasherDefault<Mixer>>,
}

impl Regions {
    /// Returns no heat, for at most so many regions.
    pub fn new(regions_max: usize) -> Regions {
        Regions {
            all: Vec::new(),
            by_number: HashTable::new(),
            hand: 0,
            regions_max: regions_max.max(64),
            rewritten: HashMap::default(),
        }
    }

    /// Notes a read of `lba`.
    pub fn read(&mut self, lba: Lba) {
        let (region, at) = self.of(lba);
        let bit = 1 << at;
        let was_touched = region.touched & bit != 0;
        region.touched |= bit;
        region.reread = if was_touched { region.reread | bit } else { region.reread & !bit };
        region.rate += (f32::from(u8::from(was_touched)) - region.rate) * WEIGHT;
        if region.own >> (2 * at) & 3 < 3 {
            region.own += 1 << (2 * at);
        }
    }

    /// Notes a write of `lba`.
    pub fn write(&mut self, lba: Lba) {
        let (region, at) = self.of(lba);
        region.touched |= 1 << at;
        region.reread &= !(1 << at);
        region.own &= !(3 << (2 * at));
    }

    /// Notes that a write replaces a cached copy of `lba`.
    pub fn rewrite(&mut self, lba: Lba) {
        let was_rewritten = std::mem::replace(&mut self.of(lba).0.is_rewritten, true);
        if !was_rewritten {
            *self.rewritten.entry(lba.0 / REGION_CHUNKS / NEIGHBOURS).or_insert(0) += 1;
        }
    }

    /// Returns whether the region of `lba` is rewritten, or many of its neighbourhood are.
    pub fn is_rewritten(&self, lba: Lba) -> bool {
        let number = lba.0 / REGION_CHUNKS;
        self.get(number).is_some_and(|region| region.is_rewritten)
            || self.rewritten.get(&(number / NEIGHBOURS)).is_some_and(|&regions| regions >= REWRITTEN_MIN)
    }

    /// Returns the region of `lba`: its first chunk, and the number of its chunks.
    pub fn run_of(lba: Lba) -> (Lba, u64) {
        (Lba(lba.0 / REGION_CHUNKS * REGION_CHUNKS), REGION_CHUNKS)
    }

    /// Gives `lba` the heat that the class of its content had.
    pub fn restore(&mut self, lba: Lba, class: Class) {
        let (region, at) = self.of(lba);
        let bit = 1 << at;
        region.touched |= bit;
        region.reread |= if class.own() > 1 { bit } else { 0 };
        region.own = region.own & !(3 << (2 * at)) | u32::from(class.own()) << (2 * at);
        region.rate = class.rate() as f32;
    }

    /// Forgets the requests of addresses, which were trimmed.
    pub fn forget(&mut self, first: Lba, count: u64) {
        let end = first.0.saturating_add(count);
        let (from, to) = (first.0 / REGION_CHUNKS, end.div_ceil(REGION_CHUNKS));
        if to.saturating_sub(from) as usize > self.all.len() {
            self.all.iter_mut().for_each(|region| region.forget(first.0, end));
            return;
        }
        for number in from..to {
            if let Some(at) = self.find(number) {
                self.all[at].forget(first.0, end);
            }
        }
    }

    /// Returns the heat of `lba`.
    pub fn heat(&self, lba: Lba) -> Heat {
        let at = lba.0 % REGION_CHUNKS;
        match self.get(lba.0 / REGION_CHUNKS) {
            Some(region) => Heat {
                own: (region.own >> (2 * at) & 3) as u8,
                is_reread: region.reread >> at & 1 == 1,
                rate: region.rate.into(),
            },
            None => Heat { own: 0, is_reread: false, rate: RATE_FIRST.into() },
        }
    }

    fn find(&self, number: u64) -> Option<usize> {
        self.by_number.find(mix(number), |&at| self.all[at as usize].number() == number).map(|&at| at as usize)
    }

    fn get(&self, number: u64) -> Option<&Region> {
        self.find(number).map(|at| &self.all[at])
    }

    /// Returns the region of an address, made if need be, and the place in it.
    fn of(&mut self, lba: Lba) -> (&mut Region, u64) {
        let number = lba.0 / REGION_CHUNKS;
        let at = match self.find(number) {
            Some(at) => {
                self.all[at].used = true;
                at
            }
            None => self.add(number),
        };
        (&mut self.all[at], lba.0 % REGION_CHUNKS)
    }

    /// Adds a region, in place of an unused one if there are too many.
    fn add(&mut self, number: u64) -> usize {
        let at = match self.all.len() < self.regions_max {
            true => growth::push(&mut self.all, Region::new(number)),
            false => {
                let at = self.free_one();
                self.all[at] = Region::new(number);
                at
            }
        };
        let all = &self.all;
        self.by_number.insert_unique(mix(number), at as u32, |&at| mix(all[at as usize].number()));
        at
    }

    /// Removes the first unused region from the hand on. Returns its place.
    fn free_one(&mut self) -> usize {
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.all.len();
            if std::mem::take(&mut self.all[at].used) {
                continue;
            }
            let old = self.all[at];
            if let Ok(found) = self.by_number.find_entry(mix(old.number()), |&found| found as usize == at) {
                found.remove();
            }
            if old.is_rewritten {
                self.forget_rewritten(old.number());
            }
            return at;
        }
    }

    fn forget_rewritten(&mut self, number: u64) {
        if let Entry::Occupied(mut regions) = self.rewritten.entry(number / NEIGHBOURS) {
            *regions.get_mut() -= 1;
            if *regions.get() == 0 {
                regions.remove();
            }
        }
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Region>() + self.by_number.allocation_size() + self.rewritten.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_count_until_a_write_and_trims_forget() {
        let mut regions = Regions::new(100);
        let lba = Lba(35);
        let heat = |regions: &Regions| (regions.heat(lba).own, regions.heat(lba).is_reread);
        let seen: Vec<_> = (0..5)
            .map(|_| {
                regions.read(lba);
                heat(&regions)
            })
            .collect();
        assert_eq!(seen, [(1, false), (2, true), (3, true), (3, true), (3, true)]);
        regions.write(lba);
        assert_eq!(heat(&regions), (0, false));
        regions.read(lba);
        assert_eq!(heat(&regions), (1, true));
        assert_eq!(regions.heat(Lba(36)).own, 0, "a neighbour");
        regions.forget(Lba(0), u64::MAX);
        regions.read(lba);
        assert_eq!(heat(&regions), (1, false));
        assert!(regions.heat(Lba(32)).rate > regions.heat(Lba(1000)).rate, "the region was read again");
    }

    #[test]
    fn many_rewritten_regions_stand_for_their_neighbourhood_while_they_are_known() {
        let mut regions = Regions::new(64);
        let chunk = |region: u64| Lba(region * REGION_CHUNKS + 3);
        for region in 0..7 {
            regions.rewrite(chunk(region));
            regions.rewrite(chunk(region));
        }
        assert!(regions.is_rewritten(chunk(6)) && !regions.is_rewritten(chunk(7)));
        regions.rewrite(chunk(7));
        assert!(regions.is_rewritten(chunk(63)) && !regions.is_rewritten(chunk(64)));
        (100..300).for_each(|region| regions.read(chunk(region)));
        assert!(!regions.is_rewritten(chunk(0)) && regions.rewritten.is_empty(), "they left with their regions");
    }

    #[test]
    fn regions_are_bounded_and_used_ones_stay() {
        let mut regions = Regions::new(64);
        for number in 0..10_000 {
            regions.read(Lba(number * 16));
            regions.read(Lba(7 * 16));
        }
        assert!(regions.all.len() <= 64 && regions.by_number.len() == regions.all.len());
        assert_eq!(size_of::<Region>(), 20);
        assert_eq!(regions.heat(Lba(7 * 16)).own, 3);
    }
}
