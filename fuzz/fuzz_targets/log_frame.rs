//! A frame of the metadata log: `cargo +nightly fuzz run log_frame`. `larder_fuzz::format` has the
//! properties.

#![no_main]

use larder_fuzz::{format, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::log_frame(data));
