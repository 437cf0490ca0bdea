//! Life tables: the probability by class and age that a content is read next, or ends.
//!
//! A table counts, for each class and bin of age, the contents that lived through the bin, the
//! events in it, and the hits among these. An event is a request of the content, or the loss of its
//! last reference. From these counts follow two values:
//!
//! - the *index* of a content of a class and age, after Gittins (1979): the best ratio of expected
//!   hits to expected occupancy, over all times at which the cache may give it up;
//! - its *profit* under a rent: the most hits less rent that it may bring.
//!
//! Invariants: probabilities lie in 0..=1. Without any count a class has the life of its group.
//!
//! It does not know contents.

use super::{
    ages::{Ages, BINS},
    class::{CLASSES, Class, GROUPS},
};

/// Lives that a class takes from its group.
const PRIOR_LIVES: f64 = 8.0;
/// Lives that a group begins with.
const FIRST_LIVES: f64 = 4.0;
/// The hits and ends of those, a bin.
const FIRST_HITS: f64 = 0.1;
const FIRST_HITS_DEAD: f64 = 0.001;
const FIRST_ENDS: f64 = 0.05;
/// The share of the counts that stays at a renewal.
const KEPT: f64 = 0.9;
/// A survival below this ends a sum.
const SURVIVAL_MIN: f64 = 1e-4;

/// One number for each bin of each class.
type Table = [[f64; BINS]; CLASSES];

/// See the module.
pub struct Lifetimes {
    ages: Ages,
    lived: Box<Table>,
    events: Box<Table>,
    hits: Box<Table>,
    /// The share with a hit in a bin, among the contents that reach it.
    hit_share: Box<Table>,
    /// The share with any event in a bin, among the contents that reach it.
    event_share: Box<Table>,
    index: Box<Table>,
}

impl Lifetimes {
    /// Returns tables without any count.
    pub fn new(ages: Ages) -> Lifetimes {
        let empty = || Box::new([[0.0; BINS]; CLASSES]);
        let mut tables = Lifetimes {
            ages,
            lived: empty(),
            events: empty(),
            hits: empty(),
            hit_share: empty(),
            event_share: empty(),
            index: empty(),
        };
        tables.solve();
        tables
    }

    /// Returns the ages of the bins.
    pub fn ages(&self) -> &Ages {
        &self.ages
    }

    /// Counts a content of `class` that has lived through `bin`, or was in it at its event.
    pub fn live_through(&mut self, class: Class, bin: usize) {
        self.lived[class.index()][bin] += 1.0;
    }

    /// Counts an event of a content of `class` at `age`.
    pub fn note(&mut self, class: Class, age: u32, is_hit: bool) {
        let bin = self.ages.bin(age);
        self.events[class.index()][bin] += 1.0;
        self.hits[class.index()][bin] += f64::from(u8::from(is_hit));
    }

    /// Returns the cells that are not empty: class, bin, and lives, events and hits there.
    pub fn counts(&self) -> impl Iterator<Item = (Class, usize, [f32; 3])> + '_ {
        let cells = (0..CLASSES).flat_map(|class| (0..BINS).map(move |bin| (class, bin)));
        let counted = cells.map(|(class, bin)| {
            let counts = [&self.lived, &self.events, &self.hits].map(|table| table[class][bin] as f32);
            (Class::of_index(class), bin, counts)
        });
        counted.filter(|(_, _, counts)| counts.iter().any(|&count| count > 0.0))
    }

    /// Sets the counts of a cell.
    pub fn restore(&mut self, class: Class, bin: usize, counts: [f32; 3]) {
        let tables = [&mut self.lived, &mut self.events, &mut self.hits];
        tables.into_iter().zip(counts).for_each(|(table, count)| table[class.index()][bin] = count.into());
    }

    /// Computes shares and indices anew, and lets older counts fade.
    pub fn renew(&mut self) {
        self.solve();
        for table in [&mut self.lived, &mut self.events, &mut self.hits] {
            table.iter_mut().flatten().for_each(|count| *count *= KEPT);
        }
    }

    /// Computes shares and indices anew.
    pub fn solve(&mut self) {
        let groups = |table: &Table| {
            let mut sums = [[0.0; BINS]; GROUPS];
            for class in (0..CLASSES).map(Class::of_index) {
                for (sum, count) in sums[class.group()].iter_mut().zip(&table[class.index()]) {
                    *sum += count;
                }
            }
            sums
        };
        let (lived, events, hits) = (groups(&self.lived), groups(&self.events), groups(&self.hits));
        for class in (0..CLASSES).map(Class::of_index) {
            let (i, group) = (class.index(), class.group());
            let first_hits = if class.is_dead() { FIRST_HITS_DEAD } else { FIRST_HITS };
            for bin in 0..BINS {
                let share = |sum: f64, first: f64| (sum + FIRST_LIVES * first) / (lived[group][bin] + FIRST_LIVES);
                let own = |count: f64, prior: f64| (count + PRIOR_LIVES * prior) / (self.lived[i][bin] + PRIOR_LIVES);
                let hit = own(self.hits[i][bin], share(hits[group][bin], first_hits)).min(1.0);
                let event = own(self.events[i][bin], share(events[group][bin], FIRST_ENDS));
                self.hit_share[i][bin] = hit;
                self.event_share[i][bin] = event.clamp(hit, 1.0);
            }
            for bin in 0..BINS {
                self.index[i][bin] = self.walk(i, bin, 0.0, |hits, occupancy| hits / occupancy).max(0.0);
            }
        }
    }

    /// Returns the index of a content: hits for each request that it stays.
    #[inline]
    pub fn index(&self, class: Class, age: u32) -> f64 {
        self.index[class.index()][self.ages.bin(age)]
    }

    /// Returns the most hits less rent of a content, which pays `rent` for each request that it
    /// stays.
    pub fn profit(&self, class: Class, age: u32, rent: f64) -> f64 {
        self.walk(class.index(), self.ages.bin(age), f64::MIN, |hits, occupancy| hits - rent * occupancy)
    }

    /// Returns the best of `of`, given hits and occupancy up to the end of each bin from `from`.
    fn walk(&self, class: usize, from: usize, least: f64, of: impl Fn(f64, f64) -> f64) -> f64 {
        let (mut survival, mut hits, mut occupancy, mut best) = (1.0, 0.0, 0.0, least);
        let shares = self.hit_share[class].iter().zip(&self.event_share[class]).zip(self.ages.widths());
        for ((hit, event), width) in shares.skip(from) {
            // Events lie in the middle of their bin, in the mean.
            occupancy += survival * width * (1.0 - event / 2.0);
            hits += survival * hit;
            best = best.max(of(hits, occupancy));
            survival *= 1.0 - event;
            if survival < SURVIVAL_MIN {
                break;
            }
        }
        best
    }

    /// Returns the bytes that the tables have allocated.
    pub fn ram_bytes(&self) -> usize {
        6 * size_of::<Table>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(own: u8) -> Class {
        Class::live(own, false, 0.0)
    }

    /// Contents of one class are read at one age; those of another never.
    fn taught() -> Lifetimes {
        let mut lives = Lifetimes::new(Ages::new(64));
        for _ in 0..2000 {
            let last = lives.ages().bin(700);
            (0..=last).for_each(|bin| lives.live_through(class(3), bin));
            lives.note(class(3), 700, true);
            (0..BINS).for_each(|bin| lives.live_through(class(0), bin));
        }
        lives.solve();
        lives
    }

    #[test]
    fn a_content_that_is_read_again_is_worth_more_until_it_is_late() {
        let lives = taught();
        assert!(lives.index(class(3), 0) > 20.0 * lives.index(class(0), 0));
        assert!(lives.index(class(3), 600) > lives.index(class(3), 0), "the read comes nearer");
        assert!(lives.index(class(3), 5000) < lives.index(class(3), 0) / 5.0, "it did not come");
    }

    #[test]
    fn a_profit_falls_with_the_rent_and_may_be_none() {
        let lives = taught();
        let profits: Vec<f64> = [0.0, 1e-4, 1e-3, 1e-2].map(|rent| lives.profit(class(3), 0, rent)).to_vec();
        assert!(profits.is_sorted_by(|a, b| a > b) && profits[0] > 0.9, "{profits:?}");
        assert!(lives.profit(class(3), 0, 1e-2) < 0.0);
    }

    #[test]
    fn counts_fade() {
        let (mut lives, fresh) = (taught(), Lifetimes::new(Ages::new(64)));
        let differs = |lives: &Lifetimes| (lives.index(class(3), 600) / fresh.index(class(3), 600) - 1.0).abs();
        assert!(differs(&lives) > 0.5, "{}", differs(&lives));
        (0..200).for_each(|_| lives.renew());
        assert!(differs(&lives) < 0.01, "old lives are forgotten: {}", differs(&lives));
    }
}
