//! Chunks of several sizes: the most and the least number of intervals that fit a capacity.
//!
//! Source: Berger, Beckmann and Harchol-Balter, "Practical Bounds on Optimal Caching with Variable
//! Object Sizes", SIGMETRICS 2018 (PFOO). The exact number is NP-hard to find. They name their
//! bounds by misses, we ours by hits. Their PFOO-L bounds misses from below, so it is the *upper*
//! bound of hits here.
//!
//! Upper. An interval takes a *resource*, its bytes times its gaps. The room over a gap is at most
//! the capacity, and at most the bytes of all intervals over it. The paper leaves the second limit
//! out, which counts while a cache is still being filled. A set that fits takes at most the
//! resource of all gaps together. The largest set of that much, fitting or not, is that of the
//! intervals with the smallest resources. Then prices (`prices.rs`), which the paper does not have,
//! take into account when the room is; the lower of the two bounds counts.
//!
//! Lower. The better of two choices that fit. One is Belady's (`furthest.rs`). The other takes all
//! intervals in the order of their costs at the prices found, and keeps each that still fits
//! everywhere. It is the paper's PFOO-U in shape. That takes intervals in bands of resource, and
//! solves each band as a flow in the room left by the earlier ones. Our bands have one interval and
//! our resource is priced.
//!
//! If all sizes are equal, Belady's choice is the optimum; if everything fits, all is. Both bounds
//! are that.
//!
//! Memory: 12 bytes a request and 8 an interval for all capacities; while one is looked at, up to
//! 100 an interval more. Time: O(n log n) a capacity, about 1 s for 10^6 intervals.
//!
//! It does not split chunks, or round them to the units of flash writes.

use super::{
    chosen::{Chosen, written_at_least},
    furthest,
    intervals::{Interval, Intervals},
    occupancy::Occupancy,
    prices::{Prices, Windows, search},
};

/// Bounds of the number of intervals that can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptBounds {
    pub lower: u64,
    pub upper: u64,
    /// The room that a cache of `lower` writes, at least; one of them writes as little as the next.
    pub written_lower: u64,
    pub written_upper: u64,
}

impl KeptBounds {
    /// Returns the bounds of a choice of intervals; no choice has more than `upper`.
    pub fn of(
        chosen: &Chosen,
        upper: u64,
        intervals: &Intervals,
        capacity: u64,
        taken_by: impl Fn(u32) -> u64,
    ) -> KeptBounds {
        let lower = chosen.count();
        let written_upper = chosen.written(intervals, capacity, |interval| taken_by(interval.bytes));
        let written_lower = written_at_least(&intervals.contents, lower, taken_by);
        assert!(written_lower <= written_upper, "{written_lower} are written at least, and {written_upper} are");
        KeptBounds { lower, upper, written_lower, written_upper }
    }
}

/// The data that all capacities share.
pub(super) struct Sized<'i> {
    intervals: &'i Intervals,
    requests: u32,
    /// Bytes of the interval that ends at each request; 0 if none does.
    bytes_by_end: Vec<u32>,
    /// Bytes of all intervals over each gap.
    wanted: Vec<u64>,
    /// Resources of all intervals, in order of size.
    resources: Vec<u64>,
}

impl<'i> Sized<'i> {
    pub fn new(intervals: &'i Intervals, requests: u32) -> Sized<'i> {
        let all = &intervals.all;
        let mut bytes_by_end = vec![0; requests as usize];
        for interval in all {
            bytes_by_end[interval.end as usize] = interval.bytes;
        }
        let mut wanted = Vec::with_capacity(requests as usize);
        let mut starts = all.iter().peekable();
        let mut bytes = 0;
        for (gap, ends) in bytes_by_end.iter().enumerate() {
            bytes -= u64::from(*ends);
            bytes += starts.next_if(|interval| interval.start as usize == gap).map_or(0, |i| u64::from(i.bytes));
            wanted.push(bytes);
        }
        let mut resources: Vec<u64> = all.iter().map(Interval::resource).collect();
        resources.sort_unstable();
        Sized { intervals, requests, bytes_by_end, wanted, resources }
    }

    /// Returns the number of intervals that fit `capacity` bytes, and the room that they write.
    pub fn kept(&self, capacity: u64) -> KeptBounds {
        let (chosen, upper) = self.chosen(capacity);
        KeptBounds::of(&chosen, upper, self.intervals, capacity, u64::from)
    }

    /// Returns intervals that fit `capacity` bytes, and the number of those that fit at most.
    pub fn chosen(&self, capacity: u64) -> (Chosen, u64) {
        let intervals = &self.intervals.all;
        let taken_by = |end: u32| u64::from(self.bytes_by_end[end as usize]);
        let furthest = furthest::kept(intervals, self.requests, capacity, taken_by);
        let all_fit = furthest.count() == intervals.len() as u64;
        if all_fit || intervals.windows(2).all(|pair| pair[0].bytes == pair[1].bytes) {
            let count = furthest.count();
            return (furthest, count);
        }
        let (relaxed, price) = self.relaxed(capacity);
        let windows = Windows::new(self.wanted.len(), self.room(capacity));
        let prices = search(intervals, &windows, price, furthest.count());
        let upper = relaxed.min(prices.upper(intervals));
        let cheapest = self.cheapest_first(&prices, capacity);
        let best = if cheapest.count() > furthest.count() { cheapest } else { furthest };
        let lower = best.count();
        assert!(lower <= upper, "{lower} intervals fit {capacity} bytes, and at most {upper} do");
        (best, upper)
    }

    /// Returns the bytes that can be taken over each gap.
    fn room(&self, capacity: u64) -> impl Iterator<Item = u64> {
        self.wanted.iter().map(move |wanted| capacity.min(*wanted))
    }

    /// Returns the most intervals whose resources all gaps together have.
    ///
    /// With it comes the price of a unit at which as many are wanted.
    fn relaxed(&self, capacity: u64) -> (u64, f64) {
        let mut left: u128 = self.room(capacity).map(u128::from).sum();
        let mut count = 0;
        let mut resource = 1;
        for next in &self.resources {
            resource = *next;
            let Some(rest) = left.checked_sub(u128::from(resource)) else { break };
            left = rest;
            count += 1;
        }
        (count, 1.0 / resource.max(1) as f64)
    }

    /// Tries the intervals from the cheapest on, and returns those that fit.
    fn cheapest_first(&self, prices: &Prices<'_>, capacity: u64) -> Chosen {
        let intervals = &self.intervals.all;
        let costs = intervals.iter().zip(0u32..).map(|(interval, number)| (prices.cost(interval), number));
        let mut order: Vec<(f64, u32)> = costs.collect();
        order.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut occupancy = Occupancy::new(intervals.len());
        let mut chosen = Chosen::none(self.requests);
        for (_, number) in order {
            let interval = &intervals[number as usize];
            // Its own start is one of those before its end.
            let last = interval.starts_before_end as usize - 1;
            let bytes = u64::from(interval.bytes);
            if occupancy.add_if_fits(number as usize, last, bytes, capacity) {
                chosen.add(interval.end);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::{super::intervals::NEVER, *};

    #[test]
    fn resources_by_hand() {
        let interval = |start, end, starts_before_end, bytes| Interval { start, end, starts_before_end, bytes };
        // Gaps 0 to 5 are wanted by 3, 3 + 2, 3 + 2 + 4, 2 + 4, 2 and 0.
        let all = vec![interval(0, 3, 3, 3), interval(1, 5, 3, 2), interval(2, 4, 3, 4)];
        let contents = all.iter().map(|interval| (1, interval.bytes)).collect();
        let intervals = Intervals { next: vec![NEVER; all.len()], contents, all };
        let sized = Sized::new(&intervals, 6);
        assert_eq!(sized.wanted, [3, 5, 9, 6, 2, 0]);
        assert_eq!(sized.resources, [8, 8, 9]);
        // With 5 bytes the gaps have 3 + 5 + 5 + 5 + 2 = 20: two of the resources, not three.
        assert_eq!(sized.relaxed(5), (2, 1.0 / 9.0));
        // The two smallest of the contents have 5 bytes, and are those that fit.
        assert_eq!(sized.kept(5), KeptBounds { lower: 2, upper: 2, written_lower: 5, written_upper: 5 });
        // With 8 they have 24, and 25 are wanted; with 9 all fit.
        assert_eq!(sized.relaxed(8), (2, 1.0 / 9.0));
        assert_eq!(sized.kept(9), KeptBounds { lower: 3, upper: 3, written_lower: 9, written_upper: 9 });
        assert_eq!(sized.kept(0), KeptBounds { lower: 0, upper: 0, written_lower: 0, written_upper: 0 });
    }
}
