//! Front ends that serve a [`larder_device::BlockDevice`] to clients.
//!
//! Role: [`nbd`] is a network block device server. It is thin: it checks requests and forwards them
//! to the device. [`unix_socket`] holds the listening sockets of servers on this machine.
//!
//! Invariants: no module here knows the cache. Bytes from a client never panic and never cost more
//! memory than the named limits.
//!
//! It does not encrypt or authenticate. Serve Unix sockets, or TCP inside a trusted network.

pub mod nbd;
pub mod unix_socket;
