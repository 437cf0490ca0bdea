//! Repair of a damaged image: `cargo +nightly fuzz run repaired_image`.
//! `larder_fuzz::image::repair` has the properties.

#![no_main]

use larder_fuzz::{image, memory};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    image::repair::look(data);
});
