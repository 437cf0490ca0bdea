//! Any bytes as a server's side of an NBD session: `cargo +nightly fuzz run nbd_client_bytes`. What must hold stands in
//! `larder_device::nbd::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_device::nbd::fuzz::nbd_client_bytes(data));
