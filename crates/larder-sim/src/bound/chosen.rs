//! A choice of intervals, and the data that it brings to the cache.
//!
//! A content is written when it begins to be kept. If one kept interval of a content begins at the
//! request at which another ends, the content stays, and is not written again. If there are
//! requests between the two, the content stays too where there is room: that is a *bridge*.
//!
//! Invariants: a choice never exceeds the capacity, bridges included. A bridge begins where its
//! content is in the cache, so the room taken grows at the starts of intervals alone
//! (`occupancy.rs`).
//!
//! It does not find the fewest bytes: bridges are taken as they come, the shortest first.

use super::{
    bits::Bits,
    intervals::{Interval, Intervals, NEVER},
    occupancy::Occupancy,
};

/// A choice of intervals, by their ends: no two have the same.
pub(super) struct Chosen {
    ends: Bits,
    count: u64,
}

impl Chosen {
    /// Makes an empty choice over so many requests.
    pub fn none(requests: u32) -> Chosen {
        Chosen { ends: Bits::new(requests as usize), count: 0 }
    }

    /// Adds the interval that ends at `end`.
    pub fn add(&mut self, end: u32) {
        self.ends.insert(end);
        self.count += 1;
    }

    /// Leaves out the interval that ends at `end` after all.
    pub fn leave_out(&mut self, end: u32) {
        self.count -= u64::from(self.ends.remove(end));
    }

    /// Returns the number of intervals.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn has(&self, interval: &Interval) -> bool {
        self.ends.contains(interval.end)
    }

    /// Returns the room that a cache of this choice writes; an interval takes `taken_by` it.
    ///
    /// O(n log n).
    pub fn written(&self, intervals: &Intervals, capacity: u64, taken_by: impl Fn(&Interval) -> u64) -> u64 {
        let all = &intervals.all;
        let mut occupancy = Occupancy::new(all.len());
        let mut bridges = Vec::new();
        let mut written = 0;
        // From the last on: the next kept interval of each content that was met.
        let mut next_kept = vec![NEVER; all.len()];
        for (number, interval) in all.iter().enumerate().rev() {
            let next = match intervals.next[number] {
                NEVER => NEVER,
                next if self.has(&all[next as usize]) => next,
                next => next_kept[next as usize],
            };
            next_kept[number] = next;
            if !self.has(interval) {
                continue;
            }
            let taken = taken_by(interval);
            occupancy.add(number, interval.starts_before_end as usize - 1, taken);
            written += taken;
            if next != NEVER {
                let gaps = all[next as usize].start - interval.end;
                bridges.push((u64::from(gaps) * taken, number as u32, next));
            }
        }
        bridges.sort_unstable();
        for (_, from, to) in bridges {
            let interval = &all[from as usize];
            let (first, after) = (interval.starts_before_end as usize, to as usize);
            let taken = taken_by(interval);
            if first == after || occupancy.add_if_fits(first, after - 1, taken, capacity) {
                written -= taken;
            }
        }
        written
    }
}

/// Returns the room that any cache with so many hits writes at least.
///
/// A content that hits is written once at least. The fewest are written if the contents with the
/// most intervals for their room hit, the last of them in part.
///
/// `contents` has the intervals of each and its bytes. O(n log n).
pub(super) fn written_at_least(contents: &[(u32, u32)], hits: u64, taken_by: impl Fn(u32) -> u64) -> u64 {
    let mut order: Vec<(u32, u64)> = contents.iter().map(|&(count, bytes)| (count, taken_by(bytes))).collect();
    order.sort_unstable_by(|&(one, one_takes), &(other, other_takes)| {
        (u64::from(one) * other_takes).cmp(&(u64::from(other) * one_takes)).reverse()
    });
    let mut left = hits;
    let mut written = 0;
    for (count, taken) in order {
        if left <= u64::from(count) {
            return written + taken * left / u64::from(count);
        }
        left -= u64::from(count);
        written += taken;
    }
    written
}
