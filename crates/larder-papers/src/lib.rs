//! The experiments of the papers: the traces and caches of each, and the published figures.
//!
//! Role: [`experiments`] is the one list. An experiment is a line in the table of its paper's file,
//! with the function that runs it. [`Lab`] replays, and [`PaperReport`] shows our figures beside
//! the published ones.
//!
//! Invariants: a published figure is one that the paper's text or a table of it prints. A curve
//! that is only drawn gives none. The same traces at the same scale give the same report.
//!
//! Experiments on time are in [`live`]: they run the engine's caches on devices with real media's
//! timing. Their reports have the same parts.
//!
//! It does not read files: the caller that makes a [`Lab`] hands it the traces.

#![cfg_attr(not(test), deny(clippy::expect_used))]

mod austere;
pub mod blocks;
mod cachededup;
mod caftl;
pub mod content;
mod experiment;
mod heading;
mod lab;
pub mod live;
pub mod nitro;
mod report;
pub mod request;
mod weus;

pub use experiment::{DISK, Experiment, SEED, StandIn, profile};
pub use heading::Heading;
pub use lab::{How, Lab, Records, Replayed, Workload};
pub use report::{Comparison, PaperReport, Span, Table};

/// Returns all experiments, in the order of the papers.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    [nitro::EXPERIMENTS, cachededup::EXPERIMENTS, austere::EXPERIMENTS, caftl::EXPERIMENTS].into_iter().flatten()
}

impl Experiment {
    /// Returns the experiment of this name.
    pub fn named(name: &str) -> Option<&'static Experiment> {
        experiments().find(|experiment| experiment.name == name)
    }
}
