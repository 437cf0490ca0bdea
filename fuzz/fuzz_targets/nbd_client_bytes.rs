//! Any bytes as a server's side of an NBD session: `cargo +nightly fuzz run nbd_client_bytes`.
//! `larder_device::nbd::fuzz` has the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_device::nbd::fuzz::nbd_client_bytes(data));
