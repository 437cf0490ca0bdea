//! Opening a file or block device: direct I/O, the lock, and the system's sizes and sectors.
//!
//! Invariants: nothing changes before the lock is held. A device that takes no write is not opened
//! for writing.
//!
//! It does not read or write the content, but for a try of the alignments that direct I/O accepts.

use super::{
    identity::{FileId, identity},
    inner::Inner,
};
use crate::{
    DeviceInfo, IoError, IoErrorKind, IoOp, IoResult,
    driver::{self, IoBackendKind},
};
use std::{
    fs::{File, Metadata},
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

/// Longest request in bytes.
const REQUEST_BYTES_MAX: u32 = 64 << 20;
/// Optimal request in bytes if the device names none.
const OPTIMAL_IO_BYTES: u32 = 64 << 10;
/// Smallest and largest sector that a [`DeviceInfo`] may name, in bytes.
const SECTOR_BYTES_MIN: u32 = 512;
const SECTOR_BYTES_MAX: u32 = 4096;

// From <linux/fs.h>.
const BLKROGET: libc::Ioctl = 0x125e;
const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKIOOPT: libc::Ioctl = 0x1279;
const BLKPBSZGET: libc::Ioctl = 0x127b;
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;

/// The options of opening a file or block device.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Bypass the page cache (O_DIRECT). If the file system refuses that, I/O is buffered.
    pub direct: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Refuse a second opening that asks for this, too. The means are a lock on a file, and O_EXCL
    /// on a block device, which also keeps mounted file systems safe.
    pub exclusive: bool,
    /// Create a missing file with this size in bytes, as one hole, for its owner alone. An empty
    /// regular file gets the size, too; a file with content keeps its own.
    pub create_bytes: Option<u64>,
}

pub(super) fn open(path: &Path, options: OpenOptions) -> IoResult<Inner> {
    driver::demanded_backend_works()?;
    // Checked before the opening, too: the opening of a pipe may wait for ever.
    std::fs::metadata(path).map_or(Ok(()), |meta| check_kind(&meta))?;
    let (file, mut is_direct) = open_file(path, options).map_err(fail)?;
    let meta = file.metadata().map_err(fail)?;
    check_kind(&meta)?;
    let is_block_device = meta.file_type().is_block_device();
    if options.exclusive && !is_block_device {
        lock(&file)?;
    }
    let is_fresh = !is_block_device && meta.len() == 0 && !options.read_only;
    let file_bytes = options.create_bytes.filter(|_| is_fresh).unwrap_or(meta.len());
    if file_bytes != meta.len() {
        file.set_len(file_bytes).map_err(fail)?;
    }
    let punches = !options.read_only && (is_block_device || can_punch(&file, &meta));
    let sizes = match is_block_device {
        true => block_device_sizes(&file).map_err(fail)?,
        false => file_sizes(&file, &meta, file_bytes, &mut is_direct),
    };
    // The kernel opens such a device for writing all the same, and fails each write.
    if sizes.read_only && !options.read_only {
        return Err(IoError::new(IoErrorKind::ReadOnly, IoOp::Open, 0, 0).with_detail("the block device is read-only"));
    }
    if !is_direct {
        set_direct_off(&file);
    }
    let cut_bytes = sizes.bytes % u64::from(sizes.logical);
    let info = DeviceInfo {
        name: path.display().to_string(),
        size_bytes: sizes.bytes - cut_bytes,
        sector_bytes: sizes.logical,
        physical_sector_bytes: sizes.physical,
        optimal_io_bytes: sizes.optimal,
        request_bytes_max: REQUEST_BYTES_MAX,
        discard_zeroes: punches && !is_block_device,
        zeroes_fast: if is_block_device { zeroes_offloaded(meta.rdev()) } else { punches },
        read_only: options.read_only,
    };
    Ok(Inner {
        // The kernel waits for some calls of such files inside io_uring's submission. So a file
        // that hangs would stop the threads that ask it. So threads of its own make the calls,
        // unless the operator has chosen io_uring.
        is_apart: driver::io_backend().chosen != Some(IoBackendKind::Uring) && needs_others(&meta, &file),
        file: Arc::new(file),
        memory_align: if is_direct { sizes.logical as usize } else { 1 },
        info,
        cut_bytes,
        is_direct,
        is_block_device,
        punches,
        identity: identity(&meta),
        had_name: meta.nlink() > 0,
        path: if is_block_device { None } else { path.canonicalize().ok() },
        cut_to: AtomicU64::new(u64::MAX),
        id: FileId::of(&meta),
    })
}

fn fail(error: std::io::Error) -> IoError {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EWOULDBLOCK) => IoError::new(IoErrorKind::InUse, IoOp::Open, 0, 0),
        _ => IoError::from_std(&error, IoOp::Open, 0, 0),
    }
}

fn check_kind(meta: &Metadata) -> IoResult<()> {
    match meta.is_file() || meta.file_type().is_block_device() {
        true => Ok(()),
        false => Err(IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0)
            .with_detail("it is neither a regular file nor a block device")),
    }
}

/// Locks the file against a second opening that asks for this, too.
fn lock(file: &File) -> IoResult<()> {
    // SAFETY: a plain call on an open descriptor.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(fail(std::io::Error::last_os_error())),
    }
}

/// Returns the sizes of a regular file. It clears the flag if direct I/O has no fit alignment.
fn file_sizes(file: &File, meta: &Metadata, bytes: u64, is_direct: &mut bool) -> Sizes {
    let align = if *is_direct { direct_align(file) } else { Some(SECTOR_BYTES_MIN) };
    // A sector above 4096 bytes is beyond our limit; buffered I/O takes any.
    *is_direct &= align.is_some();
    let logical = align.unwrap_or(SECTOR_BYTES_MIN);
    Sizes {
        bytes,
        logical,
        physical: (meta.blksize().min(u64::from(SECTOR_BYTES_MAX)) as u32).max(logical),
        optimal: OPTIMAL_IO_BYTES,
        read_only: false,
    }
}

/// Opens the file; the flag is set for direct I/O.
fn open_file(path: &Path, options: OpenOptions) -> std::io::Result<(File, bool)> {
    let is_block_device = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    let exclusive = if is_block_device && options.exclusive { libc::O_EXCL } else { 0 };
    let open = |flags| {
        std::fs::OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.create_bytes.is_some() && !options.read_only && !is_block_device)
            .truncate(false)
            // The file will hold data for its owner alone, and a lock that excludes every other
            // user.
            .mode(0o600)
            .custom_flags(flags | exclusive)
            .open(path)
    };
    if options.direct {
        match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return Ok((result?, true)),
        }
    }
    Ok((open(0)?, false))
}

/// Returns whether the file system of `file` needs another process or host, as FUSE and NFS do.
///
/// A file system without a block device does, unless it is a local kind in memory or on devices of
/// its own. A file system that does not tell its kind counts as not local. FUSE may have a block
/// device, too.
fn needs_others(meta: &Metadata, file: &File) -> bool {
    const FUSE: i64 = 0x6573_5546;
    /// Btrfs, tmpfs, ramfs, overlayfs, ZFS, bcachefs.
    const LOCAL: [i64; 6] = [0x9123_683e, 0x0102_1994, 0x8584_58f6, 0x794c_7630, 0x2fc1_2fc1, 0xca45_1a4e];
    // SAFETY: zeroes are a valid value, and the call fills it in.
    let found = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file.as_raw_fd(), &raw mut found);
        found
    };
    // The kernel's numbers have 32 bits.
    let kind = i64::from(found.f_type as u32);
    meta.is_file() && (kind == FUSE || libc::major(meta.dev()) == 0 && !LOCAL.contains(&kind))
}

fn set_direct_off(file: &File) {
    let fd = file.as_raw_fd();
    // SAFETY: plain calls on an open descriptor.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags >= 0 && flags & libc::O_DIRECT != 0 {
            libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_DIRECT);
        }
    }
}

struct Sizes {
    bytes: u64,
    logical: u32,
    physical: u32,
    optimal: u32,
    read_only: bool,
}

fn block_device_sizes(file: &File) -> std::io::Result<Sizes> {
    let fd = file.as_raw_fd();
    let ask = |request, value: *mut libc::c_void| {
        // SAFETY: each request below writes an integer of its variable's size.
        if unsafe { libc::ioctl(fd, request, value) } < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    let (mut bytes, mut logical, mut physical, mut optimal, mut read_only) = (0u64, 0i32, 0u32, 0u32, 0i32);
    ask(BLKGETSIZE64, (&raw mut bytes).cast())?;
    ask(BLKSSZGET, (&raw mut logical).cast())?;
    ask(BLKPBSZGET, (&raw mut physical).cast())?;
    // These two answers are useful, but not needed.
    let _ = ask(BLKIOOPT, (&raw mut optimal).cast());
    let _ = ask(BLKROGET, (&raw mut read_only).cast());
    let logical = (logical.max(0) as u32).clamp(SECTOR_BYTES_MIN, SECTOR_BYTES_MAX);
    Ok(Sizes {
        bytes,
        logical,
        physical: physical.clamp(logical, SECTOR_BYTES_MAX),
        optimal: if optimal == 0 { OPTIMAL_IO_BYTES } else { optimal },
        read_only: read_only != 0,
    })
}

/// Returns the alignment for direct I/O on this file, in bytes.
///
/// `None` stands for one beyond the largest sector.
fn direct_align(file: &File) -> Option<u32> {
    // SAFETY: all zeroes is a valid `statx`.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty C string and `stat` outlives the call.
    let result = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut stat)
    };
    if result == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0 {
        let align = stat.stx_dio_offset_align.max(stat.stx_dio_mem_align).max(SECTOR_BYTES_MIN);
        // An answer of 0 means that direct I/O is not supported.
        let usable = stat.stx_dio_offset_align != 0 && align.is_power_of_two() && align <= SECTOR_BYTES_MAX;
        return usable.then_some(align);
    }
    // An older kernel does not tell, so try.
    let mut memory = crate::IoBuf::new(SECTOR_BYTES_MAX as usize);
    let fits = |len: u32, memory: &mut crate::IoBuf| {
        // SAFETY: `len` is at most the buffer's length.
        unsafe { libc::pread(file.as_raw_fd(), memory.as_mut_ptr().cast(), len as usize, i64::from(len)) >= 0 }
    };
    [SECTOR_BYTES_MIN, SECTOR_BYTES_MAX].into_iter().find(|&len| fits(len, &mut memory))
}

/// Returns whether the file system can punch holes.
///
/// If its kind does not tell, the call tries a hole in the block after the end, which has no
/// content. That moves the file's modification time, and the call sets it back.
fn can_punch(file: &File, meta: &Metadata) -> bool {
    if is_known_to_punch(file) {
        return true;
    }
    const TRY_BYTES: i64 = 4096;
    let after = meta.len().next_multiple_of(TRY_BYTES as u64) as i64;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain call on an open descriptor.
    let can = unsafe { libc::fallocate(file.as_raw_fd(), mode, after, TRY_BYTES) == 0 };
    let kept = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let modified = libc::timespec { tv_sec: meta.mtime(), tv_nsec: meta.mtime_nsec() };
    // SAFETY: the call reads two times, which outlive it. When it fails, the next opening may
    // report a change by another program.
    let _ = unsafe { libc::futimens(file.as_raw_fd(), [kept, modified].as_ptr()) };
    can
}

/// Returns whether the file system always punches: XFS, btrfs, tmpfs, or ext4 with extents.
fn is_known_to_punch(file: &File) -> bool {
    const EXT_MAGIC: i64 = 0xef53;
    const ALWAYS: [i64; 3] = [0x5846_5342, 0x9123_683e, 0x0102_1994];
    // From <linux/fs.h>.
    const FS_IOC_GETFLAGS: libc::Ioctl = 0x8008_6601;
    const FS_EXTENT_FL: libc::c_int = 0x0008_0000;
    // SAFETY: all zeroes is a valid `statfs`.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` outlives the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } != 0 {
        return false;
    }
    let kind = stat.f_type & 0xffff_ffff;
    let mut flags: libc::c_int = 0;
    // SAFETY: the request writes an int.
    let mut has_flags = || unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFLAGS, &raw mut flags) == 0 };
    ALWAYS.contains(&kind) || (kind == EXT_MAGIC && has_flags() && flags & FS_EXTENT_FL != 0)
}

/// Returns whether a block device zeroes ranges by itself.
fn zeroes_offloaded(device: u64) -> bool {
    let (major, minor) = (libc::major(device), libc::minor(device));
    // A partition has its queue in its disk's directory.
    ["queue", "../queue"].iter().any(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/write_zeroes_max_bytes");
        std::fs::read_to_string(path).is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0))
    })
}
