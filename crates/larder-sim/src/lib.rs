//! Trace replay through the decisions of a flash cache.
//!
//! Role: [`ReplayCache`](cache::ReplayCache) is one cache, of any design, to which requests of chunks are made; what it
//! answers and what it counts is all that a replay is about. [`bound`] says how far any cache could go.
//!
//! Invariants: the designs' own decisions are those of `larder-core`, the same that an engine executes; no data is moved;
//! the same requests give the same counts.
//!
//! What it does not do: know what a trace file looks like; `larder-trace` does.

#![cfg_attr(not(test), deny(clippy::expect_used))]

pub mod austere;
pub mod bound;
pub mod cache;
mod contents;
pub mod decisions;
pub mod devices;
pub mod dirty;
mod held;
pub mod host;
pub mod lab;
pub mod measure;
pub mod origin;
pub mod paper;
pub mod replay;
pub mod report;
#[cfg(test)]
#[path = "../../larder-core/tests/common/mod.rs"]
mod seeded;
pub mod setup;
pub mod slotted;
pub mod ssd;
pub mod survey;
pub mod tally;
mod touched;
mod waiting;
pub mod weu;
pub mod whole;
