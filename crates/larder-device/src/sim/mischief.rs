//! What a device does wrong without a word, or late: faults that no error tells.
//!
//! Invariants: each planned mischief hits one operation, the next that it fits, in the order of planning.
//!
//! What it does not do: fail operations; [`crate::faulty::FaultPlan`] does.

use crate::IoOp;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

/// Most mischief that is planned at a time.
const PLANNED_MAX: usize = 1024;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mischief {
    /// A write lands here instead, and says that all is well.
    Misdirect(u64),
    /// A write says that all is well and does nothing.
    Lose,
    /// A read returns other bytes than the medium has; the seed says which.
    Misread(u64),
    /// An operation takes this much longer.
    Delay(Option<IoOp>, Duration),
}

/// What is planned. Thread-safe; one word to look at while nothing is.
#[derive(Debug, Default)]
pub(super) struct Mischiefs {
    planned: Mutex<Vec<Mischief>>,
    armed: AtomicBool,
}

impl Mischief {
    fn fits(self, op: IoOp) -> bool {
        match self {
            Mischief::Misdirect(_) | Mischief::Lose => op == IoOp::Write,
            Mischief::Misread(_) => op == IoOp::Read,
            Mischief::Delay(wanted, _) => wanted.is_none_or(|wanted| wanted == op),
        }
    }
}

impl Mischiefs {
    pub(super) fn plan(&self, mischief: Mischief) {
        let mut planned = self.planned.lock();
        assert!(planned.len() < PLANNED_MAX, "at most {PLANNED_MAX} are planned");
        planned.push(mischief);
        self.armed.store(true, Relaxed);
    }

    pub(super) fn clear(&self) {
        self.planned.lock().clear();
        self.armed.store(false, Relaxed);
    }

    /// What hits this operation: a delay, and one other thing. That uses them up.
    pub(super) fn take(&self, op: IoOp) -> (Option<Mischief>, Duration) {
        if !self.armed.load(Relaxed) {
            return (None, Duration::ZERO);
        }
        let mut planned = self.planned.lock();
        let mut take = |delays: bool| {
            let fits = |m: &Mischief| m.fits(op) && matches!(m, Mischief::Delay(..)) == delays;
            planned.iter().position(fits).map(|index| planned.remove(index))
        };
        let delay = match take(true) {
            Some(Mischief::Delay(_, time)) => time,
            _ => Duration::ZERO,
        };
        let other = take(false);
        self.armed.store(!planned.is_empty(), Relaxed);
        (other, delay)
    }
}
