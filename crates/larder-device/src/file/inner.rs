//! The state of an open file or block device, and its reads and writes.
//!
//! Operations share it, since they may outlive a call.
//!
//! Invariant: the file stays open, and its lock held, until the last operation ends.
//!
//! It does not open the file.

use super::identity::FileId;
use crate::{
    Completer, DeviceInfo, IoBuf, IoFuture, IoOp, IoResult, SharedBuf,
    driver::{self, Fd, Op, OpKind},
};
use std::{
    fs::File,
    os::fd::AsRawFd,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
};

/// See the module.
pub(super) struct Inner {
    pub file: Arc<File>,
    pub info: DeviceInfo,
    /// The bytes behind the last whole sector.
    pub cut_bytes: u64,
    /// The alignment of memory for the kernel; 1 if it takes any.
    pub memory_align: usize,
    pub is_direct: bool,
    pub is_block_device: bool,
    /// The system can punch holes, and zero allocated ranges.
    pub punches: bool,
    pub identity: u64,
    /// The file had a name at opening, as far as its file system counts names.
    pub had_name: bool,
    /// The path that led to the file at opening; `None` for a block device.
    pub path: Option<PathBuf>,
    /// The least length that was seen since the file was cut; `u64::MAX` while it has its size.
    ///
    /// A write behind the cut grows the file again, with a hole in place of the lost bytes.
    pub cut_to: AtomicU64,
    /// The kernel may wait for the file where it should not.
    pub is_apart: bool,
    pub id: Option<FileId>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A child process that is starting holds a copy of the descriptor until it execs, and would
        // hold the lock with it. Unlocking releases it now, unless an operation in flight still
        // needs it.
        if Arc::strong_count(&self.file) == 1 {
            // SAFETY: a plain call on an open descriptor; without a lock it does nothing.
            unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}

impl Inner {
    pub fn fd(&self) -> Fd {
        if self.is_apart { Fd::Apart(self.file.clone()) } else { Fd::Shared(self.file.clone()) }
    }

    pub fn is_aligned(&self, memory: &[u8]) -> bool {
        (memory.as_ptr() as usize).is_multiple_of(self.memory_align)
    }

    pub fn read(self: &Arc<Self>, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let (to, future) = IoFuture::pending();
        let range = (IoOp::Read, offset, buf.len() as u64);
        self.submit_inside(range, to, move |to| OpKind::Read { buf, done: 0, to });
        future
    }

    pub fn write(self: &Arc<Self>, offset: u64, data: SharedBuf, dsync: bool) -> IoFuture<()> {
        let (to, future) = IoFuture::pending();
        let range = (IoOp::Write, offset, data.len() as u64);
        self.submit_inside(range, to, move |to| OpKind::Write { data, done: 0, dsync, to });
        future
    }

    /// Begins an operation; [`check_inside`](Inner::check_inside) comes before it where it has to.
    fn submit_inside<T: Send + 'static>(
        self: &Arc<Self>,
        (name, offset, len): (IoOp, u64, u64),
        to: Completer<T>,
        kind: impl FnOnce(Completer<T>) -> OpKind + Send + 'static,
    ) {
        if !self.needs_look(name, offset, len) {
            return driver::submit(Op::new(self.fd(), offset, kind(to)));
        }
        let inner = self.clone();
        self.run_blocking(move || match inner.check_inside(name, offset, len) {
            Ok(()) => driver::submit(Op::new(inner.fd(), offset, kind(to))),
            Err(error) => to.complete(Err(error)),
        });
    }

    /// Runs a call that may hang with the file, on a thread that waits for this file alone.
    pub fn run_blocking(&self, call: impl FnOnce() + Send + 'static) {
        driver::run_blocking(self.file.as_raw_fd(), call);
    }

    /// Runs a call with a result, as [`run_blocking`](Inner::run_blocking).
    pub fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&Inner) -> IoResult<T> + Send + 'static,
    ) -> IoFuture<T> {
        let (inner, (to, future)) = (self.clone(), IoFuture::pending());
        self.run_blocking(move || to.complete(call(&inner)));
        future
    }

    pub fn flush(&self) -> IoFuture<()> {
        let (to, future) = IoFuture::pending();
        driver::submit(Op::new(self.fd(), 0, OpKind::Sync { to }));
        future
    }
}
