//! The silent or late faults of a device: no error tells them.
//!
//! Invariants: each planned mischief hits one operation, the next that it fits, in the order of
//! planning.
//!
//! It does not fail operations; [`crate::faulty::FaultPlan`] does.

use crate::IoOp;
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

/// Most mischiefs planned at a time.
const PLANNED_MAX: usize = 1024;

/// One silent fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mischief {
    /// A write lands here instead, and reports success.
    Misdirect(u64),
    /// A write reports success and does nothing.
    Lose,
    /// A read returns bytes that differ from the medium's; the seed chooses them.
    Misread(u64),
    /// An operation takes this much longer.
    Delay(Option<IoOp>, Duration),
}

/// The planned mischiefs. Thread-safe; without any, an operation reads one word.
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

    /// Takes the mischief of this operation, and uses it up: a delay, and one other fault.
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
