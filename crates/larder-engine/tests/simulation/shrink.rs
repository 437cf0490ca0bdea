//! Makes a failing plan smaller while it still fails in the same way. It drops lives, clients,
//! requests, faults and operations, and simplifies the rest.
//!
//! Each drop moves all later events to other steps, so each candidate is tried with a few orders of
//! completions.
//!
//! Invariants: the result fails in the same way as the plan did. At most [`RUNS_MAX`] runs.
//!
//! It does not find the smallest plan of all.

use crate::{
    desk::{Violation, ViolationKind},
    plan::{At, Life, Op, Plan, Run, What},
    run::execute,
};
use larder_device::rng::mix64;

/// Runs that making one plan smaller may take.
const RUNS_MAX: u32 = 1500;
/// Orders of completions that a candidate is tried with.
const ORDERS: u64 = 4;

struct Shrinker {
    best: Plan,
    kind: ViolationKind,
    runs: u32,
}

/// Returns a smaller plan that fails like this one.
pub fn shrink(plan: &Plan, violation: &Violation) -> Plan {
    let mut shrinker = Shrinker { best: plan.clone(), kind: violation.kind, runs: 0 };
    loop {
        let before = shrinker.best.weight();
        shrinker.pass();
        if shrinker.best.weight() >= before || shrinker.runs >= RUNS_MAX {
            return shrinker.best;
        }
    }
}

impl Plan {
    /// Returns the measure to reduce.
    pub fn weight(&self) -> usize {
        let op = |op: &Op| match op.what {
            What::Read(run) | What::Trim(run) | What::Write { run, .. } | What::Zero { run, .. } => {
                10 + run.count.ilog2() as usize
            }
            What::Flush => 10,
        };
        let life = |life: &Life| {
            let ops = life.clients.iter().flat_map(|client| &client.ops).map(op).sum::<usize>();
            let depths = life.clients.iter().map(|client| client.depth).sum::<usize>();
            let flags = usize::from(life.check_first) + usize::from(life.check_last);
            100 + ops + depths + flags + 10 * (life.operator.len() + life.faults.len())
        };
        self.lives.iter().map(life).sum()
    }
}

impl Shrinker {
    /// Tries a candidate, and takes it if it fails in the same way.
    fn try_plan(&mut self, candidate: Plan) -> bool {
        for order in 0..ORDERS {
            if self.runs >= RUNS_MAX {
                return false;
            }
            self.runs += 1;
            let mut candidate = candidate.clone();
            if order > 0 {
                for life in &mut candidate.lives {
                    life.schedule_seed = mix64(life.schedule_seed ^ order);
                    // The drop moves the moment of the end.
                    if let Some(At::Step(step)) = &mut life.end.at {
                        *step = *step * (5 - order) / 4 + 1;
                    }
                }
            }
            if execute(&candidate, false, None).violation.is_some_and(|violation| violation.kind == self.kind) {
                self.best = candidate;
                return true;
            }
        }
        false
    }

    fn try_change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        self.try_plan(candidate)
    }

    fn try_life(&mut self, life: usize, change: impl FnOnce(&mut Life)) -> bool {
        self.try_change(|plan| change(&mut plan.lives[life]))
    }

    fn pass(&mut self) {
        // From the end on: events after the violation go first.
        for life in (0..self.best.lives.len()).rev() {
            if self.best.lives.len() > 1 {
                self.try_change(|plan| drop(plan.lives.remove(life)));
            }
        }
        for life in 0..self.best.lives.len() {
            self.pass_over(life);
        }
    }

    fn pass_over(&mut self, life: usize) {
        for fault in (0..self.best.lives[life].faults.len()).rev() {
            self.try_life(life, |life| {
                life.faults.remove(fault);
            });
        }
        for op in (0..self.best.lives[life].operator.len()).rev() {
            self.try_life(life, |life| {
                life.operator.remove(op);
            });
        }
        for client in (0..self.best.lives[life].clients.len()).rev() {
            self.try_life(life, |life| drop(life.clients.remove(client)));
        }
        for client in 0..self.best.lives[life].clients.len() {
            self.drop_ops(life, client);
            self.simplify_ops(life, client);
            if self.best.lives[life].clients[client].depth > 1 {
                self.try_life(life, |life| life.clients[client].depth = 1);
            }
        }
        if self.best.lives[life].check_first {
            self.try_life(life, |life| life.check_first = false);
        }
        if self.best.lives[life].check_last {
            self.try_life(life, |life| life.check_last = false);
        }
        if self.best.lives[life].end.flash_lost {
            self.try_life(life, |life| life.end.flash_lost = false);
        }
    }

    /// Drops runs of requests: long ones first, single ones in the end.
    fn drop_ops(&mut self, life: usize, client: usize) {
        let mut len = self.best.lives[life].clients[client].ops.len().next_power_of_two();
        while len > 0 {
            let mut from = 0;
            while from < self.best.lives[life].clients[client].ops.len() {
                let to = (from + len).min(self.best.lives[life].clients[client].ops.len());
                if !self.try_life(life, |life| drop(life.clients[client].ops.drain(from..to))) {
                    from = to;
                }
            }
            len /= 2;
        }
    }

    fn simplify_ops(&mut self, life: usize, client: usize) {
        for op in 0..self.best.lives[life].clients[client].ops.len() {
            let set = |what: What| move |life: &mut Life| life.clients[client].ops[op].what = what;
            let half = |run: Run| Run { count: run.count / 2, ..run };
            loop {
                let smaller = match self.best.lives[life].clients[client].ops[op].what {
                    What::Read(run) if run.count > 1 => What::Read(half(run)),
                    What::Trim(run) if run.count > 1 => What::Trim(half(run)),
                    What::Write { run, fill, fua } if run.count > 1 => What::Write { run: half(run), fill, fua },
                    What::Zero { run, no_hole, fua } if run.count > 1 => What::Zero { run: half(run), no_hole, fua },
                    _ => break,
                };
                if !self.try_life(life, set(smaller)) {
                    break;
                }
            }
            if self.best.lives[life].clients[client].ops[op].gives_up_after.is_some() {
                self.try_life(life, |life| life.clients[client].ops[op].gives_up_after = None);
            }
        }
    }
}
