//! The files of a state directory: read, written anew and removed, durably.
//!
//! Invariants: a file is replaced whole: written beside, flushed, renamed, the directory flushed.
//! So a crash leaves the old one or the new one. A file that is not believed, or damaged, is an
//! error.
//!
//! It leaves the meaning of a record to its owner.

use crate::{
    error::{Failure, Outcome, system_reason},
    state_record::{FILE_BYTES_MAX, StateRecord, parse},
    state_trust::{NO_FILE, distrust},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The most files of a directory that are read.
const FILES_MAX: usize = 4096;

/// Returns the state files of a directory, and those that cannot be read.
pub fn records(dir: &Path) -> Result<Vec<(PathBuf, Outcome<StateRecord>)>, String> {
    let failed = |error: &std::io::Error| {
        format!("the state directory {} cannot be read: {}", dir.display(), system_reason(error))
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| failed(&error))?.take(FILES_MAX) {
        let file = entry.map_err(|error| failed(&error))?.path();
        if file.extension().is_some_and(|extension| extension == "json")
            && let Some(record) = read(&file).transpose()
        {
            found.push((file, record));
        }
    }
    Ok(found)
}

/// Reads a state file, if it exists.
///
/// # Errors
/// A sentence: it is damaged, or not to be believed.
pub fn read(file: &Path) -> Outcome<Option<StateRecord>> {
    let failed = |what: &str| Failure::failed(format_args!("the state file {} {what}", file.display()));
    let mut bytes = Vec::new();
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file);
    let content = opened.and_then(|opened| {
        if let Some(fault) = distrust(&opened.metadata()?, file) {
            return Ok(Err(fault));
        }
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map(Ok)
    });
    match content {
        Ok(Ok(_)) => {}
        Ok(Err(fault)) => return Err(failed(&fault)),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A link or a socket is not opened.
        Err(_) if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) => return Err(failed(NO_FILE)),
        Err(error) => return Err(failed(&format!("cannot be read: {}", system_reason(&error)))),
    }
    parse(&bytes).map(Some).map_err(|fault| failed(&format!("is damaged ({fault}): bring back a good copy of it")))
}

/// Removes a file, durably, if it exists.
///
/// # Errors
/// A sentence.
pub fn remove(file: &Path) -> Result<(), String> {
    let removed = match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
        Ok(()) => file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all()),
    };
    removed.map_err(|error| format!("the state file {} cannot be removed: {}", file.display(), system_reason(&error)))
}

/// Writes a file anew, whole and durably.
///
/// # Errors
/// A sentence: the old file stays.
pub fn replace(file: &Path, record: &StateRecord) -> Result<(), String> {
    write(file, record)
        .map_err(|error| format!("the state file {} cannot be written: {}", file.display(), system_reason(&error)))
}

fn write(file: &Path, record: &StateRecord) -> std::io::Result<()> {
    let beside = file.with_extension("new");
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    let replaced = write_durably(&beside, &text).and_then(|()| fs::rename(&beside, file));
    if replaced.is_err() {
        // Part of a file is useless. The next write removes a file that stays here.
        let _ = fs::remove_file(&beside);
    }
    replaced?;
    let dir = file.parent().ok_or(ErrorKind::NotFound)?;
    File::open(dir)?.sync_all()
}

fn write_durably(file: &Path, text: &[u8]) -> std::io::Result<()> {
    // A file that a crash has left. Any other file of that name is not followed, written to or
    // truncated.
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    out.write_all(text)?;
    out.sync_all()
}
