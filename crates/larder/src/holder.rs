//! The process that has a file or device open.
//!
//! A refusal names it, so that an operator can wait for it or end it.
//!
//! Invariants: a process is named only if it has the very file or device open. Files of other names
//! stay untouched: they may lie on a server that does not answer.
//!
//! It does not see into other users' processes, unless it is root's.

use crate::client::is_trusted;
use larder_device::file::FileId;
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

/// Longest command that is shown, in bytes.
const COMMAND_BYTES_MAX: usize = 64;

/// A process that has a file or device open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its user's number.
    pub uid: u32,
    /// The program's name, and the command it was given if the program is Larder.
    pub command: String,
}

impl Holder {
    /// Returns whether this process believes its answers: its user is this one, or root.
    pub fn is_trusted(&self) -> bool {
        is_trusted(self.uid)
    }

    /// Returns true if it serves, and so should answer on a control socket.
    pub fn serves(&self) -> bool {
        self.command == "larder serve"
    }
}

/// Returns another process that has the file or device at `path` open, preferably one of Larder's.
pub fn of(path: &Path) -> Option<Holder> {
    let path = path.canonicalize().ok()?;
    let id = FileId::of(&fs::metadata(&path).ok()?)?;
    let own = std::process::id();
    let numbers = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut holders = numbers.filter(|&pid: &u32| pid != own && has_open(pid, &path, id)).filter_map(named);
    let first = holders.next()?;
    Some(
        std::iter::once(first.clone())
            .chain(holders)
            .find(|holder| holder.command.starts_with("larder "))
            .unwrap_or(first),
    )
}

fn has_open(pid: u32, path: &Path, id: FileId) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    // A device has several names.
    let may_be = |name: &Path| name == path || (matches!(id, FileId::BlockDevice { .. }) && name.starts_with("/dev"));
    let is = |entry: &Path| fs::metadata(entry).is_ok_and(|meta| FileId::of(&meta) == Some(id));
    open.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|name| may_be(&name)) && is(&entry.path()))
}

fn named(pid: u32) -> Option<Holder> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some(Holder { pid, uid, command: command_of(&line)? })
}

/// Returns the program and, for Larder, its command; none for a process that has ended.
fn command_of(line: &[u8]) -> Option<String> {
    let mut words = line.split(|&byte| byte == 0).map(OsStr::from_bytes);
    let program = Path::new(words.next()?).file_name()?.to_string_lossy().into_owned();
    let command = match (program.as_str(), words.next()) {
        ("larder", Some(command)) => format!("larder {}", command.to_string_lossy()),
        _ => program,
    };
    let is_plain = |letter: &char| !letter.is_control() && *letter != '`';
    Some(command.chars().filter(is_plain).take(COMMAND_BYTES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir;

    #[test]
    fn a_command_is_named_by_program_and_word() {
        assert_eq!(command_of(b"/usr/bin/larder\0flush\0--flash\0/f\0").as_deref(), Some("larder flush"));
        assert_eq!(command_of(b"/usr/bin/fio\0job\0").as_deref(), Some("fio"));
        assert_eq!(command_of(b"x`\n\0").as_deref(), Some("x"));
        assert_eq!(command_of(b""), None);
    }

    #[test]
    fn a_process_is_known_by_what_it_has_open() {
        let path = std::env::temp_dir().join(format!("larder-holder-{}", std::process::id()));
        fs::write(&path, "x").expect("a file of ours");
        assert_eq!(of(&path), None, "this process does not count");
        let file = fs::File::open(&path).expect("it is there");
        let mut child = std::process::Command::new("sleep").arg("60").stdin(file).spawn().expect("sleep");
        let found = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            of(&path).filter(|holder| holder.command == "sleep")
        });
        let pid = child.id();
        child.kill().and_then(|()| child.wait()).expect("it ends");
        fs::remove_file(&path).expect("it is there");
        assert_eq!(found, Some(Holder { pid, uid: run_dir::user(), command: "sleep".into() }));
    }
}
