//! The times at which the requests of a trace are made, and the errors of a timed trace.
//!
//! It does not make them.

use larder_trace::TraceError;

/// The pace of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayPace {
    /// At the times of the trace.
    Own,
    /// As soon as fewer than so many, at least one, are not over.
    Full(usize),
}

/// The reason why a trace could not be timed.
#[derive(Debug)]
pub enum WholeError {
    /// The trace's own error.
    Trace(TraceError),
    /// The trace has no times, which its own pace needs.
    NoTimes,
}

impl std::fmt::Display for WholeError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WholeError::Trace(error) => error.fmt(out),
            WholeError::NoTimes => out.write_str(
                "the trace has no times, so it has no pace of its own: ask for full load, with so many requests outstanding",
            ),
        }
    }
}

impl std::error::Error for WholeError {}
