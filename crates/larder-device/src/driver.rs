//! The driver of one thread. (interface; see the functions)
use crate::{IoBuf, IoFuture};
use std::{future::Future, os::fd::RawFd};

/// Runs `future` to its end on this thread, driving its I/O.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let _ = future;
    todo!()
}

/// Starts a task on this thread's driver, from inside `block_on`. The task need not be `Send`.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) {
    let _ = future;
    todo!()
}

/// Receives up to `buf.len()` bytes from a socket: the buffer and how many bytes came (0: the peer closed).
pub fn recv(fd: RawFd, buf: IoBuf) -> IoFuture<(IoBuf, usize)> {
    let _ = (fd, buf);
    todo!()
}

/// Resolves when a socket can be read.
pub fn readable(fd: RawFd) -> IoFuture<()> {
    let _ = fd;
    todo!()
}

/// Resolves when a socket can be written.
pub fn writable(fd: RawFd) -> IoFuture<()> {
    let _ = fd;
    todo!()
}
