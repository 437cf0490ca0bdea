//! The options of a simulation.
//!
//! It does not choose events.

use std::time::Duration;

/// The order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Any order a program must bear: completions overtake each other, timers fire early, tasks
    /// starve.
    Chaos,
    /// The order of a quick machine: ready work runs before time moves on to the next due event.
    Timed,
}

/// The options of a simulation.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The order of events.
    pub schedule: Schedule,
    /// The steps after which a run panics for lack of progress.
    pub steps_max: u64,
    /// Longest time that an operation of a [`SimDevice`](super::SimDevice) takes. Each takes a
    /// random part of it.
    pub op_latency_max: Duration,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions { schedule: Schedule::Chaos, steps_max: 20_000_000, op_latency_max: Duration::from_micros(200) }
    }
}
