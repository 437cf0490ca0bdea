//! The asking side of a control socket: finds the server of a flash, and asks it.
//!
//! Invariants: an answer is believed only from a process of this user or of root, as the system
//! names it (SO_PEERCRED).
//!
//! It does not know the meaning of a request.

use crate::{
    error::{Failure, Outcome, system_reason},
    run_dir::{self, RUN_DIR_ENV, RunDirs},
};
use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

/// Longest reply line that is read, in bytes.
const REPLY_BYTES_MAX: u64 = 1 << 20;

/// The result of a request: the value behind `ok`, or a sentence.
pub type Reply = Result<Value, String>;

/// Returns the first folder in which a command expects the control socket of a flash.
pub fn socket_path(flash_uuid: &[u8; 16]) -> PathBuf {
    RunDirs::of_this_user().first().join(socket_name(flash_uuid))
}

pub(crate) fn socket_name(flash_uuid: &[u8; 16]) -> String {
    format!("{}.sock", hex(flash_uuid))
}

/// Returns the flashes that have a control socket.
pub fn known_uuids() -> Vec<[u8; 16]> {
    let folders = RunDirs::of_this_user().for_commands().unwrap_or_default();
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    files.filter_map(|file| unhex(file.file_name().to_str()?.strip_suffix(".sock")?)).collect()
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of a UUID in hexadecimal digits.
pub fn unhex(digits: &str) -> Option<[u8; 16]> {
    let number = (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok())??;
    Some(number.to_be_bytes())
}

/// Returns true if a process answers for a flash, or for a copy of it.
pub fn is_served(flash_uuid: &[u8; 16]) -> bool {
    // A server that cannot be asked counts, too.
    !matches!(Client::connect(flash_uuid), Ok(None))
}

/// Returns the process at the other end, and its user, as the system knows them.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to a live `ucred` and to its length.
    let told = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    };
    if told == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

/// Returns true for a user whose processes are believed: this user, or root.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == 0 || user == run_dir::user()
}

/// A connection to a server.
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    process: i32,
}

impl Client {
    /// Connects to the process that answers for a flash, or for a copy of it; `None` if none does.
    ///
    /// # Errors
    /// The server is out of reach, or another user's; or the named folder is not to be trusted.
    pub fn connect(flash_uuid: &[u8; 16]) -> Outcome<Option<Client>> {
        for folder in RunDirs::of_this_user().for_commands()? {
            if let Some(client) = Client::connect_at(&folder.join(socket_name(flash_uuid)))? {
                return Ok(Some(client));
            }
        }
        Ok(None)
    }

    /// Connects at the socket of this path, as [`Client::connect`].
    pub(crate) fn connect_at(path: &Path) -> Outcome<Option<Client>> {
        use ErrorKind::{ConnectionRefused, InvalidInput, NotFound};
        let failed = |why: &str| Failure::failed(format_args!("the server at {} {why}", path.display()));
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            // No server can be at a path that is too long.
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | InvalidInput) => return Ok(None),
            Err(error) => return Err(failed(&format!("cannot be reached: {}", system_reason(&error)))),
        };
        match peer(&stream) {
            Ok(peer) if is_trusted(peer.uid) => {
                Ok(Some(Client { stream: BufReader::new(stream), path: path.to_owned(), process: peer.pid }))
            }
            Ok(peer) => Err(failed(&format!(
                "belongs to another user ({}) and is not believed: run the command as that user, or name another folder with {RUN_DIR_ENV}",
                peer.uid
            ))),
            Err(error) => Err(failed(&format!("does not show its user: {}", system_reason(&error)))),
        }
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the server, in words.
    pub fn name(&self) -> String {
        format!("the server at {} (process {})", self.path.display(), self.process)
    }

    /// Asks, and waits `at_most` so long for each piece of the answer.
    ///
    /// `None` if it does not come: then this connection carries no further request.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_within(&mut self, request: &str, at_most: Duration) -> Outcome<Option<Value>> {
        let stream = self.stream.get_ref();
        let limited = stream.set_read_timeout(Some(at_most)).and_then(|()| stream.set_write_timeout(Some(at_most)));
        limited.map_err(|error| Failure::failed(system_reason(&error)))?;
        self.answer(request)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The server's sentence, or that it went away.
    pub fn ask(&mut self, request: &str) -> Outcome<Value> {
        let answer = self.answer(request)?;
        answer.ok_or_else(|| Failure::failed(format_args!("{} does not answer", self.name())))
    }

    fn answer(&mut self, request: &str) -> Outcome<Option<Value>> {
        let path = self.path.display();
        let failed = |why: &str| Failure::failed(format_args!("the server at {path} {why}"));
        let mut reply = String::new();
        let asked = self
            .stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .and_then(|()| (&mut self.stream).take(REPLY_BYTES_MAX).read_line(&mut reply));
        match asked {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
            asked => asked.map_err(|error| failed(&format!("does not answer: {}", system_reason(&error))))?,
        };
        match parse_reply(&reply) {
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(sentence)) => Err(Failure::failed(sentence)),
            None if reply.is_empty() => Err(failed("went away before it answered")),
            None => Err(failed("gave an answer that is none")),
        }
    }
}

/// Parses a reply line; `None` for any other line.
pub fn parse_reply(reply: &str) -> Option<Reply> {
    let mut value: Value = serde_json::from_str(reply).ok()?;
    match (value.get_mut("ok").map(Value::take), value.get_mut("error").map(Value::take)) {
        (Some(value), None) => Some(Ok(value)),
        (None, Some(Value::String(sentence))) => Some(Err(sentence)),
        _ => None,
    }
}
