//! Both sides of the control socket: `cargo +nightly fuzz run control_socket`.
//! `larder_fuzz::config` has the properties.

#![no_main]

use larder_fuzz::{config, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::control_socket(data));
