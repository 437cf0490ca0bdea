//! Disjoint runs of trimmed chunks that read as zeroes and that the origin does not know of yet.
//!
//! Each run has the sequence number of the trim that made it.
//!
//! Invariants: runs do not overlap; adding cuts older runs, removing cuts runs in two.
//!
//! It does not merge neighbours, whose sequence numbers differ. The engine extends a trim over each
//! run that it touches, so log, list and checkpoint hold one run with one number.

use crate::{
    pages::{PageMap, key_bytes_max},
    types::Lba,
};

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First chunk.
    pub first: Lba,
    /// Number of chunks.
    pub count: u64,
    /// Sequence number of its trim.
    pub seq: u64,
    /// The client asked to keep the range allocated.
    pub no_hole: bool,
    /// The client trimmed the range and asked for no zeroes, so the origin need not be told.
    ///
    /// It is never set together with `no_hole`.
    pub advisory: bool,
}

impl Run {
    /// Returns a run that the origin is owed, as holes or not.
    pub const fn new(first: Lba, count: u64, seq: u64) -> Run {
        Run { first, count, seq, no_hole: false, advisory: false }
    }

    /// Returns true if the engine tells the origin of both in the same way.
    pub fn is_of_a_kind_with(&self, other: &Run) -> bool {
        (self.no_hole, self.advisory) == (other.no_hole, other.advisory)
    }
}

/// The fields of a run beside its first chunk.
#[derive(Clone, Copy, Default)]
struct Rest {
    count: u64,
    seq: u64,
    no_hole: bool,
    advisory: bool,
}

/// Most bytes of RAM for each of many runs.
pub const RUN_BYTES_MAX: usize = key_bytes_max(size_of::<Rest>());

fn run((first, rest): (u64, Rest)) -> Run {
    let Rest { count, seq, no_hole, advisory } = rest;
    Run { first: Lba(first), count, seq, no_hole, advisory }
}

/// The runs, by first chunk.
#[derive(Default)]
pub struct RunMap {
    runs: PageMap<Rest>,
    chunks: u64,
    /// The advisory part of the runs.
    advisory: Advisory,
}

/// The advisory part of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advisory {
    /// Runs.
    pub runs: u64,
    /// Chunks in them.
    pub chunks: u64,
}

impl RunMap {
    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns true if there is no run.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of chunks in all runs.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Returns the part of them that the origin need not be told of.
    pub fn advisory(&self) -> Advisory {
        self.advisory
    }

    /// Returns the bytes that the runs have allocated.
    pub fn ram_bytes(&self) -> usize {
        self.runs.ram_bytes()
    }

    /// Returns the run that holds `lba`.
    pub fn get(&self, lba: Lba) -> Option<Run> {
        self.runs.at_or_before(lba.0).map(run).filter(|run| lba.0 < run.first.0 + run.count)
    }

    /// Adds a run, over older runs.
    pub fn insert(&mut self, run: Run) {
        self.remove(run.first, run.count);
        if run.count > 0 {
            let Run { first, count, seq, no_hole, advisory } = run;
            self.put(first.0, Rest { count, seq, no_hole, advisory });
        }
    }

    fn put(&mut self, at: u64, rest: Rest) {
        self.runs.insert(at, rest);
        self.chunks += rest.count;
        if rest.advisory {
            self.advisory.runs += 1;
            self.advisory.chunks += rest.count;
        }
    }

    fn take(&mut self, at: u64, rest: Rest) {
        self.runs.remove(at);
        self.chunks -= rest.count;
        if rest.advisory {
            self.advisory.runs -= 1;
            self.advisory.chunks -= rest.count;
        }
    }

    /// Takes `count` chunks from `first` out of all runs, and returns how many of them were in one.
    pub fn remove(&mut self, first: Lba, count: u64) -> u64 {
        if count == 0 {
            // An empty range cuts nothing, not even the run around `first`.
            return 0;
        }
        let (start, end) = (first.0, first.0.saturating_add(count));
        let mut gone = 0;
        // The last run that begins before the end may reach in; repeat until none does.
        while let Some((at, rest)) = self.runs.at_or_before(end - 1) {
            let run_end = at + rest.count;
            if run_end <= start {
                break;
            }
            self.take(at, rest);
            gone += run_end.min(end) - at.max(start);
            if run_end > end {
                self.put(end, Rest { count: run_end - end, ..rest });
            }
            if at < start {
                self.put(at, Rest { count: start - at, ..rest });
                break;
            }
        }
        gone
    }

    /// Takes out the part of `run` that still carries its sequence number.
    pub fn remove_if_unchanged(&mut self, run: &Run) {
        let end = run.first.0.saturating_add(run.count);
        let mut parts = Vec::new();
        let mut at = run.first;
        while let Some(part) = self.next(at).filter(|part| part.first.0 < end) {
            let part_end = part.first.0 + part.count;
            if part.seq == run.seq {
                parts.push((part.first.max(run.first).0, part_end.min(end)));
            }
            at = Lba(part_end);
        }
        for (from, to) in parts {
            self.remove(Lba(from), to - from);
        }
    }

    /// Returns the parts of `count` chunks from `first` that are in no run, by address.
    pub fn gaps(&self, first: Lba, count: u64) -> Vec<(Lba, u64)> {
        let end = first.0.saturating_add(count);
        let (mut gaps, mut at) = (Vec::new(), first.0);
        while at < end {
            let next = self.next(Lba(at)).filter(|run| run.first.0 < end);
            let stop = next.map_or(end, |run| run.first.0);
            if at < stop {
                gaps.push((Lba(at), stop - at));
            }
            let Some(run) = next else { break };
            at = run.first.0.saturating_add(run.count);
        }
        gaps
    }

    /// Returns the first run that ends after `from`.
    pub fn next(&self, from: Lba) -> Option<Run> {
        self.get(from).or_else(|| self.runs.at_or_after(from.0).map(run))
    }

    /// Returns all runs, by address.
    pub fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter_from(0).map(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_array() {
        let mut state = 0x1234_5678_u64;
        let mut next = |n: u64| {
            state = crate::types::mix(state);
            state % n
        };
        for _ in 0..200 {
            let (mut map, mut model) = (RunMap::default(), vec![0_u64; 64]);
            for seq in 1..60 {
                let first = next(60);
                let count = next(64 - first) + 1;
                match next(4) {
                    0 => {
                        let expected =
                            model[first as usize..(first + count) as usize].iter().filter(|&&s| s > 0).count();
                        assert_eq!(map.remove(Lba(first), count), expected as u64);
                        model[first as usize..(first + count) as usize].fill(0);
                    }
                    1 => {
                        let old = next(seq);
                        map.remove_if_unchanged(&Run::new(Lba(first), count, old));
                        model[first as usize..(first + count) as usize].iter_mut().for_each(|s| {
                            if *s == old {
                                *s = 0;
                            }
                        });
                    }
                    _ => {
                        map.insert(Run { first: Lba(first), count, seq, no_hole: false, advisory: seq % 3 == 0 });
                        model[first as usize..(first + count) as usize].fill(seq);
                    }
                }
                for (i, &seq) in model.iter().enumerate() {
                    assert_eq!(map.get(Lba(i as u64)).map_or(0, |run| run.seq), seq);
                }
                let (first, count) = (next(64), next(8));
                let gaps = map.gaps(Lba(first), count).into_iter().flat_map(|(first, count)| first.0..first.0 + count);
                let free = |&lba: &u64| model.get(lba as usize).is_none_or(|&seq| seq == 0);
                assert_eq!(gaps.collect::<Vec<_>>(), (first..first + count).filter(free).collect::<Vec<_>>());
                assert_eq!(map.chunks(), model.iter().filter(|&&s| s > 0).count() as u64);
                assert_eq!(map.iter().map(|run| run.count).sum::<u64>(), map.chunks());
                let advisory = || map.iter().filter(|run| run.advisory);
                assert!(map.iter().all(|run| run.advisory == (run.seq % 3 == 0)), "a cut changes no kind");
                let counted =
                    Advisory { runs: advisory().count() as u64, chunks: advisory().map(|run| run.count).sum() };
                assert_eq!(map.advisory(), counted);
            }
        }
    }
}
