//! The events of a drive, by their times.
//!
//! Invariants: they come in the order of their times, and those of one time in the order in which
//! they were caused.
//!
//! It does not know the time.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{lanes::LaneStep, nanos::Nanos};

/// An event at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Step(LaneStep),
    /// A page of a request has passed the link; a page that was read gives its frame back.
    Linked {
        request: u64,
        gives_frame: bool,
    },
    /// The controller has hashed its first batch.
    Hashed,
}

/// A queue of events; see the module.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    caused: u64,
}

impl Events {
    /// Adds an event.
    pub fn put(&mut self, at: Nanos, event: Event) {
        self.heap.push(Reverse((at, self.caused, event)));
        self.caused += 1;
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event, and its time.
    pub fn take(&mut self) -> Option<(Nanos, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Lists all events, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, Event)> {
        self.heap.iter().map(|Reverse((at, _, event))| (*at, *event))
    }
}
