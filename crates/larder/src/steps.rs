//! The steps of this process that may hang, each in words that name its path.
//!
//! Invariants: a step is under way until it is dropped.
//!
//! It does not cut a step off.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Shortest wait of a request, and shortest time of a step, that counts as hanging.
pub(crate) const WAITED_MIN: Duration = Duration::from_millis(400);

/// The steps of this process that are under way, each in words that name its path.
#[derive(Clone, Default)]
pub struct Steps(Arc<Mutex<Begun>>);

#[derive(Default)]
struct Begun {
    next: u64,
    /// By number, in the order in which they began.
    steps: BTreeMap<u64, (Arc<str>, Instant)>,
}

/// A step that is under way until it is dropped.
pub struct Step {
    steps: Steps,
    number: u64,
}

impl Steps {
    /// Begins a step, as in "writing the trace PATH".
    pub fn begin(&self, doing: impl Into<Arc<str>>) -> Step {
        let mut begun = self.0.lock();
        let number = begun.next;
        begun.next += 1;
        begun.steps.insert(number, (doing.into(), Instant::now()));
        Step { steps: self.clone(), number }
    }

    /// Names the steps that take long.
    pub fn long(&self) -> Vec<String> {
        let begun = self.0.lock();
        let steps = begun.steps.values().map(|(doing, since)| (doing, since.elapsed()));
        let long = steps.filter(|(_, age)| *age >= WAITED_MIN);
        long.map(|(doing, age)| format!("{doing} has taken {:.1} s", age.as_secs_f64())).collect()
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.steps.0.lock().steps.remove(&self.number);
    }
}

/// The fate of data before the first client.
pub const UNTOUCHED: &str = "no client had been let in";
