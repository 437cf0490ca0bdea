//! [`FileDevice`]: a file or block device as a [`BlockDevice`], with direct I/O if possible.
//!
//! Invariants: the file stays open, and its lock held, until the last operation ends. Memory that
//! direct I/O would refuse is copied through an aligned buffer. A discarded or zeroed range of a
//! regular file reads as zeroes. No write grows a file that is known to be cut short.
//!
//! It does not grow the file after opening. A flush reports that another program cut the file
//! short, and so does [`BlockDevice::look`].

mod identity;
mod open;
mod standing;
mod zero;

pub use identity::FileId;
pub use open::OpenOptions;

use crate::{
    BlockDevice, ChangeMark, Completer, DeviceInfo, Extent, IoBuf, IoFuture, IoOp, IoResult, SharedBuf, Standing,
    WriteFlags, ZeroFlags,
    driver::{self, Fd, Op, OpKind},
};
use std::{
    fs::File,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

/// An open file or block device.
pub struct FileDevice {
    inner: Arc<Inner>,
}

/// The state that operations share, since they may outlive a call.
struct Inner {
    file: Arc<File>,
    info: DeviceInfo,
    /// The bytes behind the last whole sector.
    cut_bytes: u64,
    /// The alignment of memory for the kernel; 1 if it takes any.
    memory_align: usize,
    is_direct: bool,
    is_block_device: bool,
    /// The system can punch holes, and zero allocated ranges.
    punches: bool,
    identity: u64,
    /// The file had a name at opening, as far as its file system counts names.
    had_name: bool,
    /// The path that led to the file at opening; `None` for a block device.
    path: Option<PathBuf>,
    /// The least length that was seen since the file was cut; `u64::MAX` while it has its size.
    ///
    /// A write behind the cut grows the file again, with a hole in place of the lost bytes.
    cut_to: AtomicU64,
    /// The kernel may wait for the file where it should not.
    is_apart: bool,
    id: Option<FileId>,
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

impl FileDevice {
    /// Opens the file or block device at `path`.
    ///
    /// Fails with [`crate::IoErrorKind::InUse`] if `options.exclusive` is set and another process
    /// or `FileDevice` holds it. Fails with the system's error if it cannot be opened.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> IoResult<FileDevice> {
        Ok(FileDevice { inner: Arc::new(open::open(path.as_ref(), options)?) })
    }

    /// Returns whether I/O bypasses the page cache. False if the caller did not ask for it or the
    /// file system refuses it.
    pub fn is_direct(&self) -> bool {
        self.inner.is_direct
    }

    /// Returns whether this is a block device, not a regular file.
    pub fn is_block_device(&self) -> bool {
        self.inner.is_block_device
    }

    /// Returns a tag that tells it from others; 0 without one.
    ///
    /// A file's tag is its inode and its birth; a block device's is the kernel's serial number or
    /// UUID.
    pub fn identity(&self) -> u64 {
        self.inner.identity
    }

    /// Returns the bytes of the file or device behind its last whole sector.
    pub fn cut_bytes(&self) -> u64 {
        self.inner.cut_bytes
    }

    /// Returns its id among all present now, under any name.
    pub fn id(&self) -> Option<FileId> {
        self.inner.id
    }
}

impl Inner {
    fn fd(&self) -> Fd {
        if self.is_apart { Fd::Apart(self.file.clone()) } else { Fd::Shared(self.file.clone()) }
    }

    fn is_aligned(&self, memory: &[u8]) -> bool {
        (memory.as_ptr() as usize).is_multiple_of(self.memory_align)
    }

    fn read(self: &Arc<Self>, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let (to, future) = IoFuture::pending();
        let range = (IoOp::Read, offset, buf.len() as u64);
        self.submit_inside(range, to, move |to| OpKind::Read { buf, done: 0, to });
        future
    }

    fn write(self: &Arc<Self>, offset: u64, data: SharedBuf, dsync: bool) -> IoFuture<()> {
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
    fn run_blocking(&self, call: impl FnOnce() + Send + 'static) {
        driver::run_blocking(self.file.as_raw_fd(), call);
    }

    /// As [`run_blocking`](Inner::run_blocking), for a call with a result.
    fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&Inner) -> IoResult<T> + Send + 'static,
    ) -> IoFuture<T> {
        let (inner, (to, future)) = (self.clone(), IoFuture::pending());
        self.run_blocking(move || to.complete(call(&inner)));
        future
    }

    fn flush(&self) -> IoFuture<()> {
        let (to, future) = IoFuture::pending();
        driver::submit(Op::new(self.fd(), 0, OpKind::Sync { to }));
        future
    }
}

impl BlockDevice for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        let inner = &self.inner;
        if let Err(error) = inner.info.check(IoOp::Read, offset, buf.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        if buf.is_empty() {
            return IoFuture::ready(Ok(buf));
        }
        if inner.is_aligned(&buf) {
            return inner.read(offset, buf);
        }
        inner.read(offset, IoBuf::new(buf.len())).map(move |result| {
            buf.copy_from_slice(&result?);
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let inner = &self.inner;
        if let Err(error) = inner.info.check(IoOp::Write, offset, data.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        if data.is_empty() {
            return IoFuture::ready(Ok(()));
        }
        let data = if inner.is_aligned(&data) { data } else { IoBuf::copy_of(&data).freeze() };
        inner.write(offset, data, flags.fua)
    }

    fn flush(&self) -> IoFuture<()> {
        if self.inner.info.read_only {
            return IoFuture::ready(Ok(()));
        }
        let flushed = self.inner.flush();
        if self.is_block_device() {
            return flushed;
        }
        let inner = self.inner.clone();
        IoFuture::boxed(async move {
            flushed.await?;
            // The bytes behind the new end are gone, flushed ones included. A failed look says
            // nothing of what was flushed.
            inner.blocking(|inner| inner.check_not_cut(IoOp::Flush, 0, 0)).await
        })
    }

    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        self.inner.blocking(Inner::change_mark)
    }

    fn look(&self) -> IoFuture<Standing> {
        if self.is_block_device() {
            return IoFuture::ready(Ok(Standing::Sound));
        }
        self.inner.blocking(Inner::standing_with_name)
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        if let Err(error) = self.inner.info.check(IoOp::Discard, offset, len) {
            return IoFuture::ready(Err(error));
        }
        if len == 0 {
            return IoFuture::ready(Ok(()));
        }
        zero::discard(&self.inner, offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        if let Err(error) = self.inner.info.check(IoOp::WriteZeroes, offset, len) {
            return IoFuture::ready(Err(error));
        }
        if len == 0 {
            return IoFuture::ready(Ok(()));
        }
        zero::write_zeroes(&self.inner, offset, len, flags)
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        if let Err(error) = self.inner.info.check(IoOp::Extents, offset, len) {
            return IoFuture::ready(Err(error));
        }
        zero::extents(&self.inner, offset, len)
    }
}

#[cfg(test)]
#[expect(clippy::async_yields_async, reason = "futures that outlive their block_on are what is tested")]
mod tests;
