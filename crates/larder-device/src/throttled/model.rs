//! The interface between the wrapper and a medium's model: requests go in, their end times come
//! out.
//!
//! Invariants: a model knows no clock; each call tells it the time, which never runs backwards.
//! Only submissions before a request's end decide that end.
//!
//! It does not move data.

/// A time on the runtime's clock, or a span of it, in nanoseconds.
pub(super) type Nanos = u64;

/// Returns the nanoseconds that `bytes` take at `rate` bytes a second.
pub(super) fn transfer(bytes: u64, rate: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as Nanos
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Read,
    Write {
        fua: bool,
    },
    /// A flush; it ends when every write that ended before it is on the medium.
    Flush,
    Discard,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TimedRequest {
    /// The caller's name for it.
    pub(super) id: u64,
    pub(super) kind: RequestKind,
    pub(super) offset: u64,
    pub(super) len: u64,
}

pub(super) trait Model: Send {
    /// Takes a request at time `now`. The caller has called [`Model::advance`] for `now` before.
    fn submit(&mut self, now: Nanos, request: TimedRequest);

    /// Returns the time of the next event without further submissions.
    ///
    /// It is at the latest the next request's end.
    fn next_due(&self) -> Option<Nanos>;

    /// Lets time pass until `now`. Adds the requests that ended by then, each with its moment, in
    /// order.
    fn advance(&mut self, now: Nanos, over: &mut Vec<(Nanos, u64)>);
}
