//! The network block device protocol: the parts that client and server share, and the client.
//!
//! Role: [`proto`] holds constants, parsing and encoding; [`socket`] the few system calls both
//! sides need. [`client`] is [`NbdDevice`], a device behind an NBD server; [`fuzz`] plays an
//! arbitrary server. The real server lives in the crate `larder-serve`.
//!
//! It does not implement TLS, extended headers, or the old handshake without options.

pub mod client;
pub(crate) mod connect;
pub mod fuzz;
pub mod proto;
pub mod socket;
mod transfer;

pub use client::{NbdDevice, OPEN_TIMEOUT};
