//! Deterministic simulation: a runtime with seeded scheduler and clock, and devices that lose
//! power.
//!
//! Role: an engine that takes its tasks, time, jobs and I/O from here runs on one thread, in an
//! order that one seed replays exactly. The scheduler meets interleavings that no real machine
//! shows in a year. [`SimDevice`] keeps durable and volatile changes apart, so that a test can
//! crash anywhere, reopen, and look.
//!
//! A life has these steps: [`SimRuntime::new`], devices over it, [`SimRuntime::block_on`]. Then
//! [`SimRuntime::crash`] (power loss) or [`SimRuntime::kill`] (the process dies, the devices do
//! not), a new runtime, [`SimDevice::attach`], and again. [`SimRuntime::freeze`], or a
//! [`SimRuntime::capture`] on the way, gives a [`Frozen`] instant instead. It ends in each way that
//! a crash may end, one after the other. A runtime that is not ended this way lives as long as a
//! task that holds it.
//!
//! Invariants: no real time, no threads, no randomness but the seed's. A panic inside a run prints
//! the seed. Determinism ends if a task looks at addresses, real clocks, or the order of a randomly
//! seeded hash map.
//!
//! It does not model the time of a medium; [`crate::throttled`] does, and runs on this clock. It
//! does not race two threads on memory: tasks switch only at their awaits.

mod body;
mod device;
mod frozen;
mod image;
mod mischief;
mod op;
mod options;
mod pages;
mod runtime;
mod schedule;
#[cfg(test)]
mod tests;

pub use device::{SimDevice, SimDeviceOptions};
pub use frozen::Frozen;
pub use options::{Schedule, SimOptions};
pub use runtime::SimRuntime;
