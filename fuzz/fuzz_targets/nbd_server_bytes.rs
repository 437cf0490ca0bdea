//! Any bytes as a client's side of an NBD session: `cargo +nightly fuzz run nbd_server_bytes`.
//!
//! Role: the outer shell. The target and its properties stand in `larder_serve::nbd::fuzz`, which
//! the tests of that crate run with seeded bytes, too.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    larder_serve::nbd::fuzz::nbd_server_bytes(data);
    larder_serve::nbd::fuzz::nbd_requests(data);
});
