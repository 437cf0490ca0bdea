//! The times of a replay's requests.
//!
//! Invariants: an option of one pace is refused with the other, not ignored.
//!
//! It does not wait.

use crate::args::{BenchReplayArgs, PaceArg};
use larder::error::{Failure, Outcome};

/// The times of requests.
#[derive(Clone, Copy)]
pub enum Pace {
    /// As fast as it goes.
    Full,
    /// At this multiple of the trace's speed.
    Times(f64),
}

impl Pace {
    /// Returns the requested pace.
    ///
    /// # Errors
    /// A speed without an effect.
    pub fn of(args: &BenchReplayArgs) -> Outcome<Pace> {
        match (args.pace, args.speed) {
            (PaceArg::Full, None) => Ok(Pace::Full),
            (PaceArg::Trace, speed) => Ok(Pace::Times(speed.unwrap_or(1.0))),
            (PaceArg::Full, Some(speed)) => Err(Failure::Usage(format!(
                "--speed {speed} changes the trace's own pace, which full load does not follow: add --pace trace, or leave --speed out"
            ))),
        }
    }

    /// Returns words for a report.
    pub fn words(self) -> String {
        match self {
            Pace::Full => "as fast as it goes".to_owned(),
            Pace::Times(1.0) => "the trace's".to_owned(),
            Pace::Times(speed) => format!("{speed} times the trace's"),
        }
    }
}
