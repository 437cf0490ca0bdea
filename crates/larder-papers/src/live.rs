//! The experiments on time: the engine's own caches under load, on devices with real media's
//! timing.
//!
//! Role: [`all`] returns them; experiments that only count are in the rest of this crate. An
//! experiment makes cases, [`Means::cases`] runs them, and its report has the same parts as one by
//! replay.
//!
//! Invariants: on the virtual clock the same experiment at the same scale gives the same report;
//! the cases of one do not see each other. On the real clock they run one after the other.
//!
//! It does not know the experiments; a file each does.

mod austere;
mod cachededup;
mod clock;
mod disk;
mod load;
mod means;
mod nitro;
mod rig;

pub use means::{Clocks, LiveCase, LiveRun, Means, Source};
pub use rig::Time;

/// Returns all experiments, in the order of the papers.
pub fn all() -> impl Iterator<Item = &'static LiveRun> {
    [nitro::LIVE, cachededup::LIVE, austere::LIVE, clock::LIVE].into_iter().flatten()
}

impl LiveRun {
    /// Returns the experiment of this name.
    pub fn named(name: &str) -> Option<&'static LiveRun> {
        all().find(|live| live.heading.name == name)
    }
}
