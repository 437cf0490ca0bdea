//! Discarding, zeroing, and allocation queries.
//!
//! Invariants: a range is zeroed whole or the operation fails; `fast_only` never writes data.
//!
//! Both regular files and block devices are zeroed by fallocate(2). On a block device PUNCH_HOLE is
//! the kernel's "zero by the device or not at all, may unmap". ZERO_RANGE is its "zero, keep the
//! blocks".
//!
//! It does not remember the zero ranges.

use super::inner::Inner;
use crate::{
    Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, ZeroFlags,
    driver::{self, Op, OpKind},
};
use std::{
    os::fd::AsRawFd,
    sync::{Arc, OnceLock},
};

/// Bytes of zeroes in one request if the system cannot zero.
const ZERO_WRITE_BYTES: usize = 1 << 20;
/// Extents reported by one query; a caller asks again for the rest.
const EXTENTS_MAX: usize = 1024;

/// From <linux/fs.h>: BLKDISCARD takes two u64, offset and length.
const BLKDISCARD: libc::Ioctl = 0x1277;

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

impl Inner {
    fn allocate(&self, mode: i32, name: IoOp, offset: u64, len: u64) -> IoFuture<()> {
        let (to, future) = IoFuture::pending();
        driver::submit(Op::new(self.fd(), offset, OpKind::Allocate { mode, len, name, to }));
        future
    }
}

/// Accepts a device without discards: the operation is a hint.
fn as_hint(result: IoResult<()>) -> IoResult<()> {
    match result {
        Err(error) if error.kind == IoErrorKind::Unsupported => Ok(()),
        result => result,
    }
}

pub(super) fn discard(inner: &Arc<Inner>, offset: u64, len: u64) -> IoFuture<()> {
    if !inner.is_block_device {
        if !inner.punches {
            return IoFuture::ready(Ok(()));
        }
        return inner.allocate(PUNCH, IoOp::Discard, offset, len);
    }
    inner.blocking(move |inner| {
        let range = [offset, len];
        // SAFETY: the request reads two u64 from the array.
        let result = unsafe { libc::ioctl(inner.file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
        let error = std::io::Error::last_os_error();
        let result = if result == 0 { Ok(()) } else { Err(IoError::from_std(&error, IoOp::Discard, offset, len)) };
        as_hint(result)
    })
}

pub(super) fn write_zeroes(inner: &Arc<Inner>, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
    if !inner.needs_look(IoOp::WriteZeroes, offset, len) {
        return zero_inside(inner.clone(), offset, len, flags);
    }
    let looked = inner.blocking(move |inner| inner.check_inside(IoOp::WriteZeroes, offset, len));
    let inner = inner.clone();
    IoFuture::boxed(async move {
        looked.await?;
        zero_inside(inner, offset, len, flags).await
    })
}

fn zero_inside(inner: Arc<Inner>, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
    // The kernel's ZERO_RANGE on a block device may write the zeroes itself.
    let offload = inner.punches && !(flags.fast_only && flags.no_hole && inner.is_block_device);
    let first = offload.then(|| {
        let mode = if flags.no_hole { ZERO } else { PUNCH };
        inner.allocate(mode, IoOp::WriteZeroes, offset, len)
    });
    IoFuture::boxed(async move {
        let zeroed = match first {
            Some(first) => first.await,
            None => Err(IoError::new(IoErrorKind::Unsupported, IoOp::WriteZeroes, offset, len)),
        };
        match zeroed {
            Err(error) if error.kind == IoErrorKind::Unsupported && !flags.fast_only => {
                write_data(&inner, offset, len).await?;
            }
            result => result?,
        }
        if !flags.fua {
            return Ok(());
        }
        inner.flush().await?;
        inner.blocking(move |inner| inner.check_not_cut(IoOp::WriteZeroes, offset, len)).await
    })
}

/// Zeroes by writing data.
async fn write_data(inner: &Arc<Inner>, offset: u64, len: u64) -> IoResult<()> {
    static ZEROES: OnceLock<crate::SharedBuf> = OnceLock::new();
    let zeroes = ZEROES.get_or_init(|| IoBuf::zeroed(ZERO_WRITE_BYTES).freeze());
    let mut at = offset;
    while at < offset + len {
        let part = (offset + len - at).min(ZERO_WRITE_BYTES as u64);
        let written = inner.write(at, zeroes.slice(0..part as usize), false).await;
        written.map_err(|error| IoError { op: IoOp::WriteZeroes, ..error })?;
        at += part;
    }
    Ok(())
}

pub(super) fn extents(inner: &Arc<Inner>, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
    if inner.is_block_device || len == 0 {
        return IoFuture::ready(Ok(vec![Extent { len, hole: false, zero: false }]));
    }
    inner.blocking(move |inner| seek_extents(inner, offset, len))
}

fn seek_extents(inner: &Inner, offset: u64, len: u64) -> IoResult<Vec<Extent>> {
    let end = offset + len;
    // The start of the next data or hole; `None` after the last data. Positions are cut to whole
    // sectors, holes inwards.
    let seek = |at: u64, whence: i32| {
        // SAFETY: a plain call; nothing else uses the file's position.
        let found = unsafe { libc::lseek(inner.file.as_raw_fd(), at as i64, whence) };
        match (found, std::io::Error::last_os_error().raw_os_error()) {
            (0.., _) => Ok(Some(found as u64)),
            (_, Some(libc::ENXIO)) => Ok(None),
            (_, errno) => Err(IoError::from_errno(errno.unwrap_or(libc::EIO), IoOp::Extents, offset, len)),
        }
    };
    let sector = u64::from(inner.info.sector_bytes);
    let mut extents = Vec::new();
    let mut at = offset;
    // Bytes that a cut took are no zeroes: a copy of them must fail, and read them.
    let whole = end;
    let end = end.min(inner.intact_bytes()? / sector * sector);
    while at < end && extents.len() < EXTENTS_MAX {
        let data = seek(at, libc::SEEK_DATA)?.unwrap_or(end).min(end) / sector * sector;
        if data > at {
            extents.push(Extent { len: data - at, hole: true, zero: true });
            at = data;
            continue;
        }
        let hole = seek(at, libc::SEEK_HOLE)?.unwrap_or(end).next_multiple_of(sector).min(end);
        // A file that changed meanwhile may report the data's end at its start.
        let stop = hole.max(at + sector).min(end);
        extents.push(Extent { len: stop - at, hole: false, zero: false });
        at = stop;
    }
    if at >= end && at < whole && extents.len() < EXTENTS_MAX {
        extents.push(Extent { len: whole - at, hole: false, zero: false });
    }
    Ok(extents)
}
