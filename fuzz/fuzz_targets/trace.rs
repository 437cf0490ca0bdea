//! Any bytes as a trace: `cargo +nightly fuzz run trace`. `larder_fuzz::trace` has the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_fuzz::trace::run(data));
