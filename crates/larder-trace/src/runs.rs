//! A set of numbers as runs that neither overlap nor touch.
//!
//! Invariants: at least one number outside the set lies between two runs, so there are never more
//! runs than added numbers. Memory: [`RUN_BYTES_MAX`] a run.
//!
//! It does not forget. It leaves the order of additions to `trimmed.rs`.

use std::{collections::BTreeMap, ops::Range};

/// The most bytes of a run. A node of the tree has at least 5 runs and room for 11; inner nodes
/// come on top.
pub(crate) const RUN_BYTES_MAX: usize = 48;

/// See the module.
#[derive(Default)]
pub(crate) struct Runs {
    /// The first number of each run, and the one after its last.
    ends: BTreeMap<u64, u64>,
}

impl Runs {
    /// Counts the runs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a run, which must not be empty.
    pub fn add(&mut self, run: Range<u64>) {
        let Range { mut start, mut end } = run;
        // All runs that overlap or touch it become one with it: first the run that begins before
        // it, then those that begin in it.
        if let Some((&at, &old_end)) = self.ends.range(..start).next_back()
            && old_end >= start
        {
            if old_end >= end {
                return;
            }
            start = at;
        }
        while let Some((&at, &old_end)) = self.ends.range(start..=end).next() {
            self.ends.remove(&at);
            end = end.max(old_end);
        }
        self.ends.insert(start, end);
    }

    /// Returns the numbers around this one, none of which is in the set; empty if it is in the set.
    pub fn gap(&self, number: u64) -> Range<u64> {
        let start = self.ends.range(..=number).next_back().map_or(0, |(_, &end)| end);
        let end = self.ends.range(number..).next().map_or(u64::MAX, |(&start, _)| start);
        if start <= number { start..end } else { 0..0 }
    }

    /// Returns the parts of runs that lie in `within`, in order.
    pub fn parts(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ends.range(..within.start).next_back();
        let runs = before.into_iter().chain(self.ends.range(within.clone()));
        runs.map(move |(&start, &end)| start.max(within.start)..end.min(within.end)).filter(|part| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::TraceRng;

    #[test]
    fn runs_are_the_numbers_that_were_added() {
        const SEED: u64 = 11;
        let mut rng = TraceRng::new(SEED);
        for round in 0..20 {
            let mut runs = Runs::default();
            let mut model = [false; 300];
            for _ in 0..40 {
                let start = rng.below(290);
                let end = start + 1 + rng.below(10);
                runs.add(start..end);
                model[start as usize..end as usize].fill(true);
                let context = format!("seed {SEED}, round {round}: {:?}", runs.ends);
                for at in 0..300u64 {
                    let gap = runs.gap(at);
                    assert_eq!(gap.contains(&at), !model[at as usize], "{at}, {context}");
                    assert!(gap.is_empty() || gap.start == 0 || model[gap.start as usize - 1], "{at}, {context}");
                    assert!(gap.end >= 300 || gap.is_empty() || model[gap.end as usize], "{at}, {context}");
                    assert!((gap.start..gap.end.min(300)).all(|at| !model[at as usize]), "{at}, {context}");
                }
                let begins = (0..300).filter(|&at| model[at] && (at == 0 || !model[at - 1])).count();
                assert_eq!(runs.len(), begins, "{context}");
                let from = rng.below(300);
                let within = from..from + 1 + rng.below(300 - from);
                let parts: Vec<u64> = runs.parts(within.clone()).flatten().collect();
                let expected: Vec<u64> = within.filter(|&at| model[at as usize]).collect();
                assert_eq!(parts, expected, "{context}");
            }
        }
    }
}
