//! The wear budget: the bytes that a flash may be written in any 24 hours.
//!
//! Time has bins of five minutes. The bytes of the present bin and of the 288 before it are at
//! least those of the last 24 hours. The rest of the budget decides how much the cache still
//! writes: see [`WearLevel`].
//!
//! Invariants: time never goes back. A caller whose clock jumps back goes on from the old time, and
//! one that restarts tells the time that has passed at most.
//!
//! It has no clock, and writes nothing.

use std::collections::VecDeque;

/// Seconds of a bin.
pub const WEAR_BIN_SECONDS: u64 = 300;
/// Whole bins of 24 hours.
pub const WEAR_BINS: usize = 288;
/// The share of the budget below which the cache saves: one part in so many.
const SAVING_SHARE: u64 = 8;

/// The writes that a cache still makes, by what is left of its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WearLevel {
    /// All of them.
    #[default]
    Free,
    /// No clean chunk is stored, and no record again.
    Saving,
    /// A client's write goes past the flash, too. The reserve serves log and checkpoints.
    Past,
    /// The reserve is used up: nothing is written to the flash.
    Spent,
}

/// The budget and the bytes of the last bins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WearBudget {
    day_bytes: u64,
    reserve_bytes: u64,
    /// Newest first: the present bin, and at most [`WEAR_BINS`] before it.
    bins: VecDeque<u64>,
    /// The sum of the bins: each write of the flash asks for it.
    spent: u64,
    /// The number of the present bin.
    bin: u64,
}

impl WearBudget {
    /// Returns a budget of `day_bytes` in any 24 hours at a time in seconds.
    ///
    /// `reserve_bytes` of them are kept for log and checkpoints. `spent` has the bytes of earlier
    /// bins, newest first, the first of which is not over.
    pub fn new(day_bytes: u64, reserve_bytes: u64, spent: impl IntoIterator<Item = u64>, now: u64) -> WearBudget {
        let mut bins: VecDeque<u64> = spent.into_iter().take(WEAR_BINS + 1).collect();
        if bins.is_empty() {
            bins.push_front(0);
        }
        let spent = bins.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
        WearBudget { day_bytes, reserve_bytes, bins, spent, bin: now / WEAR_BIN_SECONDS }
    }

    /// Notes the time in seconds.
    pub fn pass(&mut self, now: u64) {
        let bin = now / WEAR_BIN_SECONDS;
        for _ in 0..bin.saturating_sub(self.bin).min(WEAR_BINS as u64 + 1) {
            self.bins.push_front(0);
            if self.bins.len() > WEAR_BINS + 1 {
                self.spent -= self.bins.pop_back().unwrap_or(0);
            }
        }
        self.bin = self.bin.max(bin);
    }

    /// Notes bytes that were written now.
    pub fn spend(&mut self, bytes: u64) {
        let bytes = bytes.min(u64::MAX - self.spent);
        self.bins[0] += bytes;
        self.spent += bytes;
    }

    /// Returns the budget of 24 hours in bytes.
    pub fn day_bytes(&self) -> u64 {
        self.day_bytes
    }

    /// Returns the bytes of the last 24 hours, or somewhat more.
    pub fn spent_bytes(&self) -> u64 {
        self.spent
    }

    /// Returns the bytes that may be written now.
    pub fn left_bytes(&self) -> u64 {
        self.day_bytes.saturating_sub(self.spent_bytes())
    }

    /// Returns the bytes of the budget that log and checkpoints alone may take.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Returns the bytes of each bin, newest first.
    pub fn bins(&self) -> impl Iterator<Item = u64> + '_ {
        self.bins.iter().copied()
    }

    /// Returns the level.
    pub fn level(&self) -> WearLevel {
        let left = self.left_bytes();
        let saving = self.reserve_bytes.saturating_add(self.day_bytes / SAVING_SHARE);
        match left {
            _ if left < self.reserve_bytes / 2 => WearLevel::Spent,
            _ if left < self.reserve_bytes => WearLevel::Past,
            _ if left < saving => WearLevel::Saving,
            _ => WearLevel::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    #[test]
    fn no_24_hours_take_more_than_is_left() {
        let mut draws = 1_u64;
        let mut draw = |below: u64| {
            draws = crate::types::mix(draws);
            draws % below
        };
        for _ in 0..50 {
            let budget = 1000 + draw(100_000);
            let mut wear = WearBudget::new(budget, budget / 10, [], 0);
            let (mut now, mut written) = (0, Vec::new());
            for _ in 0..2000 {
                now += draw(1200);
                wear.pass(now);
                let bytes = draw(budget / 20 + 1).min(wear.left_bytes());
                wear.spend(bytes);
                written.push((now, bytes));
                let last: u64 = written.iter().filter(|(at, _)| at + DAY > now).map(|(_, bytes)| bytes).sum();
                assert!(last <= wear.spent_bytes() && last <= budget, "{last} of {budget}");
                let longer = now.saturating_sub(DAY + 2 * WEAR_BIN_SECONDS);
                let most: u64 = written.iter().filter(|(at, _)| *at >= longer).map(|(_, bytes)| bytes).sum();
                assert!(wear.spent_bytes() <= most, "old bytes are forgotten");
            }
        }
    }

    #[test]
    fn a_clock_that_jumps_back_gives_nothing_back() {
        let mut wear = WearBudget::new(1000, 100, [], 10 * DAY);
        wear.spend(600);
        wear.pass(3);
        assert_eq!((wear.spent_bytes(), wear.left_bytes()), (600, 400));
        wear.pass(10 * DAY + DAY);
        assert_eq!(wear.spent_bytes(), 600, "the present bin is one of 289");
        wear.pass(10 * DAY + DAY + WEAR_BIN_SECONDS);
        assert_eq!(wear.spent_bytes(), 0);
        wear.pass(u64::MAX);
        assert_eq!(wear.bins().count(), WEAR_BINS + 1);
    }

    #[test]
    fn levels_follow_what_is_left() {
        let mut wear = WearBudget::new(1000, 100, [], 0);
        let mut levels = Vec::new();
        for _ in 0..100 {
            levels.push(wear.level());
            wear.spend(10);
        }
        assert!(levels.is_sorted());
        let count = |level| levels.iter().filter(|&&each| each == level).count();
        let counts = [WearLevel::Free, WearLevel::Saving, WearLevel::Past, WearLevel::Spent].map(count);
        assert_eq!(counts, [78, 13, 5, 4]);
    }

    #[test]
    fn a_restart_goes_on_with_the_bins_of_before() {
        let mut wear = WearBudget::new(1000, 100, [], 0);
        for bytes in [10, 20, 30] {
            wear.spend(bytes);
            wear.pass(wear.bin * WEAR_BIN_SECONDS + WEAR_BIN_SECONDS);
        }
        let mut again = WearBudget::new(1000, 100, wear.bins(), 77 * DAY);
        assert_eq!(again.spent_bytes(), 60);
        again.pass(78 * DAY);
        assert_eq!(again.spent_bytes(), 0);
    }
}
