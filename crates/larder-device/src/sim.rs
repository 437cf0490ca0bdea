//! Deterministic simulation: a runtime whose scheduler and clock a seed decides, and devices that lose power.
//!
//! Role: an engine that takes its tasks, time, jobs and I/O from here runs on one thread, in an order that one seed
//! replays exactly. The scheduler meets interleavings that no real machine shows in a year; [`SimDevice`] keeps what
//! is durable apart from what is not, so that a test can crash anywhere, reopen, and look.
//!
//! A life: [`SimRuntime::new`], devices over it, [`SimRuntime::block_on`]; then [`SimRuntime::crash`] (power loss) or
//! [`SimRuntime::kill`] (the process dies, the devices do not), a new runtime, [`SimDevice::attach`], and again.
//! Or [`SimRuntime::freeze`], or a [`SimRuntime::capture`] on the way: the [`Frozen`] instant then ends in each way that a
//! crash may end, one after the other.
//! A runtime that is not ended this way lives as long as a task that holds it.
//!
//! Invariants: no real time, no threads, no randomness but the seed's. A panic inside a run prints the seed.
//! Determinism ends where a task looks at addresses, real clocks, or the order of a randomly seeded hash map.
//!
//! What it does not do: model how long a medium takes ([`crate::throttled`] does, and runs on this clock), or race
//! two threads on memory: tasks switch only where they await.

mod device;
mod frozen;
mod image;
mod mischief;
mod op;
mod pages;
mod runtime;
mod schedule;
#[cfg(test)]
mod tests;

pub use device::{SimDevice, SimDeviceOptions};
pub use frozen::Frozen;
pub use runtime::{Schedule, SimOptions, SimRuntime};
