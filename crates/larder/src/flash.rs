//! The flash of a cache: opened, and its superblock read.
//!
//! Invariants: nothing is written here. A flash that another process holds is refused. Each refusal
//! is one sentence that names the path.
//!
//! It leaves recovery to the engine.

use crate::{
    error::{Failure, Outcome, reason},
    holder::{self, Holder},
    output,
    waiting::saying_which,
};
use larder_device::{
    BlockDevice, IoError, IoErrorKind,
    driver::block_on,
    file::{FileDevice, FileId, OpenOptions},
};
use larder_engine::{EngineError, superblock};
use larder_format::{FormatError, Structure, Superblock};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a device that another process holds is tried again.
///
/// Commands that only look hold a device for a moment.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_millis(1500);

/// Pause between two tries.
pub(crate) const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The flash of a cache.
pub struct Flash {
    /// Its path.
    pub path: PathBuf,
    /// The open device.
    pub device: Arc<dyn BlockDevice>,
    /// The identity of the file or device.
    pub id: Option<FileId>,
    /// Its superblock.
    pub superblock: Superblock,
}

/// The purpose for which a flash is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read the superblock, even if another process has the flash open.
    Peek,
    /// To read all of it, alone.
    Read,
    /// To read and write it, alone.
    Write,
}

/// Calls `act`, which asks the flash at `path` for a little; it says so if the flash hangs.
pub(crate) fn asking_flash<T>(path: &Path, act: impl FnOnce() -> T) -> T {
    saying_which(&format!("the flash {}", path.display()), act)
}

pub(crate) fn try_open(path: &Path, access: Access) -> Result<FileDevice, IoError> {
    let options = OpenOptions {
        direct: true,
        read_only: access != Access::Write,
        exclusive: access != Access::Peek,
        create_bytes: None,
    };
    asking_flash(path, || FileDevice::open(path, options))
}

/// Opens a file or block device by path.
///
/// # Errors
/// A sentence that names the path.
pub fn open_file(path: &Path, access: Access) -> Outcome<FileDevice> {
    patiently(|| try_open(path, access)).map_err(|error| refused_flash(path, access, &error))
}

/// Returns true if another process holds a file or block device now.
pub fn is_held(path: &Path) -> bool {
    try_open(path, Access::Read).is_err_and(|error| error.kind == IoErrorKind::InUse)
}

/// Warns if other users may read or lock a flash file.
pub fn note_open_to_others(path: &Path) {
    let Ok(found) = fs::metadata(path) else { return };
    let mode = found.mode() & 0o777;
    if found.is_file() && mode & 0o077 != 0 {
        let path = path.display();
        output::note(&format!(
            "other users may open {path} (mode {mode:o}), read what it caches and keep it from being served: `chmod 600 {path}`"
        ));
    }
}

pub(crate) fn patiently<T>(mut attempt: impl FnMut() -> Result<T, IoError>) -> Result<T, IoError> {
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match attempt() {
            Err(error) if error.kind == IoErrorKind::InUse && Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            result => return result,
        }
    }
}

pub(crate) fn refused_flash(path: &Path, access: Access, error: &IoError) -> Failure {
    let holder = (error.kind == IoErrorKind::InUse).then(|| holder::of(path)).flatten();
    let path = path.display();
    Failure::failed(match (error.kind, error.errno) {
        (IoErrorKind::InUse, _) => match holder {
            Some(Holder { pid, command, .. }) => {
                format!(
                    "{path} is in use by `{command}` (process {pid}): end that one first, or wait until it has ended"
                )
            }
            None => format!("{path} is in use by another process: end that one first"),
        },
        (_, Some(libc::ENOENT)) => format!("{path} does not exist: name the flash that `larder create` made"),
        (IoErrorKind::ReadOnly, _) if access == Access::Write => {
            format!("{path} cannot be written ({}): make it writable", reason(error))
        }
        (IoErrorKind::ReadOnly, _) => format!("{path} cannot be read ({}): make it readable", reason(error)),
        _ => format!("{path} cannot be opened: {}", reason(error)),
    })
}

/// Opens the flash of a cache and reads its superblock.
///
/// # Errors
/// A sentence that names the path: missing, in use, not ours, damaged, newer.
pub fn open_flash(path: &Path, access: Access) -> Outcome<Flash> {
    read_superblock(path, open_file(path, access)?, access)
}

pub(crate) fn read_superblock(path: &Path, device: FileDevice, access: Access) -> Outcome<Flash> {
    let id = device.id();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let read = asking_flash(path, || block_on(superblock::read(&*device))).and_then(|(superblock, _)| {
        if access == Access::Write {
            superblock.check_writable()?;
        }
        Ok(superblock)
    });
    let superblock = read.map_err(|error| no_superblock(path, &error))?;
    Ok(Flash { path: path.to_owned(), device, id, superblock })
}

/// Returns the sentence on a flash without a superblock to go by.
fn no_superblock(path: &Path, error: &EngineError) -> Failure {
    let superblock = Structure::Superblock;
    let EngineError::Format(error) = error else { return Failure::engine(path, error) };
    let path = path.display();
    Failure::failed(match error {
        FormatError::Truncated { .. } => {
            format!("{path} is too short to be a Larder flash: name the one that `larder create` made")
        }
        FormatError::NewerVersion { .. } => format!("{path}: {error}"),
        FormatError::BadMagic(structure) if *structure == superblock => {
            format!("{path} is not a Larder flash (it holds no superblock): name the one that `larder create` made")
        }
        FormatError::Foreign(structure) if *structure == superblock => format!(
            "{path} has the superblocks of two caches, for a `larder create` on it was interrupted: run that again with --force"
        ),
        error => format!(
            "{path} has no superblock that can be used ({error}): bring back a good copy of this flash, or make a new cache with `larder create --force`"
        ),
    })
}

/// Returns the path that a path leads to; links are followed if it exists.
pub fn absolute(path: &Path) -> String {
    let path = path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}

/// Returns a path from the root on, links as they are.
pub fn named(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Refuses a flash whose cache was detached, in any state of its origin.
///
/// # Errors
/// The sentence that says so.
pub fn refuse_detached(flash: &Flash) -> Outcome {
    if !flash.superblock.detached {
        return Ok(());
    }
    // The sentence must stay true.
    let flushed = block_on(flash.device.flush()).map_err(EngineError::Flash);
    Err(Failure::engine(&flash.path, &flushed.err().unwrap_or(EngineError::Detached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_flash_is_named() {
        let failure = open_flash(Path::new("/nowhere/flash"), Access::Peek).err().and_then(|f| f.sentence());
        assert!(failure.expect("refused").starts_with("/nowhere/flash does not exist"));
    }
}
