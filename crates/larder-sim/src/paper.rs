//! The experiments of the papers, made again: which traces and caches each has, and what its text says came of them.
//!
//! Role: [`experiments`] is the one list; an experiment is a line in the table of its paper's file, with the function that
//! runs it. [`Lab`] replays, [`Report`] is what comes of it: our figures beside the published ones.
//!
//! Invariants: a published figure is one that the paper's text or a table of it prints; a curve that is only drawn gives
//! none. The same traces at the same scale give the same report.
//!
//! What it does not do: read files; whoever makes a [`Lab`] hands it the traces. And anything that takes time: experiments
//! on devices are the command line's, which makes its reports of the same parts.

mod austere;
mod cachededup;
mod caftl;
mod lab;
pub mod nitro;
mod report;
mod weus;

pub use caftl::DISK;
pub use lab::{How, Lab, Records, Replayed, Workload};
pub use report::{Comparison, Report, Span, Table};

use larder_trace::{
    Compressibility, TraceResult,
    generate::{Profile, ProfileTrace},
};

/// The seed of all traces that are generated here.
pub const SEED: u64 = 0;

/// A trace that is generated where the one of the paper is not at hand.
pub struct StandIn {
    /// What the paper calls the trace: "WebVM".
    pub name: &'static str,
    /// What is generated, in words: "profile webvm@austere".
    pub about: &'static str,
    /// The share of the paper's sizes that is generated where nothing else is asked for.
    pub scale: f64,
    /// Generates it, at a scale.
    pub records: fn(f64) -> TraceResult<Records<'static>>,
}

/// An experiment of a paper.
pub struct Experiment {
    /// The name on the command line: "austere-fig7".
    pub name: &'static str,
    /// The paper: "AustereCache (ATC '20)".
    pub paper: &'static str,
    /// What of it: "Figure 7 (Exp#3)".
    pub figure: &'static str,
    /// What is shown, in a few words.
    pub about: &'static str,
    /// The paper's traces, in its order, and what stands in for them.
    pub stand_ins: &'static [StandIn],
    /// Runs it over the lab's traces.
    pub run: fn(&mut Lab<'_>) -> Result<Report, String>,
}

/// What an experiment is called: the head of its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The name on the command line.
    pub name: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// What of it.
    pub figure: &'static str,
    /// What is shown, in a few words.
    pub about: &'static str,
}

/// All experiments, in the order of the papers.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    [nitro::EXPERIMENTS, cachededup::EXPERIMENTS, austere::EXPERIMENTS, caftl::EXPERIMENTS].into_iter().flatten()
}

impl Experiment {
    /// What it is called.
    pub fn heading(&self) -> Heading {
        let Experiment { name, paper, figure, about, .. } = *self;
        Heading { name, paper, figure, about }
    }

    /// Whether it is about what disks hold: its only trace is [`DISK`], and pages can be given in its place.
    pub fn is_of_disks(&self) -> bool {
        self.stand_ins.iter().all(|stand_in| stand_in.name == DISK)
    }

    /// Runs it, and says in each chart where traces are generated.
    ///
    /// # Errors
    /// A sentence.
    pub fn report(&self, lab: &mut Lab<'_>) -> Result<Report, String> {
        let mut report = (self.run)(lab)?;
        if lab.has_generated() {
            report.charts.iter_mut().for_each(|chart| chart.subtitle.push_str("; GENERATED traces"));
        }
        Ok(report)
    }

    /// The experiment of this name.
    pub fn named(name: &str) -> Option<&'static Experiment> {
        experiments().find(|experiment| experiment.name == name)
    }
}

/// The trace of a profile, at a scale.
///
/// # Errors
/// There is no such profile, or too little is left of it.
pub fn profile(name: &str, scale: f64) -> TraceResult<Records<'static>> {
    Ok(Box::new(ProfileTrace::new(Profile::named(name)?, scale, Compressibility::default(), SEED)?))
}
