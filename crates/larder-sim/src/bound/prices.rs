//! Prices of space over time, which tighten the upper bound for chunks of several sizes.
//!
//! Source: Lagrange's relaxation, as for any packing. Let each byte over gap `t` cost a price, the
//! same for all caches, and let a hit be worth 1. For any prices, this bounds the hits of a set of
//! intervals that fits: the cost of all the room, plus each interval's worth above its own cost.
//!
//! > hits <= sum over gaps of price x room + sum over intervals of max(0, 1 - bytes x sum of its
//! > gaps' prices)
//!
//! For a hit of the set is worth 1 = its cost + the rest. The costs add up to the price of the room
//! that is taken, which is at most that of all the room.
//!
//! With one price for all time the least of these bounds is PFOO's. Here each of some thousand
//! windows of time has its price. It rises if intervals want more room at this price than there is,
//! and falls if they want less. The least over all prices is FOO's bound, the relaxation that
//! allows parts of intervals.
//!
//! Invariants: the search is in floating-point numbers, and may end anywhere. The bound of its last
//! prices is computed in integers, so it holds. Memory is some words a window.
//!
//! It does not find the least bound. The search stops after [`ROUNDS`] rounds, each O(n).

use std::ops::Add;

use super::intervals::Interval;

/// The most windows.
const WINDOWS_MAX: usize = 8192;
/// The number of rounds in which prices change.
const ROUNDS: u32 = 120;
/// The pace of a window's price, at first and at most: its logarithm, by the share of lacking room.
const PACE_FIRST: f64 = 1.5;
const PACE_MAX: f64 = 3.0;
/// A window's pace grows while its price goes on in one direction, and falls when it turns.
const PACE_GROWS: f64 = 1.1;
const PACE_FALLS: f64 = 0.8;
/// The most that a window counts as lacking, in parts of its room.
const LACK_MAX: f64 = 2.0;
/// The bounds of prices. Above the worth of a hit for a byte and gap nothing changes.
const PRICE_MIN: f64 = 1e-18;
const PRICE_MAX: f64 = 1.0;
/// Bits of a hit in the integers, which count in units of 2^-62.
const UNIT_BITS: u32 = 62;

/// Windows of time, and the room in each.
pub(super) struct Windows {
    /// The width of a window: two to the power of this, in gaps.
    width_bits: u32,
    /// Bytes times gaps that may be taken.
    room: Vec<u128>,
}

impl Windows {
    /// Makes them; `room` has, gap by gap, the bytes that may be taken.
    pub fn new(gaps: usize, room: impl Iterator<Item = u64>) -> Windows {
        let width_bits = gaps.div_ceil(WINDOWS_MAX).next_power_of_two().ilog2();
        let mut windows = vec![0; (gaps >> width_bits) + 1];
        for (gap, bytes) in room.enumerate() {
            windows[gap >> width_bits] += u128::from(bytes);
        }
        Windows { width_bits, room: windows }
    }

    /// Returns the window of a gap, and the number of gaps of the window before it.
    fn place(&self, gap: u32) -> (usize, u32) {
        ((gap >> self.width_bits) as usize, gap & ((1 << self.width_bits) - 1))
    }

    fn width(&self) -> f64 {
        (1u64 << self.width_bits) as f64
    }
}

/// A price for each window, in hits for a byte over a gap.
pub(super) struct Prices<'w> {
    windows: &'w Windows,
    prices: Vec<f64>,
    /// The cost of a byte over all windows before each.
    before: Vec<f64>,
}

impl Prices<'_> {
    fn new(windows: &Windows, prices: Vec<f64>) -> Prices<'_> {
        let before = sums_before(prices.iter().map(|price| price * windows.width()));
        Prices { windows, prices, before }
    }

    fn until(&self, gap: u32) -> f64 {
        let (window, gaps) = self.windows.place(gap);
        self.before[window] + self.prices[window] * f64::from(gaps)
    }

    /// Returns the cost of an interval, in hits.
    pub fn cost(&self, interval: &Interval) -> f64 {
        f64::from(interval.bytes) * (self.until(interval.end) - self.until(interval.start))
    }

    /// Returns the bound of these prices; all rounding is in its favour.
    pub fn upper(&self, intervals: &[Interval]) -> u64 {
        let one = 1u128 << UNIT_BITS;
        let units: Vec<u128> = self.prices.iter().map(|price| (price * one as f64) as u128).collect();
        let before = sums_before(units.iter().map(|price| price << self.windows.width_bits));
        let until = |gap| {
            let (window, gaps) = self.windows.place(gap);
            before[window] + units[window] * u128::from(gaps)
        };
        // Prices are at most 2^62 units and gaps and bytes below 2^32 each, so no cost overflows. A
        // sum that is too large to hold is a bound, too.
        let worths = intervals.iter().map(|interval| {
            one.saturating_sub(u128::from(interval.bytes) * (until(interval.end) - until(interval.start)))
        });
        let rooms = self.windows.room.iter().zip(&units).map(|(room, price)| room.saturating_mul(*price));
        let bound = worths.chain(rooms).fold(0, u128::saturating_add) >> UNIT_BITS;
        u64::try_from(bound).unwrap_or(u64::MAX)
    }

    /// Returns the bound, roughly, and the bytes times gaps wanted in each window at these prices.
    fn wanted(&self, intervals: &[Interval]) -> (f64, Vec<f64>) {
        let windows = self.windows;
        let mut bound = 0.0;
        // The parts of intervals inside a window, and the growth of the wanted bytes from one
        // window's start to the next.
        let mut wanted = vec![0.0; windows.room.len()];
        let mut steps = vec![0.0; windows.room.len()];
        for interval in intervals {
            let cost = self.cost(interval);
            if cost < 1.0 {
                bound += 1.0 - cost;
                let bytes = f64::from(interval.bytes);
                let ((first, skipped), (last, covered)) = (windows.place(interval.start), windows.place(interval.end));
                wanted[first] -= bytes * f64::from(skipped);
                wanted[last] += bytes * f64::from(covered);
                steps[first] += bytes;
                steps[last] -= bytes;
            }
        }
        let mut bytes = 0.0;
        for ((wanted, step), (room, price)) in wanted.iter_mut().zip(steps).zip(windows.room.iter().zip(&self.prices)) {
            bytes += step;
            *wanted += bytes * windows.width();
            bound += price * *room as f64;
        }
        (bound, wanted)
    }
}

/// Returns, for each value, the sum of those before it.
fn sums_before<T: Copy + Default + Add<Output = T>>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut sum = T::default();
    let add = |value| {
        let before = sum;
        sum = sum + value;
        before
    };
    values.map(add).collect()
}

/// Searches prices that give a low bound, from one price for all time on.
///
/// It returns the first that reach `goal`, below which no bound is.
pub(super) fn search<'w>(intervals: &[Interval], windows: &'w Windows, price: f64, goal: u64) -> Prices<'w> {
    let count = windows.room.len();
    let mut prices = Prices::new(windows, vec![price.clamp(PRICE_MIN, PRICE_MAX); count]);
    let mut best = (f64::INFINITY, prices.prices.clone());
    let mut paces = vec![PACE_FIRST; count];
    let mut lacked = vec![0.0; count];
    for _ in 0..ROUNDS {
        let (bound, wanted) = prices.wanted(intervals);
        if bound < best.0 {
            best = (bound, prices.prices.clone());
        }
        if bound < goal as f64 + 1.0 {
            break;
        }
        let mut next = prices.prices;
        for (window, price) in next.iter_mut().enumerate() {
            let room = windows.room[window] as f64;
            if room > 0.0 {
                let lack = ((wanted[window] - room) / room).min(LACK_MAX);
                let goes_on = lack * std::mem::replace(&mut lacked[window], lack) > 0.0;
                let pace = &mut paces[window];
                *pace = (*pace * if goes_on { PACE_GROWS } else { PACE_FALLS }).min(PACE_MAX);
                *price = (*price * (*pace * lack).exp()).clamp(PRICE_MIN, PRICE_MAX);
            }
        }
        prices = Prices::new(windows, next);
    }
    Prices::new(windows, best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start: u32, end: u32, bytes: u32) -> Interval {
        Interval { start, end, starts_before_end: 0, bytes }
    }

    #[test]
    fn costs_wanted_space_and_bounds_are_what_they_are_defined_as() {
        let gaps = 2 * WINDOWS_MAX;
        let windows = Windows::new(gaps, (0..gaps).map(|gap| if gap < 6 { 10 } else { 0 }));
        assert_eq!((windows.width_bits, &windows.room[..4]), (1, &[20, 20, 20, 0][..]));
        let mut given = vec![0.0; windows.room.len()];
        given[..3].copy_from_slice(&[1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0]);
        let prices = Prices::new(&windows, given);
        let intervals = [interval(1, 5, 4), interval(0, 1, 8), interval(2, 6, 10)];
        // 4 x (1 x 1/64 + 2 x 1/32 + 1 x 1/16), 8 x 1/64, 10 x (2 x 1/32 + 2 x 1/16): the last is
        // not worth it.
        assert_eq!(intervals.map(|interval| prices.cost(&interval)), [0.5625, 0.125, 1.875]);
        let (bound, wanted) = prices.wanted(&intervals);
        // 20 x (1/64 + 1/32 + 1/16) + 0.4375 + 0.875.
        assert_eq!((bound, &wanted[..4]), (3.5, &[12.0, 8.0, 4.0, 0.0][..]));
        assert_eq!(prices.upper(&intervals), 3);
    }

    #[test]
    fn prices_see_that_room_at_another_time_is_of_no_use() {
        // 100 intervals want the same two gaps, and each takes all. The room of the 10,000 gaps
        // after them stays unused.
        let intervals: Vec<Interval> = (0..100).map(|_| interval(0, 2, 10)).collect();
        let windows = Windows::new(10_000, std::iter::repeat_n(10, 10_000));
        let prices = search(&intervals, &windows, 1.0 / 20.0, 0);
        assert_eq!(prices.upper(&intervals), 1);
    }
}
