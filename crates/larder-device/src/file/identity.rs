//! The identity of a file or block device: a lasting number, and an id among those present now.
//!
//! Invariants: the number 0 means that there is none. A device has the same number after a restart
//! and under another name. Two devices present at once never share a [`FileId`], copies of a whole
//! file system included.
//!
//! It does not look at the content.

use crate::rng::mix64;
use std::{
    fs::Metadata,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The id of a file or block device under any name, while system and mount stay up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileId {
    /// A regular file.
    File {
        /// The number of the file system's device.
        device: u64,
        /// The inode.
        inode: u64,
    },
    /// A block device.
    BlockDevice {
        /// The device's number.
        device: u64,
    },
}

impl FileId {
    /// Returns the id from the system's metadata; `None` for anything else than the two kinds.
    pub fn of(meta: &Metadata) -> Option<FileId> {
        if meta.file_type().is_block_device() {
            return Some(FileId::BlockDevice { device: meta.rdev() });
        }
        meta.is_file().then(|| FileId::File { device: meta.dev(), inode: meta.ino() })
    }
}

impl std::fmt::Display for FileId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |device: u64| format!("{}:{}", libc::major(device), libc::minor(device));
        match *self {
            FileId::File { device, inode } => write!(f, "inode {inode} of {}", number(device)),
            FileId::BlockDevice { device } => write!(f, "device {}", number(device)),
        }
    }
}

/// The kernel's names of one whole block device, the most trusted first.
///
/// They belong to volumes of the device mapper and RAID, and to SCSI, NVMe and virtio disks.
const NAMES: &[&str] = &["dm/uuid", "md/uuid", "wwid", "uuid", "nguid", "device/wwid", "device/serial", "serial"];

/// Returns the identity of the open file or device.
pub(super) fn identity(meta: &Metadata) -> u64 {
    match meta.file_type().is_block_device() {
        true => of_block_device(meta.rdev()),
        false => of_file(meta),
    }
}

/// Returns the identity of a file from its inode and its time of birth.
///
/// Inodes are used again, and the first file of every new file system may have the same one.
fn of_file(meta: &Metadata) -> u64 {
    let born = meta.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_nanos() as u64);
    mix64(meta.ino() ^ mix64(born)).max(1)
}

/// Returns the identity that the kernel tells under `/sys`.
///
/// A partition has its disk's identity and its start; a loop device has its file's.
fn of_block_device(rdev: u64) -> u64 {
    at_sysfs(rdev).map_or(0, |at| of_sysfs(&at))
}

/// Returns the directory with the attributes of a block device.
pub(super) fn at_sysfs(rdev: u64) -> Option<PathBuf> {
    PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(rdev), libc::minor(rdev))).canonicalize().ok()
}

fn of_sysfs(at: &Path) -> u64 {
    let attribute = |name: &str| {
        let text = std::fs::read_to_string(at.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    if attribute("partition").is_some() {
        let (disk, start) = (at.parent().map_or(0, of_sysfs), attribute("start").unwrap_or_default());
        return if disk == 0 { 0 } else { of_text(disk, &start) };
    }
    if let Some(file) = attribute("loop/backing_file") {
        let file = std::fs::metadata(file).map_or(0, |meta| identity(&meta));
        return if file == 0 { 0 } else { of_text(file, &attribute("loop/offset").unwrap_or_default()) };
    }
    let named = NAMES.iter().find_map(|name| attribute(name));
    named.map_or(0, |name| of_text(0, &name))
}

fn of_text(seed: u64, text: &str) -> u64 {
    text.bytes().fold(mix64(seed ^ 1), |hash, byte| mix64(hash ^ u64::from(byte))).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn sysfs(files: &[(&str, &str)]) -> PathBuf {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("larder-sysfs-{}-{number}", std::process::id()));
        for (name, text) in files {
            let file = dir.join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        }
        dir
    }

    #[test]
    fn disks_are_told_apart_by_what_the_kernel_says_of_them() {
        let ids = [
            sysfs(&[("wwid", "naa.5000c500a1b2c3d4\n")]),
            sysfs(&[("wwid", "naa.5000c500a1b2c3d5\n")]),
            sysfs(&[("device/serial", "S4EVNX0M\n"), ("size", "2048")]),
            sysfs(&[("dm/uuid", "LVM-abc"), ("wwid", "")]),
        ];
        let found: std::collections::BTreeSet<u64> = ids.iter().map(|dir| of_sysfs(dir)).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(!found.contains(&0));
        assert_eq!(of_sysfs(&sysfs(&[("size", "2048"), ("serial", "\n")])), 0, "nothing is said of it");
        ids.iter().for_each(|dir| drop(fs::remove_dir_all(dir)));
    }

    #[test]
    fn partitions_of_a_disk_are_told_apart_and_so_are_those_of_two_disks() {
        let disk = |serial| {
            sysfs(&[
                ("serial", serial),
                ("p1/partition", "1"),
                ("p1/start", "2048"),
                ("p2/partition", "2"),
                ("p2/start", "9000"),
            ])
        };
        let (one, other, unknown) = (disk("A"), disk("B"), disk(""));
        let found: std::collections::BTreeSet<u64> =
            [&one, &other].iter().flat_map(|disk| [of_sysfs(&disk.join("p1")), of_sysfs(&disk.join("p2"))]).collect();
        assert!(found.len() == 4 && !found.contains(&0), "{found:?}");
        assert_eq!(of_sysfs(&unknown.join("p1")), 0, "nothing is said of its disk");
        [one, other, unknown].iter().for_each(|dir| drop(fs::remove_dir_all(dir)));
    }

    #[test]
    fn a_loop_device_is_as_good_as_its_file() {
        let dir = sysfs(&[("image", "x"), ("other", "x")]);
        let over = |name: &str, offset: &str| {
            let file = dir.join(name);
            let at = sysfs(&[("loop/backing_file", file.to_str().expect("text")), ("loop/offset", offset)]);
            let found = of_sysfs(&at);
            let _ = fs::remove_dir_all(at);
            found
        };
        assert_ne!(over("image", "0"), 0);
        assert_eq!(over("image", "0"), over("image", "0"));
        assert_ne!(over("image", "0"), over("image", "4096"));
        assert_ne!(over("image", "0"), over("other", "0"));
        assert_eq!(over("gone", "0"), 0);
        let _ = fs::remove_dir_all(dir);
    }
}
