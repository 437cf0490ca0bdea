//! The state of 16 neighbouring addresses, packed.
//!
//! An address has an entry, with the number of its content, or none. It has its heat, too: the
//! reads since its last write, whether it was requested before, and the kind of its last request.
//!
//! Neighbours are stored together, so their contents have numbers in a row. A *run* of such
//! neighbours costs one number. The number of a single run lies in the region, those of several
//! ones lie in [`Runs`](super::runs::Runs).
//!
//! Invariants: 32 bytes. A run begins at each entry whose number does not follow its neighbour's.

use super::class::Class;

/// Chunks of a region.
pub const CHUNKS: u64 = 16;
/// The number of zeroes, which are no content. A run of it repeats it.
pub const ZEROES: u32 = u32::MAX;
/// The numbers of the entries, by chunk.
pub type RegionNumbers = [u32; CHUNKS as usize];

/// Weight of the last read in the rate, and the rate of a region without reads.
const WEIGHT: f32 = 0.06;
pub(super) const RATE_FIRST: f32 = 0.3;
const RATE_UNIT: f32 = u16::MAX as f32;
const USED: u8 = 1;
const REWRITTEN: u8 = 2;
const VACANT: u8 = 4;

/// A property of an entry, a bit for each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The origin lacks the data.
    Dirty,
    /// Neither log nor checkpoint has the mapping.
    Transient,
    /// The entry has some sectors of its chunk.
    Fragment,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct AddressRegion {
    number_low: u32,
    /// Reads since the last write, two bits for each chunk.
    own: u32,
    /// The number of the only run, or the place of the numbers.
    pub numbers: u32,
    present: u16,
    starts: u16,
    dirty: u16,
    transient: u16,
    fragment: u16,
    touched: u16,
    reread: u16,
    rate: u16,
    number_high: u8,
    flags: u8,
}

impl AddressRegion {
    /// Returns a region without entries or requests.
    pub fn new(number: u64) -> AddressRegion {
        AddressRegion {
            number_low: number as u32,
            number_high: (number >> 32) as u8,
            own: 0,
            numbers: 0,
            present: 0,
            starts: 0,
            dirty: 0,
            transient: 0,
            fragment: 0,
            touched: 0,
            reread: 0,
            rate: (RATE_FIRST * RATE_UNIT) as u16,
            flags: 0,
        }
    }

    /// Returns its number: that of its first chunk, divided by [`CHUNKS`].
    #[inline]
    pub fn number(&self) -> u64 {
        u64::from(self.number_high) << 32 | u64::from(self.number_low)
    }

    /// Returns the chunks that have an entry, a bit each.
    #[inline]
    pub fn present(&self) -> u16 {
        self.present
    }

    /// Returns whether a chunk has an entry.
    #[inline]
    pub fn has(&self, at: u32) -> bool {
        self.present >> at & 1 == 1
    }

    /// Counts the runs.
    #[inline]
    pub fn runs(&self) -> usize {
        self.starts.count_ones() as usize
    }

    /// Returns the run of a chunk with an entry, and the position of the chunk in it.
    #[inline]
    pub fn run_of(&self, at: u32) -> (usize, u32) {
        let upto = self.starts & (u16::MAX >> (15 - at));
        (upto.count_ones() as usize - 1, at - upto.ilog2())
    }

    /// Returns the number of a chunk from that of its run.
    #[inline]
    pub fn follow(first: u32, steps: u32) -> u32 {
        if first == ZEROES { ZEROES } else { first + steps }
    }

    /// Returns the numbers of all entries from those of the runs.
    pub fn unpack(&self, firsts: &[u32]) -> RegionNumbers {
        let (mut numbers, mut number) = ([0; CHUNKS as usize], 0);
        let mut firsts = firsts.iter();
        for at in (0..CHUNKS as u32).filter(|&at| self.has(at)) {
            number = match self.starts >> at & 1 {
                1 => firsts.next().copied().unwrap_or(ZEROES),
                _ => Self::follow(number, 1),
            };
            numbers[at as usize] = number;
        }
        numbers
    }

    /// Notes the chunks that have an entry, with their numbers. Returns the number of each run, and
    /// their count.
    pub fn set_numbers(&mut self, present: u16, numbers: &RegionNumbers) -> (RegionNumbers, usize) {
        let (mut firsts, mut count, mut starts) = ([0; CHUNKS as usize], 0, 0);
        for (at, &number) in numbers.iter().enumerate().filter(|(at, _)| present >> at & 1 == 1) {
            let before = at.checked_sub(1).filter(|before| present >> before & 1 == 1).map(|before| numbers[before]);
            if before.is_some_and(|before| Self::follow(before, u32::from(before != ZEROES)) == number) {
                continue;
            }
            starts |= 1 << at;
            firsts[count] = number;
            count += 1;
        }
        (self.present, self.starts) = (present, starts);
        (firsts, count)
    }

    fn mask(&self, mark: Mark) -> u16 {
        match mark {
            Mark::Dirty => self.dirty,
            Mark::Transient => self.transient,
            Mark::Fragment => self.fragment,
        }
    }

    /// Returns whether an entry has a mark.
    #[inline]
    pub fn is(&self, mark: Mark, at: u32) -> bool {
        self.mask(mark) >> at & 1 == 1
    }

    /// Gives an entry a mark, or takes it.
    pub fn mark(&mut self, mark: Mark, at: u32, is_set: bool) {
        let mask = match mark {
            Mark::Dirty => &mut self.dirty,
            Mark::Transient => &mut self.transient,
            Mark::Fragment => &mut self.fragment,
        };
        *mask = *mask & !(1 << at) | u16::from(is_set) << at;
    }

    /// Notes a read.
    pub fn read(&mut self, at: u32) {
        let bit = 1 << at;
        let was_touched = self.touched & bit != 0;
        self.touched |= bit;
        self.reread = if was_touched { self.reread | bit } else { self.reread & !bit };
        self.set_rate(self.rate() + (f32::from(u8::from(was_touched)) - self.rate()) * WEIGHT);
        if self.own(at) < 3 {
            self.own += 1 << (2 * at);
        }
    }

    /// Notes a write.
    pub fn write(&mut self, at: u32) {
        self.touched |= 1 << at;
        self.reread &= !(1 << at);
        self.own &= !(3 << (2 * at));
    }

    /// Gives a chunk the heat that the class of its content had.
    pub fn restore_heat(&mut self, at: u32, class: Class) {
        let bit = 1 << at;
        self.touched |= bit;
        self.reread |= if class.own() > 1 { bit } else { 0 };
        self.own = self.own & !(3 << (2 * at)) | u32::from(class.own()) << (2 * at);
        self.set_rate(class.rate() as f32);
    }

    /// Forgets the requests of the chunks from `first` up to `end`.
    pub fn forget_heat(&mut self, first: u64, end: u64) {
        let base = self.number() * CHUNKS;
        for at in (0..CHUNKS).filter(|at| (first..end).contains(&(base + at))) {
            self.touched &= !(1 << at);
            self.reread &= !(1 << at);
            self.own &= !(3 << (2 * at));
        }
    }

    /// Returns the reads of a chunk since its last write, 3 for more.
    pub fn own(&self, at: u32) -> u8 {
        (self.own >> (2 * at) & 3) as u8
    }

    /// Returns whether the last request of a chunk was a read, and another request came before.
    pub fn is_reread(&self, at: u32) -> bool {
        self.reread >> at & 1 == 1
    }

    /// Returns the share of re-reads among the reads.
    pub fn rate(&self) -> f32 {
        f32::from(self.rate) / RATE_UNIT
    }

    fn set_rate(&mut self, rate: f32) {
        self.rate = (rate * RATE_UNIT).round() as u16;
    }

    /// Notes that it is used.
    pub fn use_it(&mut self) {
        self.flags |= USED;
    }

    /// Returns whether it was used, and notes that it is not any more.
    pub fn rest(&mut self) -> bool {
        let was_used = self.flags & USED != 0;
        self.flags &= !USED;
        was_used
    }

    /// Returns whether a write replaced a cached chunk.
    pub fn is_rewritten(&self) -> bool {
        self.flags & REWRITTEN != 0
    }

    /// Notes that a write replaced a cached chunk. Returns whether one did before.
    pub fn rewrite(&mut self) -> bool {
        let was = self.is_rewritten();
        self.flags |= REWRITTEN;
        was
    }

    /// Returns whether it stands for no addresses.
    pub fn is_vacant(&self) -> bool {
        self.flags & VACANT != 0
    }

    /// Has it stand for no addresses.
    pub fn vacate(&mut self) {
        *self = AddressRegion { flags: VACANT, ..AddressRegion::new(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_numbers_in_a_row_are_one_run() {
        assert_eq!(size_of::<AddressRegion>(), 32);
        let mut region = AddressRegion::new((1 << 36) - 1);
        assert_eq!(region.number(), (1 << 36) - 1);
        let mut numbers = [0; 16];
        numbers[1..4].copy_from_slice(&[7, 8, 9]);
        numbers[5..9].copy_from_slice(&[10, 12, ZEROES, ZEROES]);
        numbers[9] = 0;
        let (firsts, count) = region.set_numbers(0b11_1110_1110, &numbers);
        assert_eq!(&firsts[..count], [7, 10, 12, ZEROES, 0]);
        for at in [1, 2, 3, 5, 6, 7, 8, 9] {
            let (run, steps) = region.run_of(at);
            assert_eq!(AddressRegion::follow(firsts[run], steps), numbers[at as usize], "{at}");
        }
        let unpacked = region.unpack(&firsts[..count]);
        assert_eq!(
            (unpacked[1..4].to_vec(), unpacked[5..10].to_vec()),
            (numbers[1..4].to_vec(), numbers[5..10].to_vec())
        );
        assert!(!region.has(0) && !region.has(4) && region.has(9) && region.runs() == 5);
    }

    #[test]
    fn marks_are_apart() {
        let mut region = AddressRegion::new(3);
        for mark in [Mark::Dirty, Mark::Transient, Mark::Fragment] {
            for at in 0..16 {
                region.mark(mark, at, true);
                assert!(region.is(mark, at));
                region.mark(mark, at, false);
                let marks = [Mark::Dirty, Mark::Transient, Mark::Fragment];
                assert!(marks.iter().all(|&mark| (0..16).all(|at| !region.is(mark, at))));
            }
        }
    }
}
