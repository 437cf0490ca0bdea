//! The address index: the content that an address has, by regions of neighbours.
//!
//! An entry has the number of a content. If that is stored, the entry is a *mapping*. Else it is a
//! *belief*: the address has this content, and the cache lacks it, or has it by another number.
//!
//! Invariants: at most one entry for each address. Regions have places that do not change, so a
//! walk over pieces passes each entry that stays.
//!
//! It does not know the state of a content. The module [`heat`](super::heat) adds the requests of
//! the addresses.

use super::{
    growth,
    neighbourhoods::Neighbourhoods,
    region::{AddressRegion, CHUNKS, Mark, RegionNumbers, ZEROES},
    runs::Runs,
};
use crate::{
    lba_index::GONE_THROUGH,
    sharded::Sharded,
    types::{Lba, mix},
};

/// The number of a content: below [`ContentNumber::END`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentNumber(pub u32);

impl ContentNumber {
    /// The end of the numbers.
    pub const END: u32 = ZEROES - CHUNKS as u32;
}

/// Regions of a piece of a walk.
const PIECE: usize = 64;
/// Regions that one look may search for singly, which takes a few milliseconds.
const ASKED_MAX: u64 = 1 << 14;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A chunk of zeroes, without a content.
    Zero,
    /// A whole chunk.
    Chunk,
    /// Some sectors of a chunk. No other address has this content.
    Fragment,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub lba: Lba,
    /// The kind.
    pub kind: Kind,
    number: u32,
    /// True if the origin lacks the data.
    pub is_dirty: bool,
    /// True if neither log nor checkpoint has the mapping.
    pub is_transient: bool,
}

impl Address {
    /// Returns an entry. `content` has no meaning for zeroes.
    pub fn new(lba: Lba, kind: Kind, content: ContentNumber, is_dirty: bool) -> Address {
        debug_assert!(lba.0 >> 40 == 0 && content.0 < ContentNumber::END);
        let number = if kind == Kind::Zero { ZEROES } else { content.0 };
        Address { lba, kind, number, is_dirty, is_transient: false }
    }

    /// Returns the content; none of zeroes.
    #[inline]
    pub fn content(&self) -> Option<ContentNumber> {
        (self.kind != Kind::Zero).then_some(ContentNumber(self.number))
    }
}

/// See the module.
pub struct AddressIndex {
    pub(super) regions: Vec<AddressRegion>,
    by_number: Sharded<u32>,
    /// Places of regions that stand for no addresses.
    vacant: Vec<u32>,
    runs: Runs,
    entries: usize,
    /// Regions with entries.
    occupied: usize,
    hand: usize,
    pub(super) neighbourhoods: Neighbourhoods,
}

/// Returns the number of the region of an address, and the chunk in it.
#[inline]
fn split(lba: Lba) -> (u64, u32) {
    (lba.0 / CHUNKS, (lba.0 % CHUNKS) as u32)
}

impl AddressIndex {
    /// Returns an empty index for so many regions; it does not refuse more.
    pub fn new(regions_max: u64) -> AddressIndex {
        AddressIndex {
            regions: Vec::new(),
            by_number: Sharded::new(regions_max),
            vacant: Vec::new(),
            runs: Runs::default(),
            entries: 0,
            occupied: 0,
            hand: 0,
            neighbourhoods: Neighbourhoods::default(),
        }
    }

    /// Counts the entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Counts the regions.
    pub fn regions(&self) -> usize {
        self.regions.len() - self.vacant.len()
    }

    /// Counts the regions with entries.
    pub fn occupied(&self) -> usize {
        self.occupied
    }

    pub(super) fn find(&self, number: u64) -> Option<usize> {
        self.by_number.find(mix(number), |&at| self.regions[at as usize].number() == number).map(|&at| at as usize)
    }

    /// Returns whether the region of an address is there.
    #[inline]
    pub fn has_region(&self, lba: Lba) -> bool {
        self.find(split(lba).0).is_some()
    }

    /// Returns the region of an address, made if need be.
    pub(super) fn region_of(&mut self, lba: Lba) -> (usize, u32) {
        let (number, at) = split(lba);
        if let Some(place) = self.find(number) {
            self.regions[place].use_it();
            return (place, at);
        }
        let place = match self.vacant.pop() {
            Some(place) => {
                self.regions[place as usize] = AddressRegion::new(number);
                place as usize
            }
            None => growth::push(&mut self.regions, AddressRegion::new(number)),
        };
        let regions = &self.regions;
        self.by_number.insert(mix(number), place as u32, |&place| mix(regions[place as usize].number()));
        (place, at)
    }

    #[inline]
    pub(super) fn entry_at(&self, region: &AddressRegion, at: u32) -> Option<Address> {
        if !region.has(at) {
            return None;
        }
        let number = self.number_at(region, at);
        let kind = match region.is(Mark::Fragment, at) {
            _ if number == ZEROES => Kind::Zero,
            true => Kind::Fragment,
            false => Kind::Chunk,
        };
        let lba = Lba(region.number() * CHUNKS + u64::from(at));
        let (is_dirty, is_transient) = (region.is(Mark::Dirty, at), region.is(Mark::Transient, at));
        Some(Address { lba, kind, number, is_dirty, is_transient })
    }

    /// Returns the numbers of the runs of a region that has any.
    #[inline]
    fn firsts<'a>(&'a self, region: &'a AddressRegion) -> &'a [u32] {
        match region.runs() {
            1 => std::slice::from_ref(&region.numbers),
            runs => self.runs.list(runs, region.numbers),
        }
    }

    #[inline]
    fn number_at(&self, region: &AddressRegion, at: u32) -> u32 {
        let (run, steps) = region.run_of(at);
        AddressRegion::follow(self.firsts(region)[run], steps)
    }

    fn entries_of<'a>(&'a self, region: &'a AddressRegion) -> impl Iterator<Item = Address> + 'a {
        (0..CHUNKS as u32).filter_map(|at| self.entry_at(region, at))
    }

    /// Returns the entry of an address.
    #[inline]
    pub fn get(&self, lba: Lba) -> Option<Address> {
        let (number, at) = split(lba);
        self.entry_at(&self.regions[self.find(number)?], at)
    }

    /// Has the region at `place` the entry with this number at `at`, or none.
    fn set(&mut self, place: usize, at: u32, number: Option<u32>) {
        let region = self.regions[place];
        let mut numbers: RegionNumbers = match region.runs() {
            0 => [0; CHUNKS as usize],
            _ => region.unpack(self.firsts(&region)),
        };
        let bit = 1 << at;
        let present = match number {
            Some(number) => {
                numbers[at as usize] = number;
                region.present() | bit
            }
            None => region.present() & !bit,
        };
        let had = (region.present() != 0, region.has(at));
        let changed = &mut self.regions[place];
        let (firsts, count) = changed.set_numbers(present, &numbers);
        let list = self.runs.replace(region.runs(), region.numbers, &firsts[..count]);
        changed.numbers = if count == 1 { firsts[0] } else { list };
        self.entries = self.entries + usize::from(number.is_some()) - usize::from(had.1);
        self.occupied = self.occupied + usize::from(present != 0) - usize::from(had.0);
    }

    /// Adds an entry. Returns the replaced one of its address.
    pub fn insert(&mut self, entry: Address) -> Option<Address> {
        let (place, at) = self.region_of(entry.lba);
        let old = self.entry_at(&self.regions[place], at);
        if old.is_none_or(|old| old.number != entry.number) {
            self.set(place, at, Some(entry.number));
        }
        let region = &mut self.regions[place];
        region.mark(Mark::Dirty, at, entry.is_dirty);
        region.mark(Mark::Transient, at, entry.is_transient);
        region.mark(Mark::Fragment, at, entry.kind == Kind::Fragment);
        old
    }

    /// Removes the entry of an address.
    pub fn remove(&mut self, lba: Lba) -> Option<Address> {
        let (number, at) = split(lba);
        let place = self.find(number)?;
        let old = self.entry_at(&self.regions[place], at)?;
        self.set(place, at, None);
        Some(old)
    }

    /// Gives the entry of an address a mark, or takes it.
    pub fn mark(&mut self, lba: Lba, mark: Mark, is_set: bool) {
        let (number, at) = split(lba);
        if let Some(place) = self.find(number).filter(|&place| self.regions[place].has(at)) {
            self.regions[place].mark(mark, at, is_set);
        }
    }

    /// Reads the memory of a search, so that the next one finds it in the processor's caches.
    pub fn touch(&self, lba: Lba) {
        std::hint::black_box(self.has_region(lba));
    }

    /// Returns the addresses in a run that have an entry, ascending.
    pub fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        let end = first.0.saturating_add(count);
        let (from, to) = (first.0 / CHUNKS, end.div_ceil(CHUNKS));
        let mut regions: Vec<&AddressRegion> =
            match to.saturating_sub(from) <= 1 + self.regions.len() as u64 / GONE_THROUGH {
                true => (from..to).filter_map(|number| self.find(number)).map(|place| &self.regions[place]).collect(),
                false => self.regions.iter().filter(|region| (from..to).contains(&region.number())).collect(),
            };
        regions.retain(|region| region.present() != 0);
        regions.sort_unstable_by_key(|region| region.number());
        let all = regions.into_iter().flat_map(|region| {
            (0..CHUNKS as u32).filter(|&at| region.has(at)).map(|at| region.number() * CHUNKS + u64::from(at))
        });
        all.filter(|lba| (first.0..end).contains(lba)).map(Lba).collect()
    }

    /// Returns how many of `count` chunks from `first` a short look takes.
    ///
    /// At most `entries_max` of them have an entry. The look searches for few regions, or scans a
    /// small index.
    pub fn span(&self, first: Lba, count: u64, entries_max: usize) -> u64 {
        let is_small = self.regions.len() as u64 / GONE_THROUGH <= ASKED_MAX;
        let count = if is_small { count } else { count.min(ASKED_MAX * CHUNKS) };
        self.in_run(first, count).get(entries_max).map_or(count, |lba| lba.0 - first.0)
    }

    /// Counts the pieces of a walk over all entries.
    pub fn pieces(&self) -> usize {
        self.regions.len().div_ceil(PIECE)
    }

    /// Returns the entries of a piece of a walk, in no useful order.
    pub fn piece(&self, piece: usize) -> impl Iterator<Item = Address> + '_ {
        let from = (piece * PIECE).min(self.regions.len());
        let regions = &self.regions[from..self.regions.len().min(from + PIECE)];
        regions.iter().flat_map(|region| self.entries_of(region))
    }

    /// Returns up to `max` chosen addresses of the piece whose turn it is.
    ///
    /// If there are fewer, it is the turn of the next piece.
    pub fn some_in_turn(&self, turn: &mut usize, max: usize, is_chosen: impl Fn(&Address) -> bool) -> Vec<Lba> {
        let chosen: Vec<Lba> = self.piece(*turn).filter(is_chosen).map(|entry| entry.lba).take(max).collect();
        if chosen.len() < max {
            *turn = (*turn + 1) % self.pieces().max(1);
        }
        chosen
    }

    /// Moves the hand to the next region that was not used for a turn, `steps` regions at most.
    /// Returns its entries.
    pub fn next_unused(&mut self, steps: usize) -> Option<(usize, Vec<Address>)> {
        for _ in 0..steps.min(self.regions.len()) {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.regions.len();
            let region = &mut self.regions[place];
            if !region.is_vacant() && !region.rest() {
                let region = self.regions[place];
                return Some((place, self.entries_of(&region).collect()));
            }
        }
        None
    }

    /// Removes a region without entries.
    pub fn remove_region(&mut self, place: usize) {
        let region = self.regions[place];
        debug_assert!(region.present() == 0 && !region.is_vacant());
        self.by_number.remove(mix(region.number()), |&found| found as usize == place);
        if region.is_rewritten() {
            self.neighbourhoods.forget(region.number());
        }
        self.regions[place].vacate();
        growth::push(&mut self.vacant, place as u32);
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.regions.capacity() * size_of::<AddressRegion>()
            + self.vacant.capacity() * size_of::<u32>()
            + self.by_number.ram_bytes()
            + self.runs.ram_bytes()
            + self.neighbourhoods.ram_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lba_index::runs_are_cut;
    use std::collections::BTreeMap;

    fn entry(lba: u64, number: u32) -> Address {
        Address::new(Lba(lba), Kind::Chunk, ContentNumber(number), false)
    }

    #[test]
    fn entries_are_those_of_a_map_whatever_happens() {
        let mut index = AddressIndex::new(0);
        let mut model: BTreeMap<u64, Address> = BTreeMap::new();
        let mut state = 11u64;
        let mut draw = |below: u64| {
            state = mix(state);
            state % below
        };
        for step in 0..20_000 {
            let lba = draw(400) * draw(3).max(1);
            let number = if draw(3) == 0 { draw(1000) as u32 } else { lba as u32 + 100 };
            let kind = [Kind::Chunk, Kind::Chunk, Kind::Zero, Kind::Fragment][draw(4) as usize];
            match draw(4) {
                0 => assert_eq!(index.remove(Lba(lba)), model.remove(&lba), "step {step}"),
                1 => {
                    index.mark(Lba(lba), Mark::Transient, true);
                    if let Some(entry) = model.get_mut(&lba) {
                        entry.is_transient = true;
                    }
                }
                _ => {
                    let entry = Address::new(Lba(lba), kind, ContentNumber(number), draw(2) == 0);
                    assert_eq!(index.insert(entry), model.insert(lba, entry), "step {step}");
                }
            }
            assert_eq!(index.get(Lba(lba)), model.get(&lba).copied(), "step {step}");
            if step % 500 == 0 {
                let mut all: Vec<Address> = (0..index.pieces()).flat_map(|piece| index.piece(piece)).collect();
                all.sort_by_key(|entry| entry.lba);
                assert_eq!(all, model.values().copied().collect::<Vec<_>>(), "step {step}");
                assert_eq!(index.len(), model.len());
                let regions: std::collections::BTreeSet<u64> = model.keys().map(|lba| lba / 16).collect();
                assert_eq!(index.occupied(), regions.len());
            }
        }
    }

    #[test]
    fn a_run_is_cut_where_it_has_many_entries() {
        let mut index = AddressIndex::new(0);
        (0..1000).for_each(|i| _ = index.insert(entry(i * 7, i as u32)));
        runs_are_cut(|first, count| index.in_run(first, count), |first, count, max| index.span(first, count, max));
    }

    #[test]
    fn neighbours_that_were_stored_together_cost_two_or_three_bytes() {
        let mut index = AddressIndex::new(0);
        (0..100_000).for_each(|i| _ = index.insert(entry(i, i as u32)));
        let each = index.ram_bytes() as f64 / 100_000.0;
        assert!(each < 3.5, "{each} bytes");
    }

    #[test]
    fn the_hand_finds_regions_that_were_not_used_for_a_turn() {
        let mut index = AddressIndex::new(0);
        for number in 0..100 {
            index.insert(entry(number * 16, 5));
        }
        for number in 0..100 {
            index.region_of(Lba(number * 16 + 1));
        }
        assert!(index.next_unused(99).is_none(), "all were used");
        index.region_of(Lba(16));
        let unused: Vec<u64> = std::iter::from_fn(|| {
            let (place, entries) = index.next_unused(100)?;
            entries.iter().for_each(|entry| _ = index.remove(entry.lba));
            index.remove_region(place);
            Some(entries[0].lba.0)
        })
        .take(99)
        .collect();
        assert!(!unused[..98].contains(&16) && index.regions() == 1, "{unused:?}");
        index.insert(entry(16 * 500, 8));
        assert_eq!((index.regions(), index.regions.len(), index.len()), (2, 100, 2), "a vacant place is used again");
    }
}
