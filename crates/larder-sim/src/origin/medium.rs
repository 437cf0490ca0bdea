//! Media that answer requests, and media that know the end of a request when they take it.
//!
//! Invariants: those of [origins](crate::origin).
//!
//! It does not keep the time: its caller tells it.

use super::request::{OriginRequest, Work};
use hashbrown::HashMap;
use larder_ssd::time::Nanos;
use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

/// A medium that answers requests. It has no clock of its own: its caller tells it the time.
pub(super) trait Medium: Send {
    /// Takes a request now; `id` is the caller's name for it. All events until now have happened.
    fn submit(&mut self, now: Nanos, id: u64, request: OriginRequest);

    /// Returns the time of the next event, if no more requests come.
    fn next_at(&self) -> Option<Nanos>;

    /// Lets the event at `now` ([`Medium::next_at`]) happen, and adds the requests that are over by
    /// it.
    fn step(&mut self, now: Nanos, over: &mut Vec<u64>);

    /// Returns the work until now. All events until then have happened.
    fn work(&self, now: Nanos) -> Work;
}

/// A medium that knows the end of each request as soon as it takes it.
pub(super) trait Foresees: Send {
    /// Parts that can be at work at the same time.
    const PARTS: u64;

    /// Takes a request now. Returns its end, and the time in which it has a part at work, which
    /// ends no later.
    fn take(&mut self, now: Nanos, request: &OriginRequest) -> (Nanos, Range<Nanos>);
}

/// A medium that foresees the ends of its requests.
pub(super) struct Foreseen<F> {
    of: F,
    ends: Ends,
    work: Work,
    /// The times in which parts are at work for requests that are not over.
    at_work: HashMap<u64, Range<Nanos>>,
}

impl<F: Foresees> Foreseen<F> {
    pub fn new(of: F) -> Foreseen<F> {
        let work = Work { parts: F::PARTS, ..Work::default() };
        Foreseen { of, ends: Ends::default(), work, at_work: HashMap::new() }
    }
}

impl<F: Foresees> Medium for Foreseen<F> {
    fn submit(&mut self, now: Nanos, id: u64, request: OriginRequest) {
        self.work.count(&request);
        let (over_at, at_work) = self.of.take(now, &request);
        self.at_work.insert(id, at_work);
        self.ends.add(over_at, id);
    }

    fn next_at(&self) -> Option<Nanos> {
        self.ends.next_at()
    }

    fn step(&mut self, now: Nanos, over: &mut Vec<u64>) {
        let before = over.len();
        self.ends.take_until(now, over);
        let ended = over[before..].iter().filter_map(|id| self.at_work.remove(id));
        self.work.busy_ns += ended.map(|time| u128::from(time.end - time.start)).sum::<u128>();
    }

    fn work(&self, now: Nanos) -> Work {
        let until_now = |time: &Range<Nanos>| u128::from(time.end.min(now).saturating_sub(time.start));
        Work { busy_ns: self.work.busy_ns + self.at_work.values().map(until_now).sum::<u128>(), ..self.work }
    }
}

/// Requests with a known end.
#[derive(Default)]
pub(super) struct Ends {
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl Ends {
    pub fn add(&mut self, at: Nanos, id: u64) {
        self.heap.push(Reverse((at, id)));
    }

    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|end| end.0.0)
    }

    pub fn take_until(&mut self, now: Nanos, over: &mut Vec<u64>) {
        while let Some(Reverse((_, id))) = self.heap.peek().copied().filter(|end| end.0.0 <= now) {
            self.heap.pop();
            over.push(id);
        }
    }
}

/// Returns the nanoseconds of bytes at a rate.
pub(super) fn transfer_ns(bytes: u64, bytes_per_second: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second)) as Nanos
}
