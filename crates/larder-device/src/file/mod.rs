//! [`FileDevice`]: a file or block device as a [`BlockDevice`], with direct I/O if possible.
//!
//! Invariants: the file stays open, and its lock held, until the last operation ends. Memory that
//! direct I/O would refuse is copied through an aligned buffer. A discarded or zeroed range of a
//! regular file reads as zeroes. No write grows a file that is known to be cut short.
//!
//! It does not grow the file after opening. A flush reports that another program cut the file
//! short, and so does [`BlockDevice::look`].

mod identity;
mod inner;
mod open;
mod standing;
mod zero;

pub use identity::FileId;
use inner::Inner;
pub use open::OpenOptions;

use crate::{
    BlockDevice, ChangeMark, DeviceInfo, Extent, IoBuf, IoFuture, IoOp, IoResult, SharedBuf, Standing, WriteFlags,
    ZeroFlags,
};
use std::{path::Path, sync::Arc};

/// An open file or block device.
pub struct FileDevice {
    inner: Arc<Inner>,
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
            // nothing of the flushed bytes.
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
