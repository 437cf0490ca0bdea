//! Trace replay through the decisions of a flash cache.
//!
//! Role: a [`ReplayCache`](cache::ReplayCache) is one cache of any design. It takes requests of
//! chunks, answers them and counts. [`bound`] says how far any cache could go.
//!
//! Invariants: the decisions are those of `larder-core`, the same that an engine executes. No data
//! is moved. The same requests give the same counts.
//!
//! It leaves the formats of trace files to `larder-trace`, and drives to `larder-ssd`.

#![cfg_attr(not(test), deny(clippy::expect_used))]

pub mod austere;
pub mod bound;
pub mod cache;
mod contents;
pub mod devices;
pub mod dirty;
pub mod executor;
pub mod host;
mod known_contents;
pub mod lab;
pub mod measure;
pub mod origin;
mod peers;
pub mod replay;
pub mod report;
#[cfg(test)]
#[path = "../../larder-core/tests/common/mod.rs"]
mod seeded;
pub mod setup;
pub mod slotted;
pub mod survey;
pub mod tally;
mod touched;
pub mod traffic;
mod waiting;

pub mod whole;
