//! A stored record and a walk through segments: `cargo +nightly fuzz run record`. What must hold stands in `larder_fuzz::record`.

#![no_main]

use larder_fuzz::{memory, record};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| record::run(data));
