//! The [`BlockDevice`] trait, which origin, flash, every fake and the finished cache implement.
//!
//! Invariants of every implementation:
//! - A completed write is visible to each later read. It is durable after a later
//!   [`BlockDevice::flush`] completes, or at once with [`WriteFlags::fua`].
//! - Overlapping operations in flight at once have no order, but no 512-byte sector mixes two of
//!   them.
//! - A device that hangs keeps futures waiting, and a caller only where the kernel blocks it.
//! - The call starts each operation, or at the latest the first poll of its future. A future
//!   dropped early does not stop the operation; the device keeps the buffer until the end.
//!
//! It leaves ranges and alignment to the caller; [`DeviceInfo::check`] refuses the others.

use crate::{IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf};

/// The properties of a device, fixed while it is open.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The path or URI, for people.
    pub name: String,
    /// Size in bytes, a multiple of `sector_bytes`.
    pub size_bytes: u64,
    /// Offsets, lengths and buffer addresses are multiples of this (512 to 4096, a power of two).
    pub sector_bytes: u32,
    /// The unit that the medium writes without reading, at least `sector_bytes` (4096 on most
    /// SSDs).
    pub physical_sector_bytes: u32,
    /// Requests of at least this many bytes are efficient; a hint.
    pub optimal_io_bytes: u32,
    /// Longest request in bytes; longer ones are refused.
    pub request_bytes_max: u32,
    /// A discarded range reads as zeroes.
    pub discard_zeroes: bool,
    /// `write_zeroes` is much faster than writing zeroes (holes, WRITE ZEROES with unmap).
    pub zeroes_fast: bool,
    /// Writes are refused.
    pub read_only: bool,
}

impl DeviceInfo {
    /// Checks a range. Refuses one that is empty, past the end, too long for one request, or not
    /// aligned.
    pub fn check(&self, op: IoOp, offset: u64, len: u64) -> IoResult<()> {
        let sector = u64::from(self.sector_bytes);
        if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            return Err(IoError::new(IoErrorKind::Unaligned, op, offset, len));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.size_bytes => {}
            _ => return Err(IoError::new(IoErrorKind::OutOfRange, op, offset, len)),
        }
        if matches!(op, IoOp::Read | IoOp::Write) && len > u64::from(self.request_bytes_max) {
            return Err(IoError::new(IoErrorKind::Unsupported, op, offset, len)
                .with_detail(format!("a request may have {} bytes at most", self.request_bytes_max)));
        }
        if self.read_only && matches!(op, IoOp::Write | IoOp::Discard | IoOp::WriteZeroes) {
            return Err(IoError::new(IoErrorKind::ReadOnly, op, offset, len));
        }
        Ok(())
    }
}

/// A device's mark: a change by another program while the device is closed changes the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeMark {
    /// The device's size in bytes.
    pub size_bytes: u64,
    /// The run of the count: `changes` of two marks compare only with equal epochs.
    pub epoch: u64,
    /// A number that each write changes.
    pub changes: u64,
}

/// The standing of an open device after changes by other programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The device knows of no change.
    #[default]
    Sound,
    /// The file goes on under another name: the one of its opening leads elsewhere, or nowhere.
    Renamed,
    /// The file has no name any more: its content is gone once the device is closed.
    Unlinked,
    /// The file was cut to this size, in bytes.
    Truncated(u64),
}

/// The options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Force unit access: complete only when these bytes are durable.
    pub fua: bool,
}

/// The options of zeroing a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroFlags {
    /// Complete only when the zeroes are durable.
    pub fua: bool,
    /// Keep the range allocated (NBD's NO_HOLE).
    pub no_hole: bool,
    /// Fail with [`IoErrorKind::Unsupported`] instead of writing zeroes as data (NBD's FAST_ZERO).
    pub fast_only: bool,
}

/// A run of a device with one allocation state, for block status queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// Not allocated: writing here may need space.
    pub hole: bool,
    /// Reads as zeroes.
    pub zero: bool,
}

/// A block device. The module lists the promises of every implementation.
pub trait BlockDevice: Send + Sync {
    /// Returns size, alignment and abilities.
    fn info(&self) -> &DeviceInfo;

    /// Fills all of `buf` from `offset` and hands it back.
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf>;

    /// Writes all of `data` at `offset`.
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()>;

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> IoFuture<()>;

    /// Tells the device that a range is not needed. Its content is then undefined unless
    /// [`DeviceInfo::discard_zeroes`] is set. This is a hint: a device without discards completes
    /// at once.
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()>;

    /// Makes a range read as zeroes.
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()>;

    /// Returns the mark that shows a later change by another program, or `None` without one.
    /// Callers take it after the last write. An error means that it cannot be told.
    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        IoFuture::ready(Ok(None))
    }

    /// Looks at the device's standing since it was opened. An error means that it cannot be told.
    fn look(&self) -> IoFuture<Standing> {
        IoFuture::ready(Ok(Standing::Sound))
    }

    /// Returns the allocation states of a range, in order. They cover at least its first byte and
    /// at most all of it. The default is one extent of data.
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        let _ = offset;
        IoFuture::ready(Ok(vec![Extent { len, hole: false, zero: false }]))
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for std::sync::Arc<D> {
    fn info(&self) -> &DeviceInfo {
        (**self).info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        (**self).read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        (**self).write(offset, data, flags)
    }
    fn flush(&self) -> IoFuture<()> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        (**self).discard(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        (**self).write_zeroes(offset, len, flags)
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        (**self).extents(offset, len)
    }
    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        (**self).change_mark()
    }
    fn look(&self) -> IoFuture<Standing> {
        (**self).look()
    }
}
