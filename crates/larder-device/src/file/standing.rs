//! The state of a file or block device beside its content: its change mark, its name and its size.
//!
//! The mark shows changes by other programs while the device was closed.
//!
//! A file's changes show in the time of its last modification. The mark leaves out the time of the
//! last status change: it moves with each `chmod` and `ln`, which change no byte. A restored copy
//! with its old time passes, and rightly if it is the copy of the previous content.
//!
//! A block device counts its writes since its own beginning or that of the system. So its counts
//! compare only within one run of the system. Writes to the file under a loop device show in that
//! file's time.
//!
//! Invariants: the mark of a device stays the same between writes; reading, opening and closing it
//! keep it. A file that was cut stays [`Standing::Truncated`] until another program gives the file
//! its size. Until then a read of the lost bytes fails, also where a write has grown the file
//! again.
//!
//! It does not notice a change whose author set the file's time back.

use super::{
    identity::{self, FileId, at_sysfs},
    inner::Inner,
};
use crate::{ChangeMark, IoError, IoErrorKind, IoOp, IoResult, Standing, rng::mix64};
use std::{
    fs::{self, Metadata},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::Ordering::Relaxed,
};

impl Inner {
    /// Returns the change mark; `None` for a block device whose kernel counts no writes.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub(super) fn change_mark(&self) -> IoResult<Option<ChangeMark>> {
        let meta = self.file.metadata().map_err(|error| IoError::from_std(&error, IoOp::Standing, 0, 0))?;
        let found = match self.is_block_device {
            false => Some((self.identity, modified(&meta))),
            true => at_sysfs(meta.rdev()).and_then(|path| of_block_device(&path)),
        };
        let size_bytes = self.info.size_bytes;
        Ok(found.map(|(epoch, changes)| ChangeMark { size_bytes, epoch, changes }))
    }

    /// Returns the standing as the descriptor shows it.
    ///
    /// # Errors
    /// The error of fstat(2).
    fn standing(&self) -> IoResult<Standing> {
        if self.is_block_device {
            return Ok(Standing::Sound);
        }
        let meta = match self.file.metadata() {
            Ok(meta) => meta,
            // A server of files removed it.
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(Standing::Unlinked),
            Err(error) => return Err(IoError::from_std(&error, IoOp::Standing, 0, 0)),
        };
        if meta.len() < self.info.size_bytes {
            return Ok(Standing::Truncated(self.cut_to.fetch_min(meta.len(), Relaxed).min(meta.len())));
        }
        self.cut_to.store(u64::MAX, Relaxed);
        // Some file systems keep no count of names.
        Ok(if meta.nlink() == 0 && self.had_name { Standing::Unlinked } else { Standing::Sound })
    }

    /// Returns the standing, and looks whether the file is still where it was opened.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub(super) fn standing_with_name(&self) -> IoResult<Standing> {
        self.standing().map(|standing| match standing {
            Standing::Sound if self.is_elsewhere() => Standing::Renamed,
            standing => standing,
        })
    }

    /// Returns whether the path of the opening leads to another file, or to none. A path that
    /// cannot be looked at tells nothing.
    fn is_elsewhere(&self) -> bool {
        let (Some(path), Some(id)) = (&self.path, self.id) else { return false };
        match fs::metadata(path) {
            Ok(meta) => FileId::of(&meta) != Some(id),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Checks that the file was not cut short. A file that cannot be looked at passes.
    ///
    /// # Errors
    /// [`IoErrorKind::Io`] for this operation when the file was cut short.
    pub(super) fn check_not_cut(&self, op: IoOp, offset: u64, len: u64) -> IoResult<()> {
        match self.standing() {
            Ok(Standing::Truncated(bytes)) => Err(cut_to(bytes, op, offset, len)),
            _ => Ok(()),
        }
    }

    /// Returns whether an operation begins with [`check_inside`](Inner::check_inside).
    ///
    /// A read of bytes that a cut took finds zeroes once the file grew again. A write behind the
    /// end of a cut file would grow it, with a hole in place of the lost bytes. A look costs a
    /// thread, so a cut counts once a look has found it. A write of the last byte looks by itself:
    /// it would hide the cut.
    pub(super) fn needs_look(&self, op: IoOp, offset: u64, len: u64) -> bool {
        let (end, cut_to) = (offset + len, self.cut_to.load(Relaxed));
        match op {
            IoOp::Read => end > cut_to,
            _ => cut_to != u64::MAX || end == self.info.size_bytes && !self.is_block_device,
        }
    }

    /// Checks that a range lies before the end of a file that was cut. It waits as long as the file
    /// system hangs.
    ///
    /// # Errors
    /// [`IoErrorKind::Io`] for this operation when the cut took a part of it; that of fstat(2).
    pub(super) fn check_inside(&self, op: IoOp, offset: u64, len: u64) -> IoResult<()> {
        match self.standing()? {
            Standing::Truncated(bytes) if offset + len > bytes => Err(cut_to(bytes, op, offset, len)),
            _ => Ok(()),
        }
    }

    /// Returns the bytes from the start on that no cut took, at most the device's size.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub(super) fn intact_bytes(&self) -> IoResult<u64> {
        Ok(match self.standing()? {
            Standing::Truncated(bytes) => bytes,
            _ => self.info.size_bytes,
        })
    }
}

/// Returns the error of an operation on a file that was cut to so many bytes.
fn cut_to(bytes: u64, op: IoOp, offset: u64, len: u64) -> IoError {
    let cut = format!("the file was cut to {bytes} bytes while it was in use");
    IoError::new(IoErrorKind::Io, op, offset, len).with_detail(cut)
}

/// Returns the time of the last modification, in nanoseconds. Its only use is comparison.
fn modified(meta: &Metadata) -> u64 {
    (meta.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec() as u64)
}

/// Returns epoch and count of the block device with attributes at this path.
///
/// `None` if the system keeps no count.
fn of_block_device(at: &Path) -> Option<(u64, u64)> {
    let text = |name: &str| fs::read_to_string(at.join(name)).ok();
    let backing = text("loop/backing_file").or_else(|| fs::read_to_string(at.join("../loop/backing_file")).ok());
    if let Some(file) = backing {
        let meta = fs::metadata(file.trim()).ok()?;
        return Some((identity::identity(&meta), modified(&meta)));
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = text("stat")?;
    // Writes, sectors written, discards, sectors discarded; old systems lack the last two.
    let counts = [4, 6, 11, 13].into_iter().map(|field| stat.split_ascii_whitespace().nth(field).unwrap_or_default());
    let hash = |seed: u64, text: &str| text.bytes().fold(seed, |hash, byte| mix64(hash ^ u64::from(byte)));
    Some((hash(1, boot.trim()), counts.fold(2, |seed, count| mix64(hash(seed, count)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlockDevice, Extent, IoBuf, WriteFlags, ZeroFlags,
        driver::block_on,
        file::{FileDevice, OpenOptions},
    };
    use std::{
        os::unix::fs::FileExt,
        time::{Duration, SystemTime},
    };

    const BYTES: u64 = 1 << 20;

    fn standing(device: &FileDevice) -> Standing {
        block_on(device.look()).expect("a look")
    }

    fn mark_of(device: &FileDevice) -> Option<ChangeMark> {
        block_on(device.change_mark()).expect("a mark, or none")
    }

    struct TempFile(std::path::PathBuf);

    impl TempFile {
        fn new(name: &str) -> TempFile {
            let path = std::env::temp_dir().join(format!("larder-standing-{name}-{}", std::process::id()));
            fs::write(&path, vec![0; BYTES as usize]).expect("a file");
            TempFile(path)
        }

        fn open(&self) -> FileDevice {
            FileDevice::open(&self.0, OpenOptions { direct: true, ..OpenOptions::default() }).expect("opened")
        }

        /// Leaves the file as an editor does a day later.
        fn touch(&self) {
            let file = fs::File::options().write(true).open(&self.0).expect("the file");
            file.set_modified(SystemTime::now() + Duration::from_secs(86_400)).expect("a time");
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_mark_stays_until_a_write() {
        let temp = TempFile::new("mark");
        let device = temp.open();
        block_on(device.write(0, IoBuf::copy_of(&[7; 4096]).freeze(), WriteFlags::default())).expect("written");
        block_on(device.flush()).expect("flushed");
        let mark = mark_of(&device);
        assert!(mark.is_some_and(|mark| mark.size_bytes == BYTES));
        drop(device);
        let device = temp.open();
        block_on(device.read(0, IoBuf::new(4096))).expect("read");
        fs::set_permissions(&temp.0, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("another mode");
        assert_eq!(mark_of(&device), mark, "who opens, reads and changes permissions changes no byte");
        temp.touch();
        assert_ne!(mark_of(&device), mark);
    }

    #[test]
    fn a_file_without_a_name_or_with_another_size_says_so() {
        let temp = TempFile::new("name");
        let device = temp.open();
        assert_eq!(standing(&device), Standing::Sound);
        fs::File::options().write(true).open(&temp.0).and_then(|file| file.set_len(4096)).expect("cut");
        assert_eq!(standing(&device), Standing::Truncated(4096));
        let refused = block_on(device.flush()).expect_err("what was written behind the end is gone");
        assert!(refused.kind == IoErrorKind::Io && refused.to_string().contains("cut to 4096 bytes"), "{refused}");
        // A write of the last byte would restore the file's size, and none of its content.
        let last = BYTES - 4096;
        for behind in [4096, BYTES / 2, last] {
            let written = block_on(device.write(behind, IoBuf::copy_of(&[7; 4096]).freeze(), WriteFlags::default()));
            written.expect_err("the write would leave a hole");
        }
        block_on(device.write(0, IoBuf::copy_of(&[7; 4096]).freeze(), WriteFlags::default())).expect("before the cut");
        for (no_hole, fua) in [(false, false), (true, false), (false, true)] {
            let flags = ZeroFlags { no_hole, fua, ..ZeroFlags::default() };
            for behind in [BYTES / 2, last] {
                block_on(device.write_zeroes(behind, 4096, flags)).expect_err("these bytes are lost");
            }
        }
        let found = block_on(device.extents(0, BYTES)).expect("extents");
        let lost = Extent { len: BYTES - 4096, hole: false, zero: false };
        assert_eq!(found.last(), Some(&lost), "lost bytes are no zeroes");
        assert!(matches!(standing(&device), Standing::Truncated(_)), "the device itself hid the cut");
        fs::File::options().write(true).open(&temp.0).and_then(|file| file.set_len(BYTES)).expect("as before");
        block_on(device.flush()).expect("its size is back");
        fs::remove_file(&temp.0).expect("removed");
        assert_eq!(standing(&device), Standing::Unlinked);
        block_on(device.flush()).expect("it can still be written");
    }

    #[test]
    fn a_file_under_another_name_says_so() {
        let temp = TempFile::new("renamed");
        let device = temp.open();
        let elsewhere = TempFile(temp.0.with_extension("elsewhere"));
        fs::rename(&temp.0, &elsewhere.0).expect("renamed");
        assert_eq!(standing(&device), Standing::Renamed, "no file has the name");
        fs::copy(&elsewhere.0, &temp.0).expect("copied");
        assert_eq!(standing(&device), Standing::Renamed, "a copy has the name");
        block_on(device.flush()).expect("it can still be written");
        fs::rename(&elsewhere.0, &temp.0).expect("renamed back");
        assert_eq!(standing(&device), Standing::Sound);
        fs::hard_link(&temp.0, &elsewhere.0).expect("a second name");
        assert_eq!(standing(&device), Standing::Sound);
        fs::remove_file(&temp.0).expect("one name less");
        assert_eq!(standing(&device), Standing::Renamed, "the second name is left");
    }

    #[test]
    fn bytes_that_a_cut_took_are_not_read_as_zeroes() {
        let temp = TempFile::new("cut");
        fs::write(&temp.0, vec![7; BYTES as usize]).expect("content");
        let device = temp.open();
        let read = |offset| block_on(device.read(offset, IoBuf::new(4096)));
        let file = fs::File::options().write(true).open(&temp.0).expect("the file");
        file.set_len(BYTES / 4).expect("cut");
        assert_eq!(standing(&device), Standing::Truncated(BYTES / 4));
        assert_eq!(read(BYTES / 2).expect_err("it is not there").kind, IoErrorKind::Io);
        // Another program grows the file, with a hole before its bytes.
        file.write_all_at(&[7; 4096], BYTES / 2).expect("written");
        assert_eq!(standing(&device), Standing::Truncated(BYTES / 4));
        for lost in [BYTES / 4, BYTES / 2 - 4096, BYTES / 4 * 3] {
            assert_eq!(read(lost).expect_err("it is lost").kind, IoErrorKind::Io, "{lost}");
        }
        assert_eq!(read(BYTES / 4 - 4096).expect("before the cut")[..], [7; 4096]);
        file.set_len(BYTES).expect("its old size");
        assert_eq!(read(BYTES / 2 - 4096).expect("it has its size")[..], [0; 4096]);
        assert_eq!(standing(&device), Standing::Sound);
        drop(file);
    }

    #[test]
    fn a_block_device_counts_its_writes() {
        let dir = std::env::temp_dir().join(format!("larder-standing-sys-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let of = |stat: &str| {
            fs::write(dir.join("stat"), stat).expect("counts");
            of_block_device(&dir)
        };
        let one = of("  100 2 800 5 50 1 400 7 0 9 12 3 0 24 1 4 2\n");
        assert!(one.is_some());
        assert_eq!(one, of("  900 9 999 9 50 9 400 9 9 9 99 3 9 24 9 9 9\n"), "reads and flushes do not count");
        assert_ne!(one, of("  100 2 800 5 51 1 408 7 0 9 12 3 0 24 1 4 2\n"), "writes do");
        let _ = fs::remove_dir_all(dir);
    }
}
