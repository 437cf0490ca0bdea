//! A segment header and its record table: `cargo +nightly fuzz run segment`. `larder_fuzz::format`
//! has the properties.

#![no_main]

use larder_fuzz::{format, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::segment(data));
