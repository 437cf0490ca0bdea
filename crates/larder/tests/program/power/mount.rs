//! A FUSE file system with two files, `flash` and `origin`, each a [`Disk`]. Larder opens them like
//! any file, through its system calls or its ring.
//!
//! Invariants: both lose power at one instant. From then on the file system answers nothing until
//! the calling process is being killed. So that process does not learn that its disks lost their
//! power. The kernel's page cache keeps nothing: each write arrives as Larder makes it. A write
//! with `O_DSYNC` or `RWF_DSYNC` arrives with a flag that says so, and the kernel adds no fsync.
//!
//! On request each third long read or write is cut short at a sector, as any file system may do it.
//! The caller asks for the rest. With direct I/O through io_uring, the kernel (6.18) tells no
//! caller of the cut: it calls the request whole, and the rest is lost. So no test cuts there.
//!
//! It does not grow its files, or make others.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, FUSE_ROOT_ID, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, consts::FOPEN_DIRECT_IO,
};
use larder_device::{IoBuf, rng::Rng};

use super::disk::{Disk, Loss, SECTOR};
use crate::support::{Scratch, have_mounts};

/// The files, by the order of their disks. The first one has the inode after the root's.
const NAMES: [&str; 2] = ["flash", "origin"];
/// Their attributes never change.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// The power supply of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    /// It is gone, and no caller learns it yet.
    Cut,
    /// It is gone, and each request fails.
    Off,
}

struct State {
    disks: [Disk; 2],
    power: Power,
    long_requests: u64,
    /// Long requests that were cut short.
    short_requests: u64,
    cuts_short: bool,
}

impl State {
    /// Returns the bytes of a request that are carried out.
    fn cut(&mut self, bytes: usize) -> usize {
        if !self.cuts_short || bytes <= SECTOR {
            return bytes;
        }
        self.long_requests += 1;
        if !self.long_requests.is_multiple_of(3) {
            return bytes;
        }
        self.short_requests += 1;
        let sectors = (bytes - 1) / SECTOR;
        (1 + self.long_requests as usize % sectors) * SECTOR
    }
}

/// The disks, which the file system and the test share.
struct Rack {
    state: Mutex<State>,
    changed: Condvar,
}

impl Rack {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, power: Power) {
        self.lock().power = power;
        self.changed.notify_all();
    }
}

/// The mounted files. Unmounted when it is dropped.
pub struct Disks {
    rack: Arc<Rack>,
    folder: PathBuf,
    session: Option<BackgroundSession>,
}

impl Disks {
    /// Mounts a flash and an origin of these sizes, in a folder of the scratch folder.
    pub fn mount(scratch: &Scratch, flash_bytes: u64, origin_bytes: u64) -> Self {
        let folder = scratch.path("disks");
        std::fs::create_dir_all(&folder).expect("a mount point");
        let disks = [Disk::new(flash_bytes), Disk::new(origin_bytes)];
        let state = State { disks, power: Power::On, long_requests: 0, short_requests: 0, cuts_short: false };
        let rack = Arc::new(Rack { state: Mutex::new(state), changed: Condvar::new() });
        let options = [MountOption::FSName("larder-test".to_owned()), MountOption::DefaultPermissions];
        let session = fuser::spawn_mount2(Files(rack.clone()), &folder, &options).expect("a FUSE mount");
        Disks { rack, folder, session: Some(session) }
    }

    pub fn flash(&self) -> PathBuf {
        self.folder.join(NAMES[0])
    }

    pub fn origin(&self) -> PathBuf {
        self.folder.join(NAMES[1])
    }

    /// Cuts long requests short from now on.
    pub fn cut_short(&self) {
        self.rack.lock().cuts_short = true;
    }

    /// Counts the requests that were cut short.
    pub fn short_requests(&self) -> u64 {
        self.rack.lock().short_requests
    }

    /// Cuts the power of both.
    pub fn cut_power(&self) {
        self.rack.set(Power::Cut);
    }

    /// Fails the requests from now on: the process that waits for the disks is being killed.
    pub fn let_go(&self) {
        self.rack.set(Power::Off);
    }

    /// Brings the power back, and returns the number of unflushed sectors of each disk.
    pub fn power_on(&self, loss: Loss, rng: &mut Rng) -> [usize; 2] {
        let mut state = self.rack.lock();
        let volatile = [0, 1].map(|number| state.disks[number].volatile_sectors());
        state.disks.iter_mut().for_each(|disk| disk.lose_power(loss, rng));
        drop(state);
        self.rack.set(Power::On);
        volatile
    }

    /// Returns the content of the origin.
    pub fn origin_bytes(&self) -> Vec<u8> {
        self.rack.lock().disks[1].bytes().to_vec()
    }

    /// Counts the flushes of both so far.
    pub fn flushes(&self) -> [u64; 2] {
        let state = self.rack.lock();
        [0, 1].map(|number| state.disks[number].flushes)
    }

    /// Counts the durable writes of both so far.
    pub fn durable_writes(&self) -> [u64; 2] {
        let state = self.rack.lock();
        [0, 1].map(|number| state.disks[number].durable_writes)
    }

    /// Counts the sectors of both that a power loss may take back.
    fn volatile_sectors(&self) -> [usize; 2] {
        let state = self.rack.lock();
        [0, 1].map(|number| state.disks[number].volatile_sectors())
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        // A server that a failed test left is killed by its own guard, before this.
        self.let_go();
        let Some(session) = self.session.take() else { return };
        session.join();
        assert!(!is_mounted(&self.folder) || std::thread::panicking(), "{} stays mounted", self.folder.display());
    }
}

fn is_mounted(folder: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("the mounts");
    let folder = folder.display().to_string();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(&folder))
}

struct Files(Arc<Rack>);

impl Files {
    /// Returns the disks, once they have power; `None` if it is gone and requests may fail.
    fn powered(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.0.lock();
        while state.power == Power::Cut {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.power == Power::On).then_some(state)
    }

    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let disk = inode.checked_sub(FUSE_ROOT_ID + 1).map(|number| number as usize);
        let size = match disk {
            None => 0,
            Some(number) => self.0.lock().disks.get(number)?.bytes().len() as u64,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / SECTOR as u64,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if disk.is_none() { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            // SAFETY: plain calls that cannot fail.
            uid: unsafe { libc::geteuid() },
            // SAFETY: as above.
            gid: unsafe { libc::getegid() },
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

fn disk_of(state: &mut State, inode: u64) -> &mut Disk {
    &mut state.disks[(inode - FUSE_ROOT_ID - 1) as usize]
}

impl Filesystem for Files {
    fn lookup(&mut self, _: &Request<'_>, _parent: u64, name: &OsStr, reply: ReplyEntry) {
        let number = NAMES.iter().position(|&known| name == known);
        match number.and_then(|number| self.attributes(FUSE_ROOT_ID + 1 + number as u64)) {
            Some(attributes) => reply.entry(&FOR_EVER, &attributes, 0),
            None => reply.error(libc::ENOENT),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, inode: u64, _handle: Option<u64>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(libc::ENOENT),
        }
    }

    /// Sizes stay as they are.
    fn setattr(
        &mut self,
        _: &Request<'_>,
        inode: u64,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<u64>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<u32>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode).filter(|attributes| size.is_none_or(|size| size == attributes.size)) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(libc::EPERM),
        }
    }

    /// Bypasses the page cache, even if Larder opens the file without `O_DIRECT`.
    ///
    /// Through the cache, the kernel sends an fsync after each durable write. That makes all
    /// sectors durable, and looks like a flush that Larder asked for.
    fn open(&mut self, _: &Request<'_>, _inode: u64, _flags: i32, reply: ReplyOpen) {
        reply.opened(0, FOPEN_DIRECT_IO);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        inode: u64,
        _handle: u64,
        offset: i64,
        size: u32,
        _flags: i32,
        _lock: Option<u64>,
        reply: ReplyData,
    ) {
        let Some(mut state) = self.powered() else { return reply.error(libc::EIO) };
        let size = state.cut(size as usize);
        let bytes = disk_of(&mut state, inode).bytes();
        let end = (offset as usize + size).min(bytes.len());
        reply.data(bytes.get(offset as usize..end).unwrap_or_default());
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        inode: u64,
        _handle: u64,
        offset: i64,
        data: &[u8],
        _write_flags: u32,
        flags: i32,
        _lock: Option<u64>,
        reply: ReplyWrite,
    ) {
        let Some(mut state) = self.powered() else { return reply.error(libc::EIO) };
        let data = &data[..state.cut(data.len())];
        let disk = disk_of(&mut state, inode);
        let write = if flags & libc::O_DSYNC == 0 { Disk::write } else { Disk::write_durably };
        match write(disk, offset as usize, data) {
            0 => reply.error(libc::ENOSPC),
            written => reply.written(written as u32),
        }
    }

    fn fsync(&mut self, _: &Request<'_>, inode: u64, _handle: u64, _datasync: bool, reply: ReplyEmpty) {
        let Some(mut state) = self.powered() else { return reply.error(libc::EIO) };
        disk_of(&mut state, inode).flush();
        reply.ok();
    }

    fn fallocate(
        &mut self,
        _: &Request<'_>,
        inode: u64,
        _handle: u64,
        offset: i64,
        length: i64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(mut state) = self.powered() else { return reply.error(libc::EIO) };
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            disk_of(&mut state, inode).zero(offset as usize, length as usize);
        }
        reply.ok();
    }
}

/// Checks the behaviour of the kernel on which the file system relies, with direct I/O and without.
#[test]
fn the_kernel_tells_a_durable_write_from_a_flush() {
    if !have_mounts("power") {
        return;
    }
    let scratch = Scratch::new("power-mount");
    let disks = Disks::mount(&scratch, 1 << 16, 1 << 16);
    for (number, flags) in [0, libc::O_DIRECT].into_iter().enumerate() {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(flags).open(disks.flash()).expect("it opens");
        let data = IoBuf::new(4096);
        let write = |at: i64, flags: i32| {
            let slice = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
            // SAFETY: the one slice names memory that outlives the call and is only read.
            let written = unsafe { libc::pwritev2(file.as_raw_fd(), &slice, 1, at, flags) };
            assert_eq!(written, data.len() as isize, "{}", std::io::Error::last_os_error());
        };
        write(0, 0);
        write(8192, libc::RWF_DSYNC);
        let counts = || (disks.volatile_sectors()[0], disks.flushes()[0], disks.durable_writes()[0]);
        let before = number as u64;
        assert_eq!(counts(), (data.len() / SECTOR, before, before + 1), "a durable write is one, and flushes nothing");
        file.sync_data().expect("flushed");
        assert_eq!(counts(), (0, before + 1, before + 1), "a flush makes everything durable");
    }
}
