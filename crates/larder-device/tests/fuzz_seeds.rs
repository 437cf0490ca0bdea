//! The fuzz targets of this crate, from seeds: a hostile NBD server, and addresses.
//!
//! `larder_device::nbd::fuzz` lists the invariants.

#[path = "../../../fuzz/src/nbd_client.rs"]
mod nbd_client;
#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;

use larder_device::nbd::fuzz;

#[test]
fn servers_that_say_anything() {
    seeded::check("nbd_client_bytes", &nbd_client::seeds(), 10_000, fuzz::nbd_client_bytes);
}
