//! Front ends that serve a [`larder_device::BlockDevice`] to clients.
//!
//! Role: `dispatch` checks requests and hands them to the device, in words of no protocol. A front
//! end translates its bytes to these words and back: [`nbd`] is a network block device server.
//! [`unix_socket`] holds the listening sockets of servers on this machine.
//!
//! Invariants: no module here knows the cache. Bytes from a client never panic and never cost more
//! memory than the named limits.
//!
//! It does not encrypt or authenticate. Serve Unix sockets, or TCP inside a trusted network.

mod dispatch;
pub mod nbd;
pub mod unix_socket;
