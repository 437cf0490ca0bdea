//! Front ends that serve a [`larder_device::BlockDevice`] to clients.
//!
//! Role: [`nbd`], a network block device server. Thin: requests are checked and forwarded to the device. [`unix_socket`] is where
//! servers on this machine listen.
//!
//! Invariants: nothing here knows what a cache is; bytes from a client never panic and never cost more memory than
//! the named limits.
//!
//! What it does not do: encryption or authentication. Serve Unix sockets, or TCP inside a trusted network.

pub mod nbd;
pub mod unix_socket;
