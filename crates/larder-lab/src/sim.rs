//! `larder-lab sim`: traces replayed through caches of any design. One file a command.
//!
//! Invariants: options are checked before a long trace is read, if possible. Nothing is cached on
//! any device.
//!
//! It does not decide or count anything; `larder-sim` does.

mod chart;
mod compare;
mod journal;
pub(crate) mod outputs;
pub(crate) mod replay;
mod run;
pub(crate) mod source;
pub mod spec;
pub mod ssd;
mod sweep;
pub mod time;

use crate::args::SimCommand;
use larder::{error::Outcome, output};
use larder_sim::setup::{OptionId, REPLAY_DESIGNS};

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(command: &SimCommand) -> Outcome {
    match command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Compare(args) => compare::run(args),
        SimCommand::Sweep(args) => sweep::run(args),
        SimCommand::Designs => designs(),
        SimCommand::Profiles => ssd::profiles(),
        SimCommand::Ftls => ssd::ftls(),
        SimCommand::Origins => time::origins(),
    }
}

fn designs() -> Outcome {
    let mut page = String::new();
    for design in REPLAY_DESIGNS {
        let names = |ids: &[OptionId]| ids.iter().map(|id| id.name()).collect::<Vec<_>>().join(", ");
        page.push_str(&format!("{:<9}{}\n{:<9}options: {}", design.name, design.about, "", names(design.options)));
        if !design.paper_options.is_empty() {
            page.push_str(&format!("; with --accounting paper: {}", names(design.paper_options)));
        }
        page.push('\n');
    }
    output::say(&page)
}
