//! The ledger against a plain model: a vector with the state of each chunk.
//!
//! Writes, trims and marks with right and stale numbers follow, for single chunks and for runs. A
//! restart defers chunks, and confirms them at times. Each step compares every answer.
//!
//! The model knows no order, no pages and no deferral.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Lba,
    design::DirtyCounts,
    ledger::{DIRTY_BYTES_MAX, Ledger},
    ranges::{Advisory, RUN_BYTES_MAX, Run},
};

const CHUNKS: u64 = 96;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Clean,
    Dirty {
        seq: u64,
        is_fragment: bool,
    },
    Trimmed {
        seq: u64,
        no_hole: bool,
        advisory: bool,
    },
}

struct World {
    rng: Rng,
    ledger: Ledger,
    model: Vec<State>,
    seq: u64,
    is_restoring: bool,
}

impl World {
    fn range(&mut self) -> (u64, u64) {
        let first = self.rng.below(CHUNKS);
        (first, self.rng.skewed(CHUNKS - first + 1))
    }

    fn inside(&mut self, (first, count): (u64, u64)) -> &mut [State] {
        &mut self.model[first as usize..(first + count) as usize]
    }

    fn is_dirty(model: &[State]) -> impl Fn(Lba) -> bool + '_ {
        |lba| matches!(model[lba.0 as usize], State::Dirty { .. })
    }

    fn seq_of(&self, lba: u64) -> Option<u64> {
        match self.model[lba as usize] {
            State::Dirty { seq, .. } => Some(seq),
            _ => None,
        }
    }

    fn step(&mut self) {
        let lba = self.rng.below(CHUNKS);
        self.seq += 1;
        match self.rng.below(20) {
            0..=7 => {
                let is_fragment = self.rng.chance(20);
                self.ledger.write(Lba(lba), self.seq, is_fragment);
                self.model[lba as usize] = State::Dirty { seq: self.seq, is_fragment };
            }
            8 => {
                let was_there = self.model[lba as usize] != State::Clean;
                assert!(self.ledger.forget(Lba(lba)) == was_there || self.is_restoring);
                self.model[lba as usize] = State::Clean;
            }
            9 => {
                let range = self.range();
                self.ledger.forget_run(Lba(range.0), range.1);
                self.inside(range).fill(State::Clean);
            }
            10..=12 => {
                let range = self.range();
                let [no_hole, advisory] = [[false, false], [true, false], [false, true]][self.rng.below(3) as usize];
                let seq = self.seq;
                self.ledger.trim(Run { first: Lba(range.0), count: range.1, seq, no_hole, advisory });
                self.inside(range).fill(State::Trimmed { seq, no_hole, advisory });
            }
            13..=15 => self.mark_clean(lba),
            16 => {
                let (first, count) = self.range();
                let seq = self.ledger.trimmed_from(Lba(lba)).map_or(0, |run| run.seq);
                self.ledger.clean_run(&Run::new(Lba(first), count, seq));
                let is_its = |state: &&mut State| matches!(state, State::Trimmed { seq: its, .. } if *its == seq);
                self.inside((first, count)).iter_mut().filter(is_its).for_each(|state| *state = State::Clean);
            }
            17 if !self.is_restoring => {
                self.ledger.begin_restore();
                self.is_restoring = true;
            }
            18 if self.is_restoring => {
                self.ledger.end_restore(World::is_dirty(&self.model));
                self.is_restoring = false;
            }
            _ if self.is_restoring => self.ledger.confirm(World::is_dirty(&self.model)),
            _ => {}
        }
    }

    /// Marks a chunk clean, under its number or a stale one.
    fn mark_clean(&mut self, lba: u64) {
        if self.is_restoring {
            self.ledger.confirm(World::is_dirty(&self.model));
        }
        let seq = match self.seq_of(lba) {
            Some(seq) if self.rng.chance(70) => seq,
            _ => self.rng.below(self.seq),
        };
        let is_newest = self.seq_of(lba) == Some(seq);
        assert_eq!(self.ledger.clean(Lba(lba), seq), is_newest);
        if is_newest {
            self.model[lba as usize] = State::Clean;
        }
    }

    /// Compares the runs, which are known at any time, and dirty chunks unless they are deferred.
    fn check(&mut self) {
        let World { ledger, model, .. } = &self;
        let (mut counts, mut bytes_max) = (DirtyCounts::default(), 0);
        for (lba, state) in (0..).map(Lba).zip(model) {
            let is_trimmed = matches!(state, State::Trimmed { .. });
            assert_eq!(ledger.is_trimmed(lba), is_trimmed, "{lba:?}");
            let run = ledger.trimmed_from(lba).filter(|run| run.first <= lba);
            let told = run.map(|Run { seq, no_hole, advisory, .. }| State::Trimmed { seq, no_hole, advisory });
            assert_eq!(told, Some(*state).filter(|_| is_trimmed), "{lba:?}");
        }
        for run in ledger.runs() {
            counts.runs += 1;
            counts.run_chunks += run.count;
            if run.advisory {
                counts.advisory = Advisory { runs: counts.advisory.runs + 1, ..counts.advisory };
                counts.advisory.chunks += run.count;
            }
        }
        if !self.is_restoring {
            let mut dirty = Vec::new();
            for (lba, state) in (0..).map(Lba).zip(model) {
                assert_eq!(ledger.seq(lba), self.seq_of(lba.0), "{lba:?}");
                assert_eq!(ledger.is_owed(lba), *state != State::Clean, "{lba:?}");
                if let State::Dirty { seq, is_fragment } = *state {
                    dirty.push((lba, seq));
                    counts.fragments += u64::from(is_fragment);
                }
            }
            counts.chunks = dirty.len() as u64;
            assert_eq!(ledger.counts(), counts);
            let (from, max) = (self.rng.below(CHUNKS), self.rng.below(20) as usize);
            dirty.retain(|(lba, _)| lba.0 >= from);
            dirty.truncate(max);
            assert_eq!(self.ledger.dirty_from(Lba(from), max), dirty);
            // Few keys share a page of the map, and the bound is for many.
            bytes_max += (counts.chunks as usize + 32) * DIRTY_BYTES_MAX + (counts.runs as usize + 32) * RUN_BYTES_MAX;
            assert!(self.ledger.ram_bytes() <= 8 * bytes_max, "{} bytes", self.ledger.ram_bytes());
        }
        let (first, count) = self.range();
        let is_trimmed = |lba: &u64| matches!(self.model[*lba as usize], State::Trimmed { .. });
        let gaps = self.ledger.untrimmed(Lba(first), count).into_iter();
        let told: Vec<u64> = gaps.flat_map(|(first, count)| first.0..first.0 + count).collect();
        let expected: Vec<u64> = (first..first + count).filter(|lba| !is_trimmed(lba)).collect();
        assert_eq!(told, expected);
        assert_eq!(self.ledger.is_trimmed_in(Lba(first), count), (first..first + count).any(|lba| is_trimmed(&lba)));
    }
}

#[test]
fn the_ledger_agrees_with_a_vector() {
    for_seeds(0..200, |seed| {
        let mut world = World {
            rng: Rng::new(seed),
            ledger: Ledger::default(),
            model: vec![State::Clean; CHUNKS as usize],
            seq: 0,
            is_restoring: false,
        };
        for _ in 0..400 {
            world.step();
            world.check();
        }
    });
}

#[test]
fn a_large_ledger_keeps_to_its_bytes() {
    let mut rng = Rng::new(1);
    let mut ledger = Ledger::default();
    for seq in 0..200_000 {
        ledger.write(Lba(rng.below(1 << 40)), seq, false);
        ledger.trim(Run::new(Lba(rng.below(1 << 40)), 1, seq));
    }
    let counts = ledger.counts();
    let bytes_max = counts.chunks as usize * DIRTY_BYTES_MAX + counts.runs as usize * RUN_BYTES_MAX;
    assert!(counts.chunks > 199_000 && ledger.ram_bytes() <= bytes_max, "{} of {bytes_max}", ledger.ram_bytes());
}
