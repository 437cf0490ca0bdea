//! The fence as far as this opening knows.
//!
//! Invariants: one task at a time puts it up. A fence that is up stays up until the next opening.
//! The keeper is told once that the origin has all data, and only of a fence that is up.
//!
//! It does not ask the keeper; [`raising`](crate::fence::raising) does.

/// The state of the fence.
#[derive(Default)]
pub(crate) struct Fence(Height);

#[derive(Default)]
enum Height {
    /// No write went past the flash.
    #[default]
    Down,
    /// A task is putting it up.
    Rising,
    Up {
        /// The keeper knows that the origin has all dirty data.
        is_destaged: bool,
    },
    /// The attempt failed, for this reason; the next write tries again.
    Refused(String),
}

impl Fence {
    /// Notes that a task puts the fence up from now on. The caller has seen that it neither is up
    /// nor rises.
    pub fn begin_to_rise(&mut self) {
        debug_assert!(!self.is_up() && !self.is_rising(), "one task puts the fence up");
        self.0 = Height::Rising;
    }

    /// Notes the keeper's answer: the fence is up, or refused for a reason.
    pub fn end_rise(&mut self, raised: Result<(), String>) {
        self.0 = match raised {
            Ok(()) => Height::Up { is_destaged: false },
            Err(why) => Height::Refused(why),
        };
    }

    /// Returns whether the fence is up.
    pub fn is_up(&self) -> bool {
        matches!(self.0, Height::Up { .. })
    }

    /// Returns whether a task is putting it up.
    pub fn is_rising(&self) -> bool {
        matches!(self.0, Height::Rising)
    }

    /// Returns the reason for which the last attempt failed, if no later one began.
    pub fn refusal(&self) -> Option<&str> {
        match &self.0 {
            Height::Refused(why) => Some(why),
            Height::Down | Height::Rising | Height::Up { .. } => None,
        }
    }

    /// Returns whether the fence is up, and its keeper is yet to learn that the origin has all
    /// data.
    pub fn owes_destaged(&self) -> bool {
        matches!(self.0, Height::Up { is_destaged: false })
    }

    /// Notes that the keeper of a fence that is up knows that the origin has all dirty data.
    pub fn destaged_is_noted(&mut self) {
        debug_assert!(self.is_up(), "the keeper has a fence to note it with");
        self.0 = Height::Up { is_destaged: true };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_goes_up_once_and_owes_one_note() {
        let mut fence = Fence::default();
        assert!(!fence.is_up() && !fence.is_rising() && !fence.owes_destaged() && fence.refusal().is_none());
        fence.begin_to_rise();
        assert!(fence.is_rising() && !fence.is_up());
        fence.end_rise(Err("no room".to_owned()));
        assert_eq!((fence.refusal(), fence.is_up()), (Some("no room"), false));
        fence.begin_to_rise();
        assert_eq!(fence.refusal(), None, "a new attempt is under way");
        fence.end_rise(Ok(()));
        assert!(fence.is_up() && fence.owes_destaged());
        fence.destaged_is_noted();
        assert!(fence.is_up() && !fence.owes_destaged());
    }
}
