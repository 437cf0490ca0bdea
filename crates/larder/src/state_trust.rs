//! The state directories and files that are believed.
//!
//! Invariants: a state directory or file counts if it belongs to this user or root, and neither
//! group nor others may write to it. A link, FIFO, socket or folder is no state file.
//!
//! It does not read them.

use crate::{
    error::{Failure, Outcome},
    run_dir,
};
use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// The fault of a folder, link, FIFO or socket in the place of a state file.
pub const NO_FILE: &str = "is no file: remove it, and bring back a good copy of the file";

/// The way in which other users could have put their words into a file or folder.
enum Others {
    Own(u32),
    Write(u32),
}

impl Others {
    fn of(found: &Metadata) -> Option<Others> {
        match found {
            _ if ![run_dir::user(), 0].contains(&found.uid()) => Some(Others::Own(found.uid())),
            _ if found.mode() & run_dir::WRITABLE_BY_OTHERS != 0 => Some(Others::Write(found.mode() & 0o7777)),
            _ => None,
        }
    }
}

/// Refuses a directory to which other users can add files: their file could deny a fence.
///
/// # Errors
/// A sentence.
pub fn refuse_open_to_others(dir: &Path) -> Outcome {
    let shown = dir.display();
    let refused = |why: String| Err(Failure::failed(format_args!("the state directory {shown} {why}")));
    // The read that follows gives the reason if the directory cannot be asked for.
    match fs::metadata(dir).ok().as_ref().and_then(Others::of) {
        Some(Others::Own(user)) => refused(format!("belongs to another user ({user}): name one that is yours")),
        Some(Others::Write(mode)) => {
            refused(format!("can be written by others (mode {mode:o}): `chmod go-w {shown}`, or name another"))
        }
        None => Ok(()),
    }
}

/// Returns the fault of a state file that other users could have written, or that is no file.
pub fn distrust(found: &Metadata, file: &Path) -> Option<String> {
    let shown = file.display();
    if !found.is_file() {
        return Some(NO_FILE.to_owned());
    }
    Some(match Others::of(found)? {
        Others::Own(user) => format!(
            "belongs to another user ({user}), and is not believed: bring back a good copy of it, or \
             `chown {} {shown}` if its content is yours",
            run_dir::user()
        ),
        Others::Write(mode) => format!(
            "can be written by others (mode {mode:o}), and is not believed: bring back a good copy of it, or \
             `chmod go-w {shown}` if its content is yours"
        ),
    })
}
