//! The choice of the next event among the waiting ones, with a seed's preferences.
//!
//! Invariants: every choice comes from the state's generator and from the order of submission;
//! nothing else counts.
//!
//! It does not run the chosen event; [`super::runtime`] does, without the state's lock.

use super::{body::Body, op::PendingOp, options::Schedule};
use crate::{
    Completer,
    rng::{Rng, mix64},
    runtime::Job,
};
use async_task::Task;
use std::{collections::BTreeMap, sync::Weak, time::Duration};

/// Most operations, jobs and timers, each, that wait at one time; more is a runaway.
const WAITING_MAX: usize = 1 << 20;

/// The state of a runtime, all behind one lock.
pub(super) struct SimState {
    pub(super) rng: Rng,
    pub(super) bias: Bias,
    pub(super) now: Duration,
    pub(super) steps: u64,
    /// Writes, flushes, discards and zeroings submitted.
    pub(super) changes: u64,
    pub(super) stop_at_step: Option<u64>,
    pub(super) stop_at_change: Option<u64>,
    pub(super) trace: u64,
    pub(super) next_id: u64,
    pub(super) tasks: BTreeMap<u64, Task<(), u64>>,
    pub(super) ops: Vec<Scheduled<PendingOp>>,
    /// Operations held back until they are due, or until nothing else is left to happen.
    pub(super) held: Vec<Scheduled<PendingOp>>,
    pub(super) jobs: Vec<Scheduled<Job>>,
    pub(super) timers: Vec<Scheduled<Completer<()>>>,
    pub(super) devices: Vec<Weak<Body>>,
    pub(super) driving: bool,
    pub(super) closed: bool,
}

/// An event to be delivered, by default at `due`.
pub(super) struct Scheduled<T> {
    pub(super) id: u64,
    pub(super) due: Duration,
    pub(super) what: T,
}

/// A seed's preferences for the whole run: different seeds reach different corners.
pub(super) struct Bias {
    /// Weights of ready tasks, completions, jobs, and timers that are due.
    pub(super) weights: [u64; 4],
    /// The part of 1024 choices that fires a timer before its time.
    pub(super) early_timers: u64,
    /// The part of 16 completions that comes in two parts.
    pub(super) split_ops: u64,
    /// Prefers old completions (-1), new ones (1), or none.
    pub(super) age: i8,
}

impl Bias {
    fn new(rng: &mut Rng) -> Bias {
        Bias {
            weights: std::array::from_fn(|_| [1, 4, 16][rng.index(3)]),
            early_timers: [0, 4, 32][rng.index(3)],
            split_ops: [0, 1, 8][rng.index(3)],
            age: [-1, 0, 0, 1][rng.index(4)],
        }
    }
}

pub(super) fn push<T>(queue: &mut Vec<Scheduled<T>>, waiting: Scheduled<T>) {
    assert!(queue.len() < WAITING_MAX, "over {WAITING_MAX} things wait: a runaway");
    queue.push(waiting);
}

/// The next event; an index into the state's list of its kind.
pub(super) enum EventKind {
    Ready,
    Op(usize),
    Job(usize),
    Timer(usize),
    Nothing,
}

impl SimState {
    pub(super) fn new(seed: u64) -> SimState {
        let mut rng = Rng::new(seed);
        SimState {
            bias: Bias::new(&mut rng),
            rng,
            now: Duration::ZERO,
            steps: 0,
            changes: 0,
            stop_at_step: None,
            stop_at_change: None,
            trace: mix64(seed),
            next_id: 0,
            tasks: BTreeMap::new(),
            ops: Vec::new(),
            held: Vec::new(),
            jobs: Vec::new(),
            timers: Vec::new(),
            devices: Vec::new(),
            driving: false,
            closed: false,
        }
    }

    pub(super) fn wait_for<T>(&mut self, latency: Duration, what: T) -> Scheduled<T> {
        self.next_id += 1;
        Scheduled { id: self.next_id, due: self.now.saturating_add(latency), what }
    }

    pub(super) fn stop_reached(&self) -> bool {
        self.stop_at_step.is_some_and(|step| self.steps >= step)
            || self.stop_at_change.is_some_and(|change| self.changes >= change)
    }

    fn first_timer(&self) -> Option<usize> {
        (0..self.timers.len()).min_by_key(|&index| (self.timers[index].due, self.timers[index].id))
    }

    /// Releases operations that were held back long enough; all of them under a timed schedule.
    fn release_held(&mut self, schedule: Schedule) {
        let now = self.now;
        let released = self.held.extract_if(.., |op| schedule == Schedule::Timed || op.due <= now);
        self.ops.extend(released);
    }

    /// Returns the first due of the operations held back and, perhaps, the timers.
    ///
    /// It serves a state in which nothing else can happen.
    fn first_of_the_late(&mut self, timer: Option<usize>) -> EventKind {
        let held = (0..self.held.len()).min_by_key(|&index| (self.held[index].due, self.held[index].id));
        match (held, timer) {
            (Some(held), timer) if timer.is_none_or(|timer| self.held[held].due <= self.timers[timer].due) => {
                let op = self.held.remove(held);
                self.ops.push(op);
                EventKind::Op(self.ops.len() - 1)
            }
            (_, Some(timer)) => EventKind::Timer(timer),
            (_, None) => EventKind::Nothing,
        }
    }

    pub(super) fn choose_kind(&mut self, schedule: Schedule, ready_tasks: usize, stop_when_idle: bool) -> EventKind {
        if !self.held.is_empty() {
            self.release_held(schedule);
        }
        match schedule {
            Schedule::Chaos => self.choose_any(ready_tasks, stop_when_idle),
            Schedule::Timed => self.choose_next(ready_tasks, stop_when_idle),
        }
    }

    fn choose_next(&mut self, ready_tasks: usize, stop_when_idle: bool) -> EventKind {
        if ready_tasks > 0 {
            return EventKind::Ready;
        }
        if !self.jobs.is_empty() {
            return EventKind::Job(self.rng.index(self.jobs.len()));
        }
        let op = (0..self.ops.len()).min_by_key(|&index| (self.ops[index].due, self.ops[index].id));
        match (op, self.first_timer()) {
            (None, Some(timer)) if stop_when_idle && self.timers[timer].due > self.now => EventKind::Nothing,
            (None, Some(timer)) => EventKind::Timer(timer),
            (Some(op), Some(timer)) if self.timers[timer].due < self.ops[op].due => EventKind::Timer(timer),
            (Some(op), _) => EventKind::Op(op),
            (None, None) => EventKind::Nothing,
        }
    }

    fn choose_any(&mut self, ready_tasks: usize, stop_when_idle: bool) -> EventKind {
        let early_timers = self.bias.early_timers;
        let first_timer = self.first_timer();
        let due = first_timer.filter(|&timer| self.timers[timer].due <= self.now);
        let there = [ready_tasks > 0, !self.ops.is_empty(), !self.jobs.is_empty(), due.is_some()];
        let weights: [u64; 4] = std::array::from_fn(|kind| if there[kind] { self.bias.weights[kind] } else { 0 });
        let total: u64 = weights.iter().sum();
        if let Some(timer) = first_timer
            && self.rng.chance(early_timers, 1024)
        {
            return EventKind::Timer(timer);
        }
        if total == 0 {
            return self.first_of_the_late(first_timer.filter(|_| !stop_when_idle));
        }
        let mut pick = self.rng.below(total);
        let mut kind = 0;
        while pick >= weights[kind] {
            pick -= weights[kind];
            kind += 1;
        }
        match kind {
            // A poll takes a little time.
            0 => {
                self.now += Duration::from_nanos(self.rng.below(2000));
                EventKind::Ready
            }
            1 => EventKind::Op(self.choose_op()),
            2 => EventKind::Job(self.rng.index(self.jobs.len())),
            _ => EventKind::Timer(due.unwrap_or(0)),
        }
    }

    fn choose_op(&mut self) -> usize {
        let (a, b) = (self.rng.index(self.ops.len()), self.rng.index(self.ops.len()));
        match self.bias.age {
            -1 => a.min(b),
            1 => a.max(b),
            _ => a,
        }
    }
}
