//! The folders of control sockets: those that a server may use, and those that a command believes.
//!
//! [`RUN_DIR_ENV`] names the one folder. Without it there is a list: `/run/larder` for root; for
//! others `$XDG_RUNTIME_DIR/larder` and `/tmp/larder-UID`. All users may write to `/tmp`, so
//! another user may have taken that name. A server passes over it and makes
//! `/tmp/larder-UID-XXXXXX`; commands look into each folder of that pattern that is this user's.
//!
//! Invariants: a folder counts if it is a folder and no link, belongs to this user, and neither
//! group nor others may write to it. Root's folders count, too, for commands. A named folder that
//! does not count is refused, never passed over.
//!
//! It leaves the sockets to `control`.

use crate::error::{Failure, Outcome, system_reason};
use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, Metadata},
    io::{self, ErrorKind},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

/// Environment variable that names the folder of control sockets.
pub const RUN_DIR_ENV: &str = "LARDER_RUN_DIR";
/// Permissions that only the owner may have, of a folder or file that is believed.
pub const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Returns the user of this process.
pub fn user() -> u32 {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() }
}

/// The folders in which control sockets may lie.
pub struct RunDirs {
    /// The folder that was named.
    named: Option<PathBuf>,
    /// The folders without a named one, best first.
    usual: Vec<PathBuf>,
    /// The place and first letters of a new folder, used if none of the others is usable.
    fresh: Option<(PathBuf, OsString)>,
}

impl RunDirs {
    /// Returns the folders of this process.
    pub fn of_this_user() -> RunDirs {
        let user = user();
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
        let named = variable(RUN_DIR_ENV);
        if user == 0 {
            return RunDirs { named, usual: vec!["/run/larder".into()], fresh: None };
        }
        RunDirs::of(named, variable("XDG_RUNTIME_DIR"), Path::new("/tmp"), user)
    }

    fn of(named: Option<PathBuf>, runtime: Option<PathBuf>, shared: &Path, user: u32) -> RunDirs {
        let name = OsString::from(format!("larder-{user}"));
        let mut usual: Vec<PathBuf> = runtime.into_iter().map(|runtime| runtime.join("larder")).collect();
        usual.push(shared.join(&name));
        let mut begin = name;
        begin.push("-");
        RunDirs { named, usual, fresh: Some((shared.into(), begin)) }
    }

    /// Returns the folder that a server takes first, and that a sentence names.
    pub fn first(&self) -> &Path {
        let first = self.named.as_deref().or(self.usual.first().map(PathBuf::as_path));
        first.unwrap_or(Path::new("/run/larder"))
    }

    /// Returns the folder for the socket of a server: the first usable one, made if it is missing.
    ///
    /// # Errors
    /// A sentence: the named folder is not to be trusted, or none can be made.
    pub fn for_server(&self) -> Outcome<PathBuf> {
        if let Some(named) = &self.named {
            // A link that an operator names is theirs.
            return made(named, fs::metadata).map(|()| named.clone()).map_err(|why| refused(named, &why));
        }
        let mut first_refusal = None;
        for folder in self.usual.iter().cloned().chain(self.found_fresh()) {
            match made(&folder, fs::symlink_metadata) {
                Ok(()) => return Ok(folder),
                Err(why) => first_refusal.get_or_insert((folder, why)),
            };
        }
        match (&self.fresh, first_refusal) {
            (Some((shared, begin)), _) => make_fresh(shared, begin),
            (None, Some((folder, why))) => Err(refused(&folder, &why)),
            (None, None) => Err(refused(self.first(), "cannot be had")),
        }
    }

    /// Returns the folders in which a command looks for a server.
    ///
    /// # Errors
    /// A sentence: the named folder is not to be trusted.
    pub fn for_commands(&self) -> Outcome<Vec<PathBuf>> {
        if let Some(named) = &self.named {
            return match checked(named, fs::metadata(named), &[user(), 0]) {
                Ok(()) => Ok(vec![named.clone()]),
                Err(Untrusted::Missing) => Ok(Vec::new()),
                Err(Untrusted::Because(why)) => Err(refused(named, &why)),
            };
        }
        let is_trusted = |folder: &PathBuf| checked(folder, fs::symlink_metadata(folder), &[user(), 0]).is_ok();
        Ok(self.usual.iter().cloned().chain(self.found_fresh()).filter(is_trusted).collect())
    }

    /// Returns the folders with a new name that this user made earlier.
    fn found_fresh(&self) -> Vec<PathBuf> {
        let Some((shared, begin)) = &self.fresh else { return Vec::new() };
        let Ok(entries) = fs::read_dir(shared) else { return Vec::new() };
        let is_ours = |folder: &PathBuf| checked(folder, fs::symlink_metadata(folder), &[user()]).is_ok();
        let named_so = entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(begin.as_bytes()));
        let mut found: Vec<PathBuf> = named_so.map(|entry| entry.path()).filter(is_ours).collect();
        found.sort();
        found
    }
}

/// The reason why a folder does not count.
enum Untrusted {
    Missing,
    Because(String),
}

fn checked(folder: &Path, found: io::Result<Metadata>, owners: &[u32]) -> Result<(), Untrusted> {
    let because = |why: &str| Err(Untrusted::Because(why.to_owned()));
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Untrusted::Missing),
        Err(error) => Err(Untrusted::Because(format!("cannot be used: {}", system_reason(&error)))),
        Ok(found) if !found.is_dir() => because("is no folder, or a link to one"),
        Ok(found) if !owners.contains(&found.uid()) => {
            Err(Untrusted::Because(format!("belongs to another user ({}): run the command as that user", found.uid())))
        }
        Ok(found) if found.mode() & WRITABLE_BY_OTHERS != 0 => Err(Untrusted::Because(format!(
            "can be written by others (mode {:o}): `chmod 700 {}`",
            found.mode() & 0o777,
            folder.display()
        ))),
        Ok(_) => Ok(()),
    }
}

/// Makes a folder for this user alone, if it is missing.
fn made(folder: &Path, look: fn(PathBuf) -> io::Result<Metadata>) -> Result<(), String> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        // A link that leads nowhere.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(format!("cannot be made: {}", system_reason(&error))),
        Ok(()) => {}
    }
    checked(folder, look(folder.into()), &[user()]).map_err(|untrusted| match untrusted {
        Untrusted::Missing => "went away as it was made".to_owned(),
        Untrusted::Because(why) => why,
    })
}

fn make_fresh(shared: &Path, begin: &OsStr) -> Outcome<PathBuf> {
    let mut pattern = shared.join(begin).into_os_string();
    pattern.push("XXXXXX");
    let failed = |error: &io::Error| refused(Path::new(&pattern), &format!("cannot be made: {}", system_reason(error)));
    let name = CString::new(pattern.as_bytes()).map_err(|error| failed(&error.into()))?;
    let mut name = name.into_bytes_with_nul();
    // SAFETY: the bytes are a C string that ends in the six letters that the call replaces, and
    // outlive it.
    if unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) }.is_null() {
        return Err(failed(&io::Error::last_os_error()));
    }
    name.pop();
    Ok(OsString::from_vec(name).into())
}

fn refused(folder: &Path, why: &str) -> Failure {
    Failure::failed(format_args!(
        "the folder {} for control sockets {why}; {RUN_DIR_ENV} names another",
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let folder = std::env::temp_dir().join(format!("larder-run-dir-{name}-{}", std::process::id()));
            fs::create_dir(&folder).expect("a folder of ours");
            Scratch(folder)
        }

        fn folder(&self, name: &str, mode: u32) -> PathBuf {
            let folder = self.0.join(name);
            fs::create_dir(&folder).expect("a folder");
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("its mode");
            folder
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn sentence<T>(outcome: Outcome<T>) -> String {
        outcome.err().and_then(|failure| failure.sentence()).expect("a sentence")
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused_where_it_is_named() {
        let scratch = Scratch::new("named");
        for mode in [0o770, 0o707, 0o777, 0o1777] {
            let named = scratch.folder(&format!("{mode:o}"), mode);
            let dirs = RunDirs::of(Some(named.clone()), None, &scratch.0, user());
            for said in [sentence(dirs.for_server()), sentence(dirs.for_commands())] {
                assert!(said.contains("can be written by others") && said.contains(RUN_DIR_ENV), "{said}");
            }
        }
        let named = scratch.folder("good", 0o755);
        let dirs = RunDirs::of(Some(named.clone()), None, &scratch.0, user());
        assert_eq!(dirs.for_server().expect("good"), named);
        assert_eq!(dirs.for_commands().expect("good"), [named]);
        let dirs = RunDirs::of(Some(scratch.0.join("missing")), None, &scratch.0, user());
        assert!(dirs.for_commands().expect("nothing to distrust").is_empty());
    }

    #[test]
    fn a_squatted_folder_is_passed_over_and_the_next_one_found_again() {
        let scratch = Scratch::new("squatted");
        let usual = scratch.0.join(format!("larder-{}", user()));
        let target = scratch.folder("target", 0o700);
        symlink(&target, &usual).expect("a link in the way");
        let squatted = scratch.folder(&format!("larder-{}-other", user()), 0o777);
        let dirs = RunDirs::of(None, None, &scratch.0, user());
        assert!(dirs.for_commands().expect("no refusal").is_empty());
        let made = dirs.for_server().expect("another one");
        assert!(made != squatted && made != usual && made.starts_with(&scratch.0), "{}", made.display());
        assert_eq!(fs::metadata(&made).expect("made").permissions().mode() & 0o777, 0o700);
        assert_eq!(dirs.for_commands().expect("no refusal"), std::slice::from_ref(&made));
        assert_eq!(dirs.for_server().expect("the same"), made);
        assert_eq!(fs::read_dir(&target).expect("there").count(), 0);
    }

    #[test]
    fn the_runtime_folder_comes_first() {
        let scratch = Scratch::new("runtime");
        let runtime = scratch.folder("runtime", 0o700);
        let dirs = RunDirs::of(None, Some(runtime.clone()), &scratch.0, user());
        assert_eq!(dirs.for_server().expect("made"), runtime.join("larder"));
        assert_eq!(dirs.first(), runtime.join("larder"));
        // A command finds a server that was started without it.
        let shared = scratch.folder(&format!("larder-{}", user()), 0o700);
        assert_eq!(dirs.for_commands().expect("both"), [runtime.join("larder"), shared]);
    }
}
