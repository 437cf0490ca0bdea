//! The header and the blocks of a checkpoint: `cargo +nightly fuzz run checkpoint`. What must hold stands in `larder_fuzz::format`.

#![no_main]

use larder_fuzz::{format, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::checkpoint(data));
