//! An NBD server that hangs when it is told to: an origin, or below nbdfuse a flash.
//!
//! It does not look into what it serves.

use super::{Running, Scratch, until_done};
use std::{
    fs::File,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// nbdkit over a file, killed when it is dropped.
pub struct Nbdkit {
    child: Running,
    socket: PathBuf,
}

impl Nbdkit {
    /// Serves `file` on a socket called `name`, through these filters and with their parameters.
    pub fn over(scratch: &Scratch, name: &str, file: &Path, filters: &[&str], parameters: &[&str]) -> Self {
        let socket = scratch.path(&format!("{name}.sock"));
        let log = File::create(scratch.path(&format!("{name}.log"))).expect("a log file");
        let mut command = Command::new("nbdkit");
        command.arg("-f").arg("-U").arg(&socket).args(filters.iter().map(|filter| format!("--filter={filter}")));
        command.arg("file").arg(file).args(parameters).stdin(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let nbdkit = Self { child: Running(Some(child)), socket };
        assert!(until_done(|| UnixStream::connect(&nbdkit.socket).is_ok()), "nbdkit does not serve");
        nbdkit
    }

    /// How `larder` and libnbd name it.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// It takes requests, and answers none any more.
    pub fn hang(&self) {
        self.signal("STOP");
    }

    /// It goes on.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let child = self.child.0.as_ref().expect("it runs");
        super::run(Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]));
    }
}
