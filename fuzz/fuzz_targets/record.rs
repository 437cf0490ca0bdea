//! A stored record and a walk through segments: `cargo +nightly fuzz run record`.
//! `larder_fuzz::record` has the properties.

#![no_main]

use larder_fuzz::{memory, record};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| record::run(data));
