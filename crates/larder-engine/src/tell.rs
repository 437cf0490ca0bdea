//! Tells a listener of each condition when it is raised and when it is over.
//!
//! A *look* compares the present conditions with the reported ones. A look comes within
//! [`LOOK_EVERY`](telling::LOOK_EVERY), and at once after a change. A condition that was raised and
//! over between two looks is kept for the next one.
//!
//! Invariants: the listener hears of a condition at once when it is raised, and once when it is
//! over. A condition is over when it stayed absent for a while, and that while doubles each time
//! that it returns soon. So a flapping condition is reported less and less often. One task at a
//! time calls the listener, and never under the lock of the state.
//!
//! It does not print, or wait for a listener, which must be quick.

pub(crate) mod telling;

use crate::tell::telling::Conditional;
use crate::{conditions::condition::Condition, shared::Shared};
pub use telling::{ConditionListener, Listener, Telling};

impl Conditional for Shared {
    fn conditions_now(&self) -> Vec<Condition> {
        let counts = self.counters.values();
        self.conditions(&self.state.lock(), &counts)
    }
}

impl Shared {
    /// Notes that a condition may have been raised, or be over.
    pub(crate) fn conditions_changed(&self) {
        if let Some(telling) = &self.telling {
            telling.note(None);
        }
    }

    /// Tells the conditions that stand now, for no later look may come.
    pub(crate) fn tell_conditions_now(&self) {
        if let Some(telling) = &self.telling {
            telling.look(self.runtime.now());
        }
    }

    /// Notes a condition that may be over before the next look.
    pub(crate) fn condition_raised(&self, condition: impl FnOnce() -> Condition) {
        if let Some(telling) = &self.telling {
            telling.note(Some(condition()));
        }
    }
}
