//! The last trim of each byte: a map of ranges to the number of the trim.
//!
//! Invariants: ranges do not overlap; a later trim replaces the ranges that it covers. There are at
//! most two ranges for each trim, with any writes between.
//!
//! It does not know writes. It leaves the comparison of numbers to the caller.

use std::collections::BTreeMap;

/// Trimmed ranges.
#[derive(Default)]
pub(crate) struct Trimmed {
    /// Maps the first byte to the byte after the last, and the number of the trim.
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl Trimmed {
    /// Takes the trim of `start..end` with its number.
    pub fn add(&mut self, start: u64, end: u64, number: u64) {
        // A range that begins before and reaches in keeps its head, and its tail if it reaches out
        // again.
        if let Some((&at, &(old_end, old))) = self.ranges.range(..start).next_back()
            && old_end > start
        {
            self.ranges.insert(at, (start, old));
            if old_end > end {
                self.ranges.insert(end, (old_end, old));
            }
        }
        while let Some((&at, &(old_end, old))) = self.ranges.range(start..end).next() {
            self.ranges.remove(&at);
            if old_end > end {
                self.ranges.insert(end, (old_end, old));
            }
        }
        self.ranges.insert(start, (end, number));
    }

    /// Returns the number of the trim that covers `start..end`, if one does.
    pub fn covering(&self, start: u64, end: u64) -> Option<u64> {
        let (_, &(range_end, number)) = self.ranges.range(..=start).next_back()?;
        (range_end >= end).then_some(number)
    }

    /// Returns the number of the last trim that touches `start..end`, in whole or in part.
    pub fn touching(&self, start: u64, end: u64) -> Option<u64> {
        let before = self.ranges.range(..start).next_back().filter(|(_, (range_end, _))| *range_end > start);
        before.into_iter().chain(self.ranges.range(start..end)).map(|(_, &(_, number))| number).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::TraceRng;

    #[test]
    fn the_last_trim_of_each_byte_is_known() {
        let mut rng = TraceRng::new(7);
        let mut trimmed = Trimmed::default();
        let mut model = [None; 200];
        for number in 0..500 {
            let start = rng.below(200);
            let end = (start + 1 + rng.below(60)).min(200);
            trimmed.add(start, end, number);
            model[start as usize..end as usize].fill(Some(number));
            for at in 0..200 {
                assert_eq!(trimmed.covering(at, at + 1), model[at as usize], "byte {at} after trim {number}");
            }
            let (from, to) = (rng.below(200), rng.below(200));
            let (from, to) = (from.min(to), from.max(to) + 1);
            let latest = model[from as usize..(to as usize).min(200)].iter().copied().flatten().max();
            assert_eq!(trimmed.touching(from, to), latest, "{from} to {to} after trim {number}");
            assert!(trimmed.ranges.len() as u64 <= 2 * number + 2);
        }
    }
}
