//! A file that is being written.
//!
//! Invariants: the file has a temporary name in its folder until it is whole and on the disk; then
//! it takes its own. An existing file is replaced only on request. An abandoned file leaves nothing
//! behind, unless the process was killed.
//!
//! It does not make the folder.

use crate::{
    args::OutputArgs,
    error::{Failure, Outcome, system_reason},
};
use parking_lot::Mutex;
use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Files that are still incomplete, by their temporary names.
static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes every incomplete file, for a process that ends at once.
pub fn remove_parts() {
    for part in PARTS.lock().iter() {
        // A file that took its final name meanwhile is no longer here.
        let _ = fs::remove_file(part);
    }
}

/// A file that is not whole yet.
pub struct OutFile {
    path: PathBuf,
    part: PathBuf,
    file: Arc<File>,
    force: bool,
    is_done: bool,
}

impl OutFile {
    /// Makes the file under its temporary name, `NAME.part-PID`.
    ///
    /// # Errors
    /// A sentence: it exists and may not be replaced, it is no file, or the system refuses.
    pub fn create(path: &Path, force: bool) -> Outcome<OutFile> {
        let shown = path.display();
        let name = path.file_name().ok_or_else(|| Failure::failed(format_args!("{shown} names no file")))?;
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => return Err(Failure::failed(format_args!("{shown} is a folder: name a file"))),
            Ok(meta) if !meta.is_file() => {
                return Err(Failure::failed(format_args!("{shown} is no plain file: name one")));
            }
            Ok(_) if !force => return Err(exists(path)),
            _ => {}
        }
        let mut part = name.to_owned();
        part.push(format!(".part-{}", std::process::id()));
        let part = path.with_file_name(part);
        // Registered before the file exists: a signal may come in between.
        remember(&part);
        let file = File::options().read(true).write(true).create_new(true).open(&part);
        let file = Arc::new(file.map_err(|error| {
            forget(&part);
            refused(path, "made", &error)
        })?);
        Ok(OutFile { path: path.to_owned(), part, file, force, is_done: false })
    }

    /// Makes the file of the command line.
    ///
    /// # Errors
    /// As [`OutFile::create`].
    pub fn of(args: &OutputArgs) -> Outcome<OutFile> {
        OutFile::create(&args.output, args.force)
    }

    /// Returns its later name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file.
    pub fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Gives the file its name, and returns its length.
    ///
    /// # Errors
    /// A sentence; then nothing is left behind.
    pub fn commit(mut self) -> Outcome<u64> {
        let wrong = |error: &io::Error| refused(&self.path, "written", error);
        self.file.sync_all().map_err(|error| wrong(&error))?;
        let bytes = self.file.metadata().map_err(|error| wrong(&error))?.len();
        if self.force {
            fs::rename(&self.part, &self.path).map_err(|error| wrong(&error))?;
            self.is_done = true;
            return Ok(bytes);
        }
        // A link fails if the name was taken meanwhile; a rename would replace it.
        match fs::hard_link(&self.part, &self.path) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(&self.path)),
            // Some file systems have no links.
            Err(_) if self.path.exists() => Err(exists(&self.path)),
            Err(_) => {
                fs::rename(&self.part, &self.path).map_err(|error| wrong(&error))?;
                self.is_done = true;
                Ok(bytes)
            }
        }
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if !self.is_done {
            // There is no remedy for a file that cannot be removed.
            let _ = fs::remove_file(&self.part);
        }
        forget(&self.part);
    }
}

/// Registers a new file: [`remove_parts`] removes it, until [`forget`] drops it from the list.
pub fn remember(part: &Path) {
    PARTS.lock().push(part.to_owned());
}

/// Takes a file off that list: it was removed, or is complete.
pub fn forget(part: &Path) {
    PARTS.lock().retain(|other| other != part);
}

fn exists(path: &Path) -> Failure {
    Failure::failed(format_args!("{} exists: name another file, or overwrite it with --force", path.display()))
}

fn refused(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::failed(format_args!("{} cannot be {what}: {}", path.display(), system_reason(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_takes_its_name_when_it_is_whole_and_replaces_none() {
        let folder = std::env::temp_dir().join(format!("larder-out-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a.trace");
        let names = || fs::read_dir(&folder).expect("the folder").count();
        let fill = |out: &OutFile, text: &[u8]| (&*out.file()).write_all(text).expect("a write");

        let given_up = OutFile::create(&path, false).expect("a new file");
        fill(&given_up, b"half");
        assert!(!path.exists() && names() == 1);
        drop(given_up);
        assert_eq!(names(), 0, "what is given up leaves nothing");

        let out = OutFile::create(&path, false).expect("a new file");
        fill(&out, b"whole");
        assert_eq!(out.commit(), Ok(5));
        assert!(fs::read(&path).expect("the file") == b"whole" && names() == 1);
        assert!(OutFile::create(&path, false).is_err(), "it is there");

        let out = OutFile::create(&path, true).expect("it may be replaced");
        fill(&out, b"again");
        assert_eq!(out.commit(), Ok(5));
        assert!(fs::read(&path).expect("the file") == b"again" && names() == 1);

        // The name is taken while the file is written.
        let other = folder.join("b.trace");
        let out = OutFile::create(&other, false).expect("a new file");
        fs::write(&other, b"somebody else's").expect("a file");
        assert!(out.commit().is_err());
        assert!(fs::read(&other).expect("the file") == b"somebody else's" && names() == 2);
        assert!(OutFile::create(&folder, true).is_err(), "a folder is no file");
        fs::remove_dir_all(&folder).expect("clean up");
    }
}
