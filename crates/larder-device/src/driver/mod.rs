//! The driver of a thread: a small executor and the io_uring loop that completes its I/O.
//!
//! [`block_on`] runs a future on the calling thread, with the tasks of [`spawn_local`], and
//! completes their I/O. It submits operations in batches, once no task can go on. A thread's first
//! `block_on` makes its driver, and later calls use it again. The first operation makes the ring. A
//! `block_on` inside a task uses another driver, and the tasks of the outer one stand still
//! meanwhile.
//!
//! Futures of device operations work under any executor. A background thread carries an operation
//! that begins outside `block_on`, and completes one still in flight when `block_on` returns. Local
//! tasks, and timers of [`sleep`], go on with the thread's next `block_on`.
//!
//! Invariants: memory that the kernel may write stays alive until the kernel is done, also after a
//! dropped future or an ended thread. A waker makes a system call only if the woken thread sleeps.
//!
//! It does not share work between threads.

mod backend;
mod background;
mod io;
mod local;
mod op;
mod pool;
mod shared;

pub(crate) use backend::demanded_backend_works;
pub use backend::{BACKEND_ENV, IoBackend, IoBackendKind, io_backend};
pub use local::block_on;
pub(crate) use local::drive_to_the_end;
use local::{current, is_of_this_thread};
pub(crate) use op::{Fd, Op, OpKind};
pub(crate) use pool::run as run_blocking;
pub(crate) use shared::{DriverShared, Message};

use crate::{IoBuf, IoFuture, IoResult};
use shared::next_id;
use std::{
    future::Future,
    os::fd::RawFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// Starts a task on this thread's driver. The task need not be `Send`. It runs inside `block_on`
/// calls of this thread, and the end of the thread drops it.
///
/// # Panics
/// Outside of `block_on`.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) {
    let driver = current().expect("spawn_local is called inside driver::block_on");
    driver.shared.spawn_local(future);
}

/// Begins an operation on this thread's driver, else on the background driver or on the pool.
pub(crate) fn submit(op: Op) {
    if op.is_apart() || op.is_file_op() && io_backend().kind == IoBackendKind::Threads {
        pool::run(op.file(), move || op.run_blocking());
        return;
    }
    match current() {
        Some(driver) => driver.shared.start(op),
        None => background::start(op),
    }
}

/// Resolves `after` this long.
///
/// The time passes only while its thread is inside `block_on`; elsewhere the background driver
/// keeps it.
pub fn sleep(after: Duration) -> IoFuture<()> {
    let (completer, future) = IoFuture::pending();
    let at = Instant::now() + after;
    match current() {
        Some(driver) => driver.shared.add_timer(at, completer),
        None => {
            if let Some(driver) = background::driver() {
                driver.send(Message::Timer(at, completer));
            }
        }
    }
    future
}

/// Receives up to `buf.len()` bytes from a socket.
///
/// Resolves to the buffer and the number of bytes; 0 means that the peer closed.
///
/// The socket must stay open until the future ends or is dropped. A drop cancels the operation and
/// loses the bytes received by then. The receiving thread should drop it before it closes the
/// socket: a cancellation from elsewhere arrives later.
pub fn recv(fd: RawFd, buf: IoBuf) -> IoFuture<(IoBuf, usize)> {
    socket_op(|id, to| Op::new(Fd::Raw(fd), 0, OpKind::Recv { buf, id, wait_first: false, to }))
}

/// Resolves when a socket is readable, or a listening one has a connection. As for [`recv`], a drop
/// cancels it.
pub fn readable(fd: RawFd) -> IoFuture<()> {
    socket_op(|id, to| Op::new(Fd::Raw(fd), 0, OpKind::Ready { events: libc::POLLIN, id, to }))
}

/// Resolves when a socket is writable. As for [`recv`], a drop cancels it.
pub fn writable(fd: RawFd) -> IoFuture<()> {
    socket_op(|id, to| Op::new(Fd::Raw(fd), 0, OpKind::Ready { events: libc::POLLOUT, id, to }))
}

fn socket_op<T: Send + 'static>(op: impl FnOnce(u64, crate::Completer<T>) -> Op) -> IoFuture<T> {
    let id = next_id();
    let (completer, future) = IoFuture::pending();
    let op = op(id, completer);
    let home = current().map(|driver| driver.shared.clone());
    match &home {
        Some(shared) => shared.start(op),
        None => background::start(op),
    }
    IoFuture::boxed(SocketFuture { inner: Some(future), home, id })
}

/// A future that cancels its operation if it is dropped before the end.
struct SocketFuture<T> {
    inner: Option<IoFuture<T>>,
    /// The operation's driver; `None` stands for the background driver.
    home: Option<Arc<DriverShared>>,
    id: u64,
}

impl<T> Future for SocketFuture<T> {
    type Output = IoResult<T>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<T>> {
        let inner = self.inner.as_mut().expect("a socket operation was polled after it was over");
        let result = std::task::ready!(Pin::new(inner).poll(context));
        self.inner = None;
        Poll::Ready(result)
    }
}

impl<T> Drop for SocketFuture<T> {
    fn drop(&mut self) {
        if self.inner.take().is_none() {
            return;
        }
        match &self.home {
            None => background::cancel(self.id),
            Some(home) if is_of_this_thread(home) => home.cancel(self.id),
            Some(home) => home.send(Message::Cancel(self.id)),
        }
    }
}

#[cfg(test)]
#[expect(clippy::async_yields_async, reason = "futures that outlive their block_on are what is tested")]
mod tests;
