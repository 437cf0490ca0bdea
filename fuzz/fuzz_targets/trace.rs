//! Any bytes as a trace: `cargo +nightly fuzz run trace`. What must hold stands in `larder_fuzz::trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_fuzz::trace::run(data));
