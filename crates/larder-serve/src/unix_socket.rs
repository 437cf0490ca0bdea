//! [`OwnSocket`]: a listening Unix socket at a path that one server has for itself.
//!
//! Role: a socket file outlives a server that dies. The next server replaces that file, and only
//! that one.
//!
//! Invariants: of several servers that want one path at once exactly one gets it. A lock file
//! beside the path covers the look at a stale file, its removal and the new socket. A file that is
//! no socket stays. The socket file goes with its owner, unless a successor has put its own there.
//!
//! It does not accept.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Longest path that a socket can have, in bytes.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The longest time another server may hold the lock: it takes a few system calls.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause between two tries for the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The reason for which a path is not available.
#[derive(Debug)]
pub enum TakeError {
    /// The path has more than [`SOCKET_PATH_BYTES_MAX`] bytes.
    TooLong,
    /// A file that is no socket is in the way.
    NotASocket,
    /// Another server listens there.
    InUse,
    /// The system refuses to tell whether a server listens there.
    Unsure(io::Error),
    /// The system refuses the socket, or the lock file.
    Io(io::Error),
}

/// A bound socket and its file.
#[derive(Debug)]
pub struct OwnSocket {
    /// Accepts the connections.
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file.
    file: (u64, u64),
}

impl OwnSocket {
    /// Binds a socket at `path`, and replaces one that a dead server has left there.
    ///
    /// `mode` sets the permissions of its file, in place of the process's defaults.
    ///
    /// # Errors
    /// [`TakeError`]; then the path is unchanged.
    pub fn bind(path: &Path, mode: Option<u32>) -> Result<OwnSocket, TakeError> {
        if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(TakeError::TooLong);
        }
        let _lock = PathLock::take(path).map_err(TakeError::Io)?;
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(TakeError::Io)?;
        let file = fs::symlink_metadata(path).map_err(TakeError::Io)?;
        let socket = OwnSocket { listener, path: path.into(), file: file_of(&file) };
        if let Some(mode) = mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(TakeError::Io)?;
        }
        Ok(socket)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket's file, if it still is this one's. Existing connections stay.
    pub fn remove(&self) {
        // Without the lock: a successor replaces only a socket without a listener, and this one
        // still listens.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| file_of(&found) == self.file) {
            // An error is harmless: the next server replaces a stale file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        self.remove();
    }
}

fn file_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Removes a socket file that a dead server has left behind.
fn remove_stale(path: &Path) -> Result<(), TakeError> {
    let found = fs::symlink_metadata(path).map_err(TakeError::Io)?;
    if !found.file_type().is_socket() {
        return Err(TakeError::NotASocket);
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(TakeError::Io),
        Err(error) => Err(TakeError::Unsure(error)),
        Ok(_) => Err(TakeError::InUse),
    }
}

/// The lock on a path, held until it is dropped.
struct PathLock {
    path: PathBuf,
    file: File,
}

impl PathLock {
    fn take(socket: &Path) -> io::Result<PathLock> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let until = Instant::now() + LOCK_TIME_MAX;
        loop {
            // For this user alone: a lock that others can take would keep servers from starting.
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)?;
            match file.try_lock() {
                // The previous holder may have removed the file that this process waited for.
                Ok(()) if is_at(&file, &path) => return Ok(PathLock { path, file }),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        format!("another process holds the lock {}", path.display()),
                    ));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(there)) => file_of(&held) == file_of(&there),
        _ => false,
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // A file with content is a user's, and only bears the name.
        if self.file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            // The next server takes a file that stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let folder = std::env::temp_dir().join(format!("larder-socket-{name}-{}", std::process::id()));
            fs::create_dir(&folder).expect("a folder of ours");
            Scratch(folder)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Leaves a socket without a listener.
    fn leave_stale(path: &Path) {
        let stale = path.with_extension("stale");
        drop(UnixListener::bind(&stale).expect("a socket"));
        fs::rename(stale, path).expect("moved");
    }

    #[test]
    fn of_servers_that_race_for_a_stale_socket_one_gets_it() {
        const SERVERS: usize = 8;
        let scratch = Scratch::new("race");
        let path = scratch.0.join("s");
        for round in 0..40 {
            leave_stale(&path);
            let barrier = Arc::new(Barrier::new(SERVERS));
            let racers = (0..SERVERS).map(|_| {
                let (path, barrier) = (path.clone(), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    OwnSocket::bind(&path, Some(0o600))
                })
            });
            let taken: Vec<_> = racers.collect::<Vec<_>>().into_iter().map(|racer| racer.join().unwrap()).collect();
            let had: Vec<_> = taken.iter().filter(|taken| taken.is_ok()).collect();
            assert_eq!(had.len(), 1, "round {round}: {taken:?}");
            assert!(taken.iter().all(|taken| matches!(taken, Ok(_) | Err(TakeError::InUse))), "{taken:?}");
            assert!(UnixStream::connect(&path).is_ok(), "the one that has it listens at the path");
            drop(taken);
            assert_eq!(fs::read_dir(&scratch.0).expect("a folder").count(), 0, "nothing is left behind");
        }
    }

    #[test]
    fn what_is_no_socket_stays() {
        let scratch = Scratch::new("file");
        let path = scratch.0.join("s");
        fs::write(&path, "mine").expect("written");
        assert!(matches!(OwnSocket::bind(&path, None), Err(TakeError::NotASocket)));
        assert_eq!(fs::read(&path).expect("there"), b"mine");
        // Nor is a file that only bears the name of a lock.
        let other = scratch.0.join("t");
        fs::write(scratch.0.join("t.lock"), "mine").expect("written");
        drop(OwnSocket::bind(&other, None).expect("a socket"));
        assert_eq!(fs::read(scratch.0.join("t.lock")).expect("there"), b"mine");
        // A link in place of the lock leads nowhere.
        let target = scratch.0.join("target");
        std::os::unix::fs::symlink(&target, scratch.0.join("u.lock")).expect("a link");
        assert!(matches!(OwnSocket::bind(&scratch.0.join("u"), None), Err(TakeError::Io(_))));
        assert!(!target.exists());
    }

    #[test]
    fn a_successors_file_is_not_removed() {
        let scratch = Scratch::new("successor");
        let path = scratch.0.join("s");
        let first = OwnSocket::bind(&path, Some(0o600)).expect("a socket");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        fs::remove_file(&path).expect("removed by hand");
        let second = OwnSocket::bind(&path, None).expect("a socket");
        drop(first);
        assert!(path.exists());
        assert_eq!(second.path(), path);
        drop(second);
        assert!(!path.exists());
    }
}
