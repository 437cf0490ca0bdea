//! A slot of the metadata region: `cargo +nightly fuzz run metadata_slot`. `larder_fuzz::format`
//! has the properties.

#![no_main]

use larder_fuzz::{format, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::metadata_slot(data));
