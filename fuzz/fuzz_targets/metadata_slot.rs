//! A slot of the metadata region: `cargo +nightly fuzz run metadata_slot`. What must hold stands in `larder_fuzz::format`.

#![no_main]

use larder_fuzz::{format, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::metadata_slot(data));
