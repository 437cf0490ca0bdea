//! The heat of addresses: reads since the last write, and the re-read rate of regions.
//!
//! An address has the reads since its last write, up to three, whether it was requested before, and
//! the kind of its last request. A region is *rewritten* once the log had to forget a mapping at
//! its edge, because a write replaced the chunk.
//!
//! It does not know contents.

use super::{
    addresses::{Address, AddressIndex},
    class::Class,
    region::{AddressRegion, CHUNKS, RATE_FIRST},
};
use crate::types::Lba;

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

impl Heat {
    fn of(region: &AddressRegion, at: u32) -> Heat {
        Heat { own: region.own(at), is_reread: region.is_reread(at), rate: region.rate().into() }
    }
}

impl AddressIndex {
    /// Notes a read of `lba`. Returns its entry, and its heat with the read.
    pub fn read(&mut self, lba: Lba) -> (Option<Address>, Heat) {
        let (place, at) = self.region_of(lba);
        self.regions[place].read(at);
        let region = &self.regions[place];
        (self.entry_at(region, at), Heat::of(region, at))
    }

    /// Notes a write of `lba`.
    pub fn write(&mut self, lba: Lba) {
        let (place, at) = self.region_of(lba);
        self.regions[place].write(at);
    }

    /// Notes that a write replaces a cached copy of `lba`, if its region is there.
    ///
    /// The order of the regions stays. Decisions depend on it, and a replay of them has no retreat.
    pub fn rewrite(&mut self, lba: Lba) {
        let number = lba.0 / CHUNKS;
        if self.find(number).is_some_and(|place| !self.regions[place].rewrite()) {
            self.neighbourhoods.add(number);
        }
    }

    /// Returns whether the region of `lba` is rewritten, or many of its neighbourhood are.
    pub fn is_rewritten(&self, lba: Lba) -> bool {
        let number = lba.0 / CHUNKS;
        self.find(number).is_some_and(|place| self.regions[place].is_rewritten())
            || self.neighbourhoods.is_rewritten(number)
    }

    /// Returns the region of `lba`: its first chunk, and the number of its chunks.
    pub fn run_of(lba: Lba) -> (Lba, u64) {
        (Lba(lba.0 / CHUNKS * CHUNKS), CHUNKS)
    }

    /// Gives `lba` the heat that the class of its content had.
    pub fn restore_heat(&mut self, lba: Lba, class: Class) {
        let (place, at) = self.region_of(lba);
        self.regions[place].restore_heat(at, class);
    }

    /// Forgets the requests of addresses, which were trimmed.
    pub fn forget_heat(&mut self, first: Lba, count: u64) {
        let end = first.0.saturating_add(count);
        let (from, to) = (first.0 / CHUNKS, end.div_ceil(CHUNKS));
        if to.saturating_sub(from) as usize > self.regions.len() {
            self.regions.iter_mut().for_each(|region| region.forget_heat(first.0, end));
            return;
        }
        for number in from..to {
            if let Some(place) = self.find(number) {
                self.regions[place].forget_heat(first.0, end);
            }
        }
    }

    /// Returns the heat of `lba`.
    pub fn heat(&self, lba: Lba) -> Heat {
        let at = (lba.0 % CHUNKS) as u32;
        match self.find(lba.0 / CHUNKS).map(|place| &self.regions[place]) {
            Some(region) => Heat::of(region, at),
            None => Heat { own: 0, is_reread: false, rate: RATE_FIRST.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_count_until_a_write_and_trims_forget() {
        let mut addresses = AddressIndex::new(0);
        let lba = Lba(35);
        let heat = |addresses: &AddressIndex| (addresses.heat(lba).own, addresses.heat(lba).is_reread);
        let seen: Vec<_> = (0..5)
            .map(|_| {
                addresses.read(lba);
                heat(&addresses)
            })
            .collect();
        assert_eq!(seen, [(1, false), (2, true), (3, true), (3, true), (3, true)]);
        addresses.write(lba);
        assert_eq!(heat(&addresses), (0, false));
        addresses.read(lba);
        assert_eq!(heat(&addresses), (1, true));
        assert_eq!(addresses.heat(Lba(36)).own, 0, "a neighbour");
        addresses.forget_heat(Lba(0), u64::MAX);
        addresses.read(lba);
        assert_eq!(heat(&addresses), (1, false));
        assert!(addresses.heat(Lba(32)).rate > addresses.heat(Lba(1000)).rate, "the region was read again");
    }

    #[test]
    fn many_rewritten_regions_stand_for_their_neighbourhood_while_they_are_known() {
        let mut addresses = AddressIndex::new(0);
        let chunk = |region: u64| Lba(region * CHUNKS + 3);
        (0..9).for_each(|region| addresses.write(chunk(region)));
        for region in 0..7 {
            addresses.rewrite(chunk(region));
            addresses.rewrite(chunk(region));
        }
        assert!(addresses.is_rewritten(chunk(6)) && !addresses.is_rewritten(chunk(7)));
        addresses.rewrite(chunk(7));
        assert!(addresses.is_rewritten(chunk(63)) && !addresses.is_rewritten(chunk(64)));
        while let Some((place, _)) = addresses.next_unused(20) {
            addresses.remove_region(place);
        }
        assert!(!addresses.is_rewritten(chunk(0)) && addresses.neighbourhoods.is_empty(), "they left with them");
    }
}
