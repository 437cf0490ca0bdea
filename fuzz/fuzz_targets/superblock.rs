//! A superblock and its twin: `cargo +nightly fuzz run superblock`. `larder_fuzz::format` has the
//! properties.

#![no_main]

use larder_fuzz::{format, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::superblock(data));
