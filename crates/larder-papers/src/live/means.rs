//! An experiment on devices, its clocks and its means.
//!
//! Invariants: on the virtual clock the same experiment at the same scale gives the same report;
//! the cases of one do not see each other. On the real clock they run one after the other.
//!
//! It does not list the experiments.

use super::{
    load::{Load, LoadFigures, on_rig},
    rig::{Plan, Time},
};
use crate::{Heading, Lab, PaperReport, StandIn};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// The source of requests.
pub enum Source {
    /// Traces: the paper's, or their stand-ins.
    Traces(&'static [StandIn]),
    /// Requests that the experiment makes itself.
    Made {
        /// The paper's name of them.
        name: &'static str,
        /// Their description.
        about: &'static str,
        /// The default share of the paper's size.
        scale: f64,
    },
}

/// The possible clocks of an experiment; the first is its own.
pub enum Clocks {
    /// The virtual one, or the real one.
    Either,
    /// The real one alone, with the reason.
    RealOnly(&'static str),
}

/// An experiment on devices.
pub struct LiveRun {
    /// Its name and description.
    pub heading: Heading,
    /// The source of its requests.
    pub source: Source,
    /// Its clocks.
    pub clocks: Clocks,
    /// Runs it.
    pub run: fn(&mut Lab<'_>, &Means) -> Result<PaperReport, String>,
}

/// The means of an experiment, beside its traces.
pub struct Means {
    /// The share of the paper's size, for requests of its own.
    pub scale: f64,
    /// The clock.
    pub time: Time,
    /// Cases at a time, on the virtual clock.
    pub threads: usize,
    /// Set by a signal.
    pub ending: Arc<AtomicBool>,
}

impl Means {
    /// Runs each case, in any order. Returns the results in the cases' order.
    ///
    /// # Errors
    /// A sentence: the first case that failed.
    pub fn cases(&self, cases: &[LiveCase]) -> Result<Vec<LoadFigures>, String> {
        self.each(cases, |(plan, load)| on_rig(plan, self.time, load, &self.ending))
    }

    /// Calls a function for each, in any order. Returns the results in their order.
    ///
    /// # Errors
    /// The first failure.
    pub fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        act: impl Fn(&T) -> Result<R, String> + Sync,
    ) -> Result<Vec<R>, String> {
        let threads = if self.time == Time::Virtual { self.threads.clamp(1, items.len().max(1)) } else { 1 };
        let next = AtomicUsize::new(0);
        let has_failed = AtomicBool::new(false);
        let results = Mutex::new(Vec::new());
        let work = || {
            while !has_failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { return };
                let result = act(item);
                has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_unstable_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Returns a sentence on devices and clock, for a report.
    pub fn about_devices(&self) -> String {
        let disks = "The disks' own write caches are off: a write acknowledged without a cache is as durable as one that a cache \
                     has brought to them.";
        let clock = match self.time {
            Time::Virtual => {
                "On the virtual clock, which counts the time of the media and none of the processor. The computing \
                 of a design costs nothing here (`larder-lab paper run clock` shows both clocks side by side)."
            }
            Time::Real => {
                "On the real clock: computing counts, and so does whatever else this machine did; figures differ from \
                 run to run."
            }
        };
        format!("{disks} {clock}")
    }
}

/// A rig and its load.
pub type LiveCase = (Plan, Load);

impl LiveRun {
    /// Returns the requested clock, or the first.
    ///
    /// # Errors
    /// A sentence: it cannot be on that one.
    pub fn time(&self, asked: Option<Time>) -> Result<Time, String> {
        match (&self.clocks, asked) {
            (Clocks::Either, asked) => Ok(asked.unwrap_or(Time::Virtual)),
            (Clocks::RealOnly(why), Some(Time::Virtual)) => {
                Err(format!("{} is on the real clock only, for {why}: leave --clock away", self.heading.name))
            }
            (Clocks::RealOnly(_), _) => Ok(Time::Real),
        }
    }
}
