//! The tests of the whole, most of them with the real program. One program has a module for each
//! suite. So the common parts are compiled once, and long tests of one suite run beside those of
//! the next.

mod behind_our_back;
mod breakages;
mod clients;
mod copies;
mod copies_repaired;
mod degraded;
mod ends;
mod features;
mod filesystems;
mod hanging;
mod house;
mod kept_trims;
mod kills;
mod laboratory;
mod moves;
mod opening;
mod power;
mod reduction;
mod refusals;
mod reloads;
mod repair;
mod request_memory;
mod shortages;
mod signals;
mod support;
mod trust;
mod wear;

/// Returns the program under test.
fn larder_program() -> &'static str {
    env!("CARGO_BIN_EXE_larder")
}
