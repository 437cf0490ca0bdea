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
//! `pareto` belongs to no paper: it shows the designs of all of them side by side.
//!
//! It does not read files: the caller that makes a [`Lab`] hands it the traces.

#![cfg_attr(not(test), deny(clippy::expect_used))]

mod austere;
mod averages;
pub mod blocks;
mod cachededup;
mod caftl;
pub mod content;
mod experiment;
mod grid;
mod heading;
mod lab;
pub mod live;
pub mod nitro;
mod pareto;
mod report;
pub mod request;
mod weus;

pub use experiment::{DISK, Experiment, SEED, StandIn, profile};
pub use grid::Grid;
pub use heading::Heading;
pub use lab::{How, Lab, Records, Replayed, Workload};
pub use report::{Comparison, PaperReport, Span, Table};

/// Returns all experiments, in the order of the papers.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    [nitro::EXPERIMENTS, cachededup::EXPERIMENTS, austere::EXPERIMENTS, caftl::EXPERIMENTS, pareto::EXPERIMENTS]
        .into_iter()
        .flatten()
}

impl Experiment {
    /// Returns the experiment of this name.
    pub fn named(name: &str) -> Option<&'static Experiment> {
        experiments().find(|experiment| experiment.name == name)
    }

    /// Returns true if it replays a [`Grid`] of caches, which can be narrowed.
    pub fn has_grid(&self) -> bool {
        pareto::EXPERIMENTS.iter().any(|one| one.name == self.name)
    }
}
