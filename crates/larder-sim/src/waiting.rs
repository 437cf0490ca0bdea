//! Units of a drive of which a part waits in its buffer, until the rest of them comes.
//!
//! A drive takes one unit at once: a page, or more. A caller that lays bytes on a drive
//! [puts](Waiting::put) parts of units here. It hands a unit on in three cases. The unit is whole,
//! or it [gets no more](Waiting::forget). Or more units wait than the buffer has room for, and it
//! has waited longest ([`Waiting::take_excess`]). In the last case the rest of the unit is the
//! drive's old content.
//!
//! Invariants: a unit that waits has a sector that was put, and one that was not. Units leave in
//! the order in which they began to wait.
//!
//! It does not read or write bytes, or know the contents of sectors (`contents.rs`).

use std::{collections::VecDeque, ops::Range};

use hashbrown::HashMap;
use smallvec::SmallVec;

use larder_ssd::ftl::Ftl;

/// The unit of the parts, in bytes: every request of a cache is at least as long.
pub(crate) const SECTOR_BYTES: u64 = larder_core::types::SECTOR_BYTES as u64;

/// See the module. Units are numbered from the beginning of the drive, and so are bytes.
pub(crate) struct Waiting {
    page_bytes: u64,
    unit_bytes: u64,
    units_max: usize,
    units: HashMap<u64, WaitingUnit>,
    /// Units with the numbers of their waits, first begun first. Waits that are over are passed
    /// over.
    order: VecDeque<(u64, u64)>,
    next_number: u64,
}

/// A unit of which a part waits.
pub(crate) struct WaitingUnit {
    /// A bit for each sector that waits. For most drives' pages it is one word, which takes no
    /// allocation.
    sectors: SmallVec<[u64; 1]>,
    /// Number of sectors that do not wait.
    left: u64,
    /// The number of this wait, in the order of their beginnings.
    number: u64,
}

/// The state of a unit after bytes were put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    /// True if a part of the unit waited before.
    pub waited: bool,
    /// True if the unit is whole now, so that it waits no more.
    pub is_whole: bool,
}

impl Waiting {
    /// Makes the empty buffer of a drive with this layer, with room for so many bytes.
    pub fn new(ftl: &dyn Ftl, buffer_bytes: u64) -> Self {
        let page_bytes = u64::from(ftl.array().geometry().page_bytes);
        Waiting::of_units(page_bytes, u64::from(ftl.write_unit_pages()), buffer_bytes)
    }

    fn of_units(page_bytes: u64, unit_pages: u64, buffer_bytes: u64) -> Self {
        let unit_bytes = page_bytes * unit_pages;
        let units_max = usize::try_from(buffer_bytes / unit_bytes).unwrap_or(usize::MAX).max(1);
        Waiting { page_bytes, unit_bytes, units_max, units: HashMap::new(), order: VecDeque::new(), next_number: 0 }
    }

    /// Puts these bytes of one unit, and not all of it.
    pub fn put(&mut self, bytes: Range<u64>) -> Put {
        let unit = bytes.start / self.unit_bytes;
        let sectors = self.sectors(unit, bytes);
        let (unit_sectors, number) = (self.unit_bytes / SECTOR_BYTES, self.next_number);
        let waiting = self.units.entry(unit).or_insert_with(|| WaitingUnit {
            sectors: SmallVec::from_elem(0, unit_sectors.div_ceil(64) as usize),
            left: unit_sectors,
            number,
        });
        sectors.for_each(|sector| waiting.set(sector));
        let put = Put { waited: waiting.number != number, is_whole: waiting.left == 0 };
        if put.is_whole {
            self.units.remove(&unit);
        } else if !put.waited {
            self.next_number += 1;
            self.order.push_back((unit, number));
            self.pass_over();
        }
        put
    }

    /// Returns the pages with some of these bytes on the drive: a read of the bytes reads those.
    pub fn pages_read(&self, bytes: &Range<u64>) -> impl Iterator<Item = u64> {
        let Range { start, end } = *bytes;
        let pages = start / self.page_bytes..end.div_ceil(self.page_bytes);
        pages.filter(move |page| {
            let page_start = page * self.page_bytes;
            !self.has(start.max(page_start)..end.min(page_start + self.page_bytes))
        })
    }

    /// Returns the pages with some bytes on the drive, of a unit that waited.
    pub fn pages_missing(&self, unit: u64, waited: &WaitingUnit) -> impl Iterator<Item = u64> {
        let unit_pages = self.unit_bytes / self.page_bytes;
        let page_sectors = self.page_bytes / SECTOR_BYTES;
        let is_missing = move |page: &u64| !waited.has_all(page * page_sectors..(page + 1) * page_sectors);
        (0..unit_pages).filter(is_missing).map(move |page| unit * unit_pages + page)
    }

    /// Returns true if all of these bytes of one unit wait.
    fn has(&self, bytes: Range<u64>) -> bool {
        let unit = bytes.start / self.unit_bytes;
        self.units.get(&unit).is_some_and(|waiting| waiting.has_all(self.sectors(unit, bytes)))
    }

    /// Ends the wait of a unit, and returns its parts, if any.
    pub fn forget(&mut self, unit: u64) -> Option<WaitingUnit> {
        if self.units.is_empty() { None } else { self.units.remove(&unit) }
    }

    /// Ends the wait of the unit that is these bytes, if they are one.
    pub fn forget_unit_of(&mut self, bytes: &Range<u64>) -> Option<(u64, WaitingUnit)> {
        let unit = bytes.start / self.unit_bytes;
        let is_unit = *bytes == (unit * self.unit_bytes..(unit + 1) * self.unit_bytes);
        let waiting = is_unit.then(|| self.forget(unit)).flatten()?;
        Some((unit, waiting))
    }

    /// Ends the waits of the units that are whole in these bytes.
    pub fn forget_units_in(&mut self, bytes: &Range<u64>) {
        let units = bytes.start.div_ceil(self.unit_bytes)..bytes.end / self.unit_bytes;
        units.for_each(|unit| drop(self.forget(unit)));
    }

    /// Takes the unit that has waited longest, if more wait than the buffer has room for.
    pub fn take_excess(&mut self) -> Option<(u64, WaitingUnit)> {
        while self.units.len() > self.units_max {
            let (unit, number) = self.order.pop_front()?;
            if waits(&self.units, unit, number) {
                return self.units.remove(&unit).map(|waiting| (unit, waiting));
            }
        }
        None
    }

    /// Drops finished waits from the order if they outnumber the others.
    fn pass_over(&mut self) {
        if self.order.len() > 2 * self.units_max.max(self.units.len()) {
            let units = &self.units;
            self.order.retain(|&(unit, number)| waits(units, unit, number));
        }
    }

    /// Returns bytes of a unit, as its sectors.
    fn sectors(&self, unit: u64, bytes: Range<u64>) -> Range<u64> {
        let unit_start = unit * self.unit_bytes;
        (bytes.start - unit_start) / SECTOR_BYTES..(bytes.end - unit_start).div_ceil(SECTOR_BYTES)
    }
}

fn waits(units: &HashMap<u64, WaitingUnit>, unit: u64, number: u64) -> bool {
    units.get(&unit).is_some_and(|waiting| waiting.number == number)
}

impl WaitingUnit {
    fn has_all(&self, mut sectors: Range<u64>) -> bool {
        sectors.all(|sector| self.sectors.get(sector as usize / 64).is_some_and(|word| word >> (sector % 64) & 1 == 1))
    }

    fn set(&mut self, sector: u64) {
        if let Some(word) = self.sectors.get_mut(sector as usize / 64) {
            self.left -= u64::from(*word >> (sector % 64) & 1 == 0);
            *word |= 1 << (sector % 64);
        }
    }
}

#[cfg(test)]
mod tests;
