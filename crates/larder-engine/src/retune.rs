//! Options that may change while a cache is open: [`Pace`], a part of its
//! [`Tuning`](crate::Tuning).
//!
//! Invariants: the engine reads these options from [`Live`](live::Live), never from the
//! [`Tuning`](crate::Tuning) of its opening. A change wakes each waiter whose wait it may end.
//!
//! It does not check that watermarks ascend; the reader of the options does.

pub(crate) mod live;

use crate::Cache;
use crate::retune::live::Pace;

impl Cache {
    /// Changes the pace, from the next decision on.
    pub fn retune(&self, pace: Pace) {
        let shared = self.shared();
        shared.live.set(pace);
        shared.state.lock().prefetch.set_bytes_max(pace.prefetch_bytes_max);
        // The destager may be in a long wait at the old rate, and writers at the old watermark.
        let signals = &shared.signals;
        for signal in [&signals.pace, &signals.destage_wanted, &signals.destaged] {
            signal.notify();
        }
    }

    /// Returns the pace in force.
    pub fn pace(&self) -> Pace {
        self.shared().live.get()
    }
}
