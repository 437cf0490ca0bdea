//! Test support: it follows the log of an engine's decisions, over the executor of `larder-sim`.
//!
//! Role: [`text`] keeps a log as lines, and [`replay`] decides each of its events once more.
//!
//! Invariants: the executor is the one that `larder-lab sim` runs. No product links this crate.
//!
//! It does not record a log; an embedder's sink does.

mod entries;
pub mod follow;
pub mod replay;
pub mod text;
