//! One operation in flight: the call to the kernel, its waiter, and the meaning of its result.
//!
//! Invariants: an [`Op`] owns all memory the kernel may touch, and the file if it is shared. It
//! lives in a driver's slab, a queue, or a pool thread until the kernel is done with it. Each op is
//! answered exactly once: through its completer, or with *cancelled* when it is dropped. Short
//! transfers continue, and interrupted calls repeat, here and nowhere else.
//!
//! It leaves ranges and alignment to the devices.

use crate::{Completer, IoBuf, IoError, IoErrorKind, IoOp, SharedBuf};
use io_uring::{opcode, squeue, types};
use std::{
    fs::File,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
};

/// The unit of a resumed transfer, in bytes: direct I/O needs aligned offsets.
const RESUME_ALIGN: usize = 512;
/// The attempts after which an operation that the kernel keeps answering with "again" fails.
const ATTEMPTS_MAX: u32 = 1 << 16;

/// The file or socket of an operation.
pub(crate) enum Fd {
    /// A file that stays open while the operation lives.
    Shared(Arc<File>),
    /// A file for which the kernel may wait where it should not: threads make its calls.
    Apart(Arc<File>),
    /// A descriptor that its owner keeps open until the operation ends or is cancelled.
    Raw(RawFd),
}

impl Fd {
    fn raw(&self) -> RawFd {
        match self {
            Fd::Shared(file) | Fd::Apart(file) => file.as_raw_fd(),
            Fd::Raw(fd) => *fd,
        }
    }
}

/// One operation, with its inputs and its waiter.
pub(crate) struct Op {
    pub(crate) fd: Fd,
    pub(crate) offset: u64,
    pub(crate) attempts: u32,
    pub(crate) kind: OpKind,
}

/// The work of an operation.
pub(crate) enum OpKind {
    Read {
        buf: IoBuf,
        done: usize,
        to: Completer<IoBuf>,
    },
    Write {
        data: SharedBuf,
        done: usize,
        dsync: bool,
        to: Completer<()>,
    },
    Sync {
        to: Completer<()>,
    },
    Allocate {
        mode: i32,
        len: u64,
        name: IoOp,
        to: Completer<()>,
    },
    /// `wait_first`: the socket does not block, so the kernel is asked to wait for it.
    Recv {
        buf: IoBuf,
        id: u64,
        wait_first: bool,
        to: Completer<(IoBuf, usize)>,
    },
    Ready {
        events: i16,
        id: u64,
        to: Completer<()>,
    },
    /// Completions wait in the ring of a driver that its thread does not drive.
    Tend {
        driver: Arc<dyn Tended>,
    },
}

/// A driver whose completions another thread takes.
pub(crate) trait Tended: Send + Sync {
    /// Returns the number that cancels the watch of its ring.
    fn id(&self) -> u64;

    /// Takes the completions.
    fn tend(self: Arc<Self>);

    /// Notes that the watch of the ring failed.
    fn stop_tending(&self);
}

impl Op {
    pub(crate) fn new(fd: Fd, offset: u64, kind: OpKind) -> Op {
        Op { fd, offset, attempts: 0, kind }
    }

    /// Returns the operation's name for a cancellation; disk operations have none.
    pub(crate) fn cancel_id(&self) -> Option<u64> {
        match &self.kind {
            OpKind::Recv { id, .. } | OpKind::Ready { id, .. } => Some(*id),
            OpKind::Tend { driver } => Some(driver.id()),
            _ => None,
        }
    }

    /// Returns whether pool threads can carry it; else it waits for a socket.
    pub(crate) fn is_file_op(&self) -> bool {
        self.cancel_id().is_none()
    }

    /// Returns whether only pool threads may carry it.
    pub(crate) fn is_apart(&self) -> bool {
        matches!(self.fd, Fd::Apart(_))
    }

    /// Returns the events to poll(2) for; 0 for a file operation.
    pub(crate) fn poll_events(&self) -> i16 {
        match &self.kind {
            OpKind::Recv { .. } | OpKind::Tend { .. } => libc::POLLIN,
            OpKind::Ready { events, .. } => *events,
            _ => 0,
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// Returns the submission entry. The memory it names stays valid as long as the op is kept.
    pub(crate) fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.fd.raw());
        let offset = self.offset;
        match &mut self.kind {
            OpKind::Read { buf, done, .. } => {
                let len = entry_len(buf.len() - *done);
                // SAFETY: `done` is at most the buffer's length.
                let ptr = unsafe { buf.as_mut_ptr().add(*done) };
                opcode::Read::new(fd, ptr, len).offset(offset + *done as u64).build()
            }
            OpKind::Write { data, done, dsync, .. } => {
                let rest = data.get(*done..).unwrap_or_default();
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, rest.as_ptr(), entry_len(rest.len()))
                    .offset(offset + *done as u64)
                    .rw_flags(flags)
                    .build()
            }
            OpKind::Sync { .. } => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            OpKind::Allocate { mode, len, .. } => opcode::Fallocate::new(fd, *len).offset(offset).mode(*mode).build(),
            OpKind::Recv { wait_first: true, .. } | OpKind::Tend { .. } => {
                opcode::PollAdd::new(fd, libc::POLLIN as u32).build()
            }
            OpKind::Recv { buf, .. } => opcode::Recv::new(fd, buf.as_mut_ptr(), entry_len(buf.len())).build(),
            OpKind::Ready { events, .. } => opcode::PollAdd::new(fd, *events as u32).build(),
        }
    }

    /// Makes the blocking call, or the non-blocking one for a socket that poll(2) found ready.
    ///
    /// The result is the kernel's: bytes, or a negative error number.
    pub(crate) fn call(&mut self) -> i32 {
        let fd = self.fd.raw();
        let offset = self.offset;
        let result = match &mut self.kind {
            OpKind::Read { buf, done, .. } => {
                let len = buf.len() - *done;
                // SAFETY: the range from `done` is inside the buffer, which this op owns.
                unsafe { libc::pread(fd, buf.as_mut_ptr().add(*done).cast(), len, (offset + *done as u64) as i64) }
            }
            OpKind::Write { data, done, dsync, .. } => {
                let rest = data.get(*done..).unwrap_or_default();
                let slice = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
                let at = (offset + *done as u64) as i64;
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                // SAFETY: the one slice names memory that this op shares and nothing writes.
                unsafe { libc::pwritev2(fd, &slice, 1, at, flags) }
            }
            // SAFETY: plain calls on a descriptor that this op keeps open.
            OpKind::Sync { .. } => unsafe { libc::fdatasync(fd) as isize },
            OpKind::Allocate { mode, len, .. } => {
                // SAFETY: as above.
                unsafe { libc::fallocate(fd, *mode, offset as i64, *len as i64) as isize }
            }
            OpKind::Recv { buf, wait_first, .. } => {
                *wait_first = false;
                // SAFETY: the buffer is this op's own.
                unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) }
            }
            OpKind::Ready { .. } | OpKind::Tend { .. } => 0,
        };
        if result < 0 { -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { result as i32 }
    }

    /// Returns the descriptor of the file or socket.
    pub(crate) fn file(&self) -> RawFd {
        self.fd.raw()
    }

    /// Runs the op to its end on this thread with blocking calls.
    pub(crate) fn run_blocking(mut self) {
        loop {
            let result = self.call();
            match self.finish(result) {
                Some(again) => self = again,
                None => return,
            }
        }
    }

    /// Takes a result: answers the waiter, or returns the op if it must go on.
    pub(crate) fn finish(mut self, result: i32) -> Option<Op> {
        if result == -libc::EINTR || result == -libc::EAGAIN {
            if let OpKind::Recv { wait_first, .. } = &mut self.kind {
                *wait_first = true;
                return Some(self);
            }
            self.attempts += 1;
            if self.attempts < ATTEMPTS_MAX {
                return Some(self);
            }
        }
        if result < 0 {
            self.fail(-result);
            return None;
        }
        let count = result as usize;
        match self.kind {
            OpKind::Read { ref buf, ref mut done, .. } if *done + count < buf.len() => self.resume(count),
            OpKind::Write { ref data, ref mut done, .. } if *done + count < data.len() => self.resume(count),
            OpKind::Recv { ref mut wait_first, .. } if *wait_first => {
                *wait_first = false;
                Some(self)
            }
            OpKind::Read { buf, to, .. } => {
                to.complete(Ok(buf));
                None
            }
            OpKind::Write { to, .. } | OpKind::Sync { to } | OpKind::Allocate { to, .. } | OpKind::Ready { to, .. } => {
                to.complete(Ok(()));
                None
            }
            OpKind::Recv { buf, to, .. } => {
                to.complete(Ok((buf, count)));
                None
            }
            OpKind::Tend { driver } => {
                driver.tend();
                None
            }
        }
    }

    /// Goes on after a short transfer, from the last aligned byte; fails without progress.
    fn resume(mut self, count: usize) -> Option<Op> {
        if let OpKind::Read { done, .. } | OpKind::Write { done, .. } = &mut self.kind {
            let next = (*done + count) / RESUME_ALIGN * RESUME_ALIGN;
            if next > *done {
                *done = next;
                return Some(self);
            }
        }
        let (name, len) = self.name();
        let error = IoError::new(IoErrorKind::Io, name, self.offset, len).with_detail("the device ends early");
        self.fail_with(error);
        None
    }

    fn name(&self) -> (IoOp, u64) {
        match &self.kind {
            OpKind::Read { buf, .. } => (IoOp::Read, buf.len() as u64),
            OpKind::Write { data, .. } => (IoOp::Write, data.len() as u64),
            OpKind::Sync { .. } => (IoOp::Flush, 0),
            OpKind::Allocate { len, name, .. } => (*name, *len),
            OpKind::Recv { .. } | OpKind::Ready { .. } | OpKind::Tend { .. } => (IoOp::Read, 0),
        }
    }

    fn fail(self, errno: i32) {
        let (name, len) = self.name();
        let error = match errno {
            libc::ECANCELED => IoError::new(IoErrorKind::Cancelled, name, self.offset, len),
            _ => IoError::from_errno(errno, name, self.offset, len),
        };
        self.fail_with(error);
    }

    fn fail_with(self, error: IoError) {
        match self.kind {
            OpKind::Read { to, .. } => to.complete(Err(error)),
            OpKind::Write { to, .. } | OpKind::Sync { to } | OpKind::Allocate { to, .. } | OpKind::Ready { to, .. } => {
                to.complete(Err(error));
            }
            OpKind::Recv { to, .. } => to.complete(Err(error)),
            OpKind::Tend { driver } => driver.stop_tending(),
        }
    }
}

/// Returns a length in the kernel's type. A longer transfer is cut short and goes on.
fn entry_len(len: usize) -> u32 {
    const ENTRY_BYTES_MAX: usize = 1 << 30;
    len.min(ENTRY_BYTES_MAX) as u32
}

#[cfg(test)]
mod tests;
