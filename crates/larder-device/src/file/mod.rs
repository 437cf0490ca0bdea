//! [`FileDevice`]: a regular file or a block device as a [`BlockDevice`], with direct I/O where the system allows it.
//!
//! Invariants: the file stays open, and its lock held, until the last operation is over. Memory that direct I/O
//! would refuse is copied through an aligned buffer. A discarded or zeroed range of a regular file reads as zeroes.
//! A write never gives a file that was cut short its full size again.
//!
//! What it does not do: grow the file after it was opened. A flush reports when another program cut the file short, and so does
//! [`BlockDevice::standing`].

mod identity;
mod open;
mod standing;
mod zero;

pub use identity::FileId;
pub use open::OpenOptions;

use crate::{
    BlockDevice, ChangeMark, DeviceInfo, Extent, IoBuf, IoFuture, IoOp, IoResult, SharedBuf, Standing, WriteFlags,
    ZeroFlags,
    driver::{self, Fd, Kind, Op},
};
use std::{fs::File, path::Path, sync::Arc};

/// A file or block device, open.
pub struct FileDevice {
    inner: Arc<Inner>,
}

/// What operations that outlive a call share.
struct Inner {
    file: Arc<File>,
    info: DeviceInfo,
    /// Memory handed to the kernel must be a multiple of this; 1 where it does not care.
    memory_align: usize,
    is_direct: bool,
    is_block_device: bool,
    /// Holes can be punched, and allocated ranges zeroed by the system.
    punches: bool,
    identity: u64,
    /// The file had a name when it was opened, as far as its file system counts names.
    had_name: bool,
    id: Option<FileId>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A child that this process is just starting holds a copy of the descriptor until it execs, and would hold the
        // lock with it. Unlocking lets it go now, unless an operation in flight still needs it.
        if Arc::strong_count(&self.file) == 1 {
            // SAFETY: a plain call on an open descriptor; without a lock it does nothing.
            unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(&*self.file), libc::LOCK_UN) };
        }
    }
}

impl FileDevice {
    /// Opens the file or block device at `path`.
    ///
    /// Fails with [`crate::IoErrorKind::InUse`] where `options.exclusive` is set and another process (or another
    /// `FileDevice`) holds it, and with the system's error where it cannot be opened.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> IoResult<FileDevice> {
        Ok(FileDevice { inner: Arc::new(open::open(path.as_ref(), options)?) })
    }

    /// Whether I/O passes by the page cache. False where it was not asked for or the file system refuses it.
    pub fn is_direct(&self) -> bool {
        self.inner.is_direct
    }

    /// Whether this is a block device, not a regular file.
    pub fn is_block_device(&self) -> bool {
        self.inner.is_block_device
    }

    /// A tag that tells it from others: of a file, its inode and its birth; of a block device, what the kernel says of it (a
    /// serial number, a UUID), 0 where it says nothing.
    pub fn identity(&self) -> u64 {
        self.inner.identity
    }

    /// Which one it is of all that are there now, however it was named.
    pub fn id(&self) -> Option<FileId> {
        self.inner.id
    }
}

impl Inner {
    fn fd(&self) -> Fd {
        Fd::Shared(self.file.clone())
    }

    fn is_aligned(&self, memory: &[u8]) -> bool {
        (memory.as_ptr() as usize).is_multiple_of(self.memory_align)
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let (to, future) = IoFuture::pending();
        driver::submit(Op::new(self.fd(), offset, Kind::Read { buf, done: 0, to }));
        future
    }

    fn write(&self, offset: u64, data: SharedBuf, dsync: bool) -> IoFuture<()> {
        if let Err(error) = self.check_last_byte(offset, data.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        let (to, future) = IoFuture::pending();
        driver::submit(Op::new(self.fd(), offset, Kind::Write { data, done: 0, dsync, to }));
        future
    }

    fn flush(&self) -> IoFuture<()> {
        let (to, future) = IoFuture::pending();
        driver::submit(Op::new(self.fd(), 0, Kind::Sync { to }));
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
        let inner = self.inner.clone();
        self.inner.flush().map(move |flushed| {
            flushed?;
            // The bytes behind the new end are gone, flushed ones included.
            inner.check_size(IoOp::Flush, 0, 0)
        })
    }

    fn change_mark(&self) -> Option<ChangeMark> {
        self.inner.change_mark()
    }

    fn standing(&self) -> Standing {
        self.inner.standing()
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
