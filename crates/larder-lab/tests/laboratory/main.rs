//! The tests of the laboratory, most of them with the real program. One program has a module for
//! each suite. So the common parts are compiled once, and long tests of one suite run beside those
//! of the next.
//!
//! Caches are made and served by the `larder` that lies beside `larder-lab`. So the tests are run
//! with `--workspace`, which builds both.

mod bench;
mod common;
mod designs_agree;
mod origins_agree;
mod papers;
mod papers_live;
mod signals;
mod sim;
mod sim_drives;
mod sim_time;
#[allow(dead_code, reason = "the tests of larder use the rest")]
#[path = "../../../larder/tests/program/support/mod.rs"]
mod support;
mod trace_formats;
mod trace_inputs;
mod traces;

use std::path::{Path, PathBuf};

/// Returns the `larder` beside the laboratory.
fn larder_program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_larder-lab")).with_file_name("larder");
    assert!(program.is_file(), "no larder lies beside larder-lab: run the tests with --workspace");
    program
}
