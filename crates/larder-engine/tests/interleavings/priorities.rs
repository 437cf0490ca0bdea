//! A scheduler with priorities (PCT): the ready thread of the highest priority runs. A change point
//! makes it the lowest of all. So a thread may pause between two of its steps, while the others do
//! all their work.
//!
//! Invariants: priorities and change points come from the seed alone. A change point lies in each
//! range of steps from a power of two to the next with the same probability. So short checks and
//! long ones have some.
//!
//! It does not learn the length of a check from an earlier run. Shuttle's own PCT does, and its
//! first run has no change points; a schedule would not be its seed.

use larder_device::rng::Rng;
use shuttle::scheduler::{DataSource, RandomDataSource, Schedule, Scheduler, Task, TaskId};

/// Change points of a schedule; in a short check some come after its end.
const CHANGES: usize = 6;
/// The last step that may be a change point is 2 to this power.
const CHANGE_BITS: u64 = 17;

/// The scheduler of one execution.
pub struct Priorities {
    rng: Rng,
    data: RandomDataSource,
    has_begun: bool,
    /// The threads, the highest priority first.
    order: Vec<TaskId>,
    /// Steps at which more than one thread was ready.
    steps: u64,
    changes: Vec<u64>,
}

impl Priorities {
    /// Returns a scheduler whose choices come from `seed`.
    pub fn new(seed: u64) -> Priorities {
        let mut rng = Rng::new(seed);
        let mut change = || {
            let power = 1 << rng.below(CHANGE_BITS);
            power + rng.below(power)
        };
        let changes = (0..CHANGES).map(|_| change()).collect();
        let data = RandomDataSource::initialize(seed);
        Priorities { rng, data, has_begun: false, order: Vec::new(), steps: 0, changes }
    }
}

impl Scheduler for Priorities {
    fn new_execution(&mut self) -> Option<Schedule> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        (!has_begun).then(|| Schedule::new(self.data.reinitialize()))
    }

    fn next_task(&mut self, ready: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        for task in ready {
            if !self.order.contains(&task.id()) {
                let at = self.rng.index(self.order.len() + 1);
                self.order.insert(at, task.id());
            }
        }
        if ready.len() > 1 {
            self.steps += 1;
            if let Some(current) = current
                && (is_yielding || self.changes.contains(&self.steps))
            {
                self.order.retain(|task| *task != current);
                self.order.push(current);
            }
        }
        self.order.iter().copied().find(|task| ready.iter().any(|one| one.id() == *task))
    }

    fn next_u64(&mut self) -> u64 {
        self.data.next_u64()
    }
}
