//! The error of a device operation: a small kind to match on, the operation, the place, and the
//! cause.
//!
//! It does not format advice for users; the command line adds the name of the device.

use std::{fmt, sync::Arc};

/// Result of a device operation.
pub type IoResult<T> = Result<T, IoError>;

/// The kind of a failure, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The device failed this operation; another may succeed.
    Io,
    /// The device is gone: no further operation can succeed.
    Gone,
    /// The range lies past the end of the device.
    OutOfRange,
    /// Offset, length or memory is not a multiple of the device's sector.
    Unaligned,
    /// No space is left for the write (a sparse file on a full file system).
    NoSpace,
    /// The owner's quota leaves no space for the write.
    Quota,
    /// The process, or the system, has no file descriptor left.
    TooManyFiles,
    /// The device may not be written.
    ReadOnly,
    /// The device cannot do this operation, and the caller asked not to emulate it.
    Unsupported,
    /// The stored bytes differ from the written ones.
    Corrupt,
    /// Another process holds the device.
    InUse,
    /// The operation was abandoned because its device or driver is shutting down.
    Cancelled,
}

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IoOp {
    Open,
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    Extents,
    Standing,
}

impl IoOp {
    /// Returns its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            IoOp::Open => "open",
            IoOp::Read => "read",
            IoOp::Write => "write",
            IoOp::Flush => "flush",
            IoOp::Discard => "discard",
            IoOp::WriteZeroes => "write-zeroes",
            IoOp::Extents => "extent query",
            IoOp::Standing => "query of name and size",
        }
    }
}

/// A failed device operation. It clones cheaply, for every waiter of a shared operation.
#[derive(Clone, Debug)]
pub struct IoError {
    /// The kind, for callers to match on.
    pub kind: IoErrorKind,
    /// The operation that failed.
    pub op: IoOp,
    /// Byte offset of the operation on the device; 0 without one.
    pub offset: u64,
    /// Length of the operation in bytes; 0 without one.
    pub len: u64,
    /// The operating system's error number, if known.
    pub errno: Option<i32>,
    /// Further facts, for people.
    pub detail: Option<Arc<str>>,
}

impl IoErrorKind {
    /// Returns whether time or an operator ends the error: a shortage of space, quota or
    /// descriptors.
    pub fn is_shortage(self) -> bool {
        matches!(self, IoErrorKind::NoSpace | IoErrorKind::Quota | IoErrorKind::TooManyFiles)
    }
}

impl IoError {
    /// Returns an error of `kind` for `op` at `offset..offset + len`.
    pub fn new(kind: IoErrorKind, op: IoOp, offset: u64, len: u64) -> Self {
        IoError { kind, op, offset, len, errno: None, detail: None }
    }

    /// Adds an explanation for people.
    pub fn with_detail(mut self, detail: impl Into<Arc<str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Converts a (positive) error number of the operating system.
    pub fn from_errno(errno: i32, op: IoOp, offset: u64, len: u64) -> Self {
        let kind = match errno {
            libc::ENOSPC | libc::EFBIG => IoErrorKind::NoSpace,
            libc::EDQUOT => IoErrorKind::Quota,
            libc::EMFILE | libc::ENFILE => IoErrorKind::TooManyFiles,
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN => IoErrorKind::Gone,
            libc::EROFS | libc::EPERM | libc::EACCES => IoErrorKind::ReadOnly,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => IoErrorKind::Unsupported,
            _ => IoErrorKind::Io,
        };
        IoError { kind, op, offset, len, errno: Some(errno), detail: None }
    }

    /// Converts a `std::io::Error`.
    pub fn from_std(error: &std::io::Error, op: IoOp, offset: u64, len: u64) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::from_errno(errno, op, offset, len),
            None => Self::new(IoErrorKind::Io, op, offset, len).with_detail(error.to_string()),
        }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.op.name();
        let what = match self.kind {
            IoErrorKind::Io => "failed",
            IoErrorKind::Gone => "failed: the device is gone",
            IoErrorKind::OutOfRange => "reaches past the end of the device",
            IoErrorKind::Unaligned => "is not aligned to the device's sector",
            IoErrorKind::NoSpace => "failed: no space left",
            IoErrorKind::Quota => "failed: no space left under the quota",
            IoErrorKind::TooManyFiles => "failed: too many open files",
            IoErrorKind::ReadOnly => "failed: the device is read-only",
            IoErrorKind::Unsupported => "is not supported by the device",
            IoErrorKind::Corrupt => "found corrupt data",
            IoErrorKind::InUse => "failed: in use by another process",
            IoErrorKind::Cancelled => "was cancelled",
        };
        match self.op {
            IoOp::Open | IoOp::Flush => write!(f, "{op} {what}")?,
            _ => write!(f, "{op} of {} bytes at offset {} {what}", self.len, self.offset)?,
        }
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        } else if let Some(errno) = self.errno {
            write!(f, " ({})", std::io::Error::from_raw_os_error(errno))?;
        }
        Ok(())
    }
}

impl std::error::Error for IoError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages_are_told_apart() {
        for (errno, kind, words) in [
            (libc::ENOSPC, IoErrorKind::NoSpace, "no space left"),
            (libc::EFBIG, IoErrorKind::NoSpace, "no space left"),
            (libc::EDQUOT, IoErrorKind::Quota, "quota"),
            (libc::EMFILE, IoErrorKind::TooManyFiles, "too many open files"),
            (libc::ENFILE, IoErrorKind::TooManyFiles, "too many open files"),
        ] {
            let error = IoError::from_errno(errno, IoOp::Write, 0, 512);
            assert_eq!(error.kind, kind);
            assert!(error.kind.is_shortage() && error.to_string().contains(words), "{error}");
        }
        assert!(!IoError::from_errno(libc::EIO, IoOp::Write, 0, 512).kind.is_shortage());
    }
}
