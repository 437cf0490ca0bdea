//! The fuzz targets of the command line, from seeds: option files, names, control socket, state
//! files.
//!
//! `fuzz/src/config.rs` has their rules.

#[path = "../../../fuzz/src/config.rs"]
mod config;
#[path = "../../../fuzz/src/memory.rs"]
mod memory;
#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;

use crate::{args, client, config_file, control, error, size, state_record};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

#[test]
fn option_files() {
    assert!(memory::is_installed());
    seeded::check("option_file", &config::option_file_seeds(), 3000, config::option_file);
}

#[test]
fn names_of_things() {
    seeded::check("names", &config::names_seeds(), 3000, config::names);
}

#[test]
fn control_sockets() {
    seeded::check("control_socket", &config::control_socket_seeds(), 5000, config::control_socket);
}

#[test]
fn state_files() {
    seeded::check("state_file", &config::state_file_seeds(), 20_000, config::state_file);
}
