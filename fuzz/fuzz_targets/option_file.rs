//! An option file of `larder serve`: `cargo +nightly fuzz run option_file`. `larder_fuzz::config`
//! has the properties.

#![no_main]

use larder_fuzz::{config, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::option_file(data));
