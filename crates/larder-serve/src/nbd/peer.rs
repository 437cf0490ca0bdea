//! The socket of a connection, as its thread and the accept thread share it.
//!
//! Invariants: a drained peer starts no further request.
//!
//! It does not read or write.

use larder_device::nbd::socket::{self, Direction};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

/// The state that the connection's thread and the accept thread share.
pub(super) struct Peer {
    /// The socket, nonblocking.
    pub socket: OwnedFd,
    /// The handshake is over.
    pub greeted: AtomicBool,
    /// No further request may start.
    pub draining: AtomicBool,
}

impl Peer {
    /// Lets requests in flight finish, and starts no other.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        socket::shutdown(self.socket.as_fd(), Direction::Receive);
    }

    /// Ends the connection as soon as the device has answered.
    pub fn cut(&self) {
        self.draining.store(true, Ordering::Release);
        socket::shutdown(self.socket.as_fd(), Direction::Both);
    }
}
