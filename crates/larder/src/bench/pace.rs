//! When the requests of a replay are made.
//!
//! Invariants: what is asked of one pace is not taken, and ignored, with the other.
//!
//! What it does not do: wait.

use crate::{
    args::{BenchReplayArgs, PaceArg},
    error::{Failure, Outcome},
};

/// When requests are made.
#[derive(Clone, Copy)]
pub enum Pace {
    /// As fast as it goes.
    Full,
    /// So many times as fast as the trace.
    Times(f64),
}

impl Pace {
    /// What was asked for.
    ///
    /// # Errors
    /// A speed that would say nothing.
    pub fn of(args: &BenchReplayArgs) -> Outcome<Pace> {
        match (args.pace, args.speed) {
            (PaceArg::Full, None) => Ok(Pace::Full),
            (PaceArg::Trace, speed) => Ok(Pace::Times(speed.unwrap_or(1.0))),
            (PaceArg::Full, Some(speed)) => Err(Failure::Usage(format!(
                "--speed {speed} is of the trace's own pace, and without --pace trace requests are made as fast as that goes: add --pace trace, or leave --speed out"
            ))),
        }
    }

    /// For a report.
    pub fn words(self) -> String {
        match self {
            Pace::Full => "as fast as it goes".to_owned(),
            Pace::Times(1.0) => "the trace's".to_owned(),
            Pace::Times(speed) => format!("{speed} times the trace's"),
        }
    }
}
