//! What happens when: the events of a drive.
//!
//! Invariants: they come in the order of their times, and those of one time in the order in which they were caused.
//!
//! What it does not do: know what time it is.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Nanos, lanes::Step};

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Step(Step),
    /// A page of a request has passed the link; one that was read gives its frame back.
    Linked {
        request: u64,
        gives_frame: bool,
    },
    /// The controller has hashed what it was handed.
    Hashed,
}

/// See the module.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    caused: u64,
}

impl Events {
    /// Something is to happen.
    pub fn put(&mut self, at: Nanos, event: Event) {
        self.heap.push(Reverse((at, self.caused, event)));
        self.caused += 1;
    }

    /// When the next is.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next, and when it is.
    pub fn take(&mut self) -> Option<(Nanos, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// Whether nothing is to happen.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, Event)> {
        self.heap.iter().map(|Reverse((at, _, event))| (*at, *event))
    }
}
